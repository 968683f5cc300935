"""A model's text as an action: what counts, how numbers are read, and what is refused with which words."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import envs
from envs.agents.llm import write_action
from envs.agents.reading import Invalid, parse_action, read_number
from envs.core import Action, ActionSpec
from scenarios.core import packaged

EVERY, OPENERS = envs.make(packaged("dnd", "test")[0], seed=0).specs()
PRICE = (
    ActionSpec(
        "propose",
        {"type": "object", "properties": {"offer": {"type": "object", "properties": {"price": {"type": "number"}}}}},
        "",
    ),
    ActionSpec("pick", {"type": "object", "properties": {"place": {"type": "string", "enum": ["Tokyo", "Seoul"]}}}, ""),
)
PROPOSE = '{"move":"propose","offer":{"book":1,"hat":0,"ball":1},"say":"Hi."}'


def reason(text, actions=EVERY):
    found = parse_action(text, actions)
    assert isinstance(found, Invalid), found
    return found.reason


def test_a_plain_object_is_read():
    assert parse_action(PROPOSE, EVERY) == Action("propose", {"offer": {"book": 1, "hat": 0, "ball": 1}, "say": "Hi."})


@pytest.mark.parametrize(
    "text",
    [
        'I think I should take it. {"move":"accept"}',
        '```json\n{"move": "accept"}\n```',
        '<think>{"move":"reject"} or {"move":"walk_away"}?</think>\n{"move":"accept"} That is it.',
        '{"move":"reject"}\n{"move":"accept"}',
        '{"thought":{"move":"reject"},"move":"accept"}',  # an object inside another is not the last one
        '{"move":"accept","say":null,"offer":null}',
        '{"move":"Accept "}',
        '{"move":"accept","thought":"worth 7 to me"}',
        '{"move":"accept"} {"move":',
    ],
)
def test_the_last_well_formed_object_counts_and_what_stands_around_it_does_not(text):
    assert parse_action(text, EVERY) == Action("accept")


def test_a_move_may_be_written_as_people_write_it():
    assert parse_action('{"move":"Walk away"}', EVERY) == Action("walk_away")
    assert parse_action('{"move":"pick","place":"tokyo"}', PRICE) == Action("pick", {"place": "Tokyo"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the answer is empty"),
        (None, "the answer is empty"),
        ("I accept.", "it holds no JSON object"),
        ('{"move":"accept"', "its JSON object is not complete"),
        ('{"offer":{"book":1}}', 'the JSON object has no "move"; possible moves: message, propose, accept, reject'),
        ('{"move":5}', '"move" is 5, expected one of message, propose'),
        ('{"move":"steal"}', 'the move "steal" is not possible now; possible moves: message, propose'),
        ('{"move":"propose"}', "propose needs the field 'offer'"),
        ('{"move":"message"}', "message needs the field 'say'"),
        ('{"move":"message","say":7}', "say is 7, expected a text"),
        ('{"move":"accept","offer":{"book":1}}', "accept takes no 'offer'; leave it out, or use the move \"propose\""),
        ('{"move":"accept","move":"reject"}', "the JSON object has the field 'move' twice"),
        (PROPOSE.replace("0", '"few"'), 'offer.hat: "few" is not one clear number'),
        (PROPOSE.replace("0", "0.5"), "offer.hat: 0.5 is not a whole number"),
        (PROPOSE.replace("0", "NaN"), "offer.hat: NaN is not a number"),
        (PROPOSE.replace("0", "true"), "offer.hat: true is not a number"),
        (PROPOSE.replace("0", "[1]"), "offer.hat: [1] is not a number"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words_to_act_on(text, words):
    assert words in reason(text)


def test_a_move_that_is_not_open_now_is_refused_with_those_that_are():
    assert reason('{"move":"accept"}', OPENERS) == (
        'the move "accept" is not possible now; possible moves: message, propose, walk_away'
    )


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7,500", 7500),
        ("$7.5k", 7500),
        ("7.5K", 7500),
        ("$1,234,567", 1234567),
        ("209", 209),
        (" $ 209.50 ", 209.5),
        ("209.50 dollars", 209.5),
        ("€300", 300),
        ("300 USD", 300),
        ("-3", -3),
        ("three", 3),
        (3.0, 3),
        (2.25, 2.25),
        ("0", 0),
    ],
)
def test_numbers_are_read_as_people_mean_them(text, number):
    value = read_number(text)
    assert value == number
    assert type(value) is type(number)
    assert parse_action(json.dumps({"move": "propose", "offer": {"price": text}}), PRICE) == Action(
        "propose", {"offer": {"price": number}}
    )


@pytest.mark.parametrize(
    "text",
    ["7,50", "1,5", "12,34,567", "300-350", "about 300", "300 or 350", "7.5m", "1e3", "", "$", "1.234.567", "5%", "½"],
)
def test_a_number_that_could_mean_two_things_is_not_guessed(text):
    assert "is not one clear number" in reason(json.dumps({"move": "propose", "offer": {"price": text}}), PRICE)


@given(st.text(max_size=200) | st.text('{}[]":,move acept 019\\u', max_size=200))
def test_any_text_is_an_action_or_a_reason(text):
    found = parse_action(text, EVERY)
    assert isinstance(found, Action) or (isinstance(found, Invalid) and found.reason)


def test_hostile_nesting_is_refused_quickly():
    for text in (
        "{" * 50_000,
        '{"a":' * 50_000,
        '{"move":"accept","x":' + "[" * 100_000,
        '{"move":' + "9" * 9000 + "}",
    ):
        assert reason(text)


@given(
    st.sampled_from(["accept", "reject", "walk_away", "message", "propose"]),
    st.text(max_size=40).filter(lambda text: text.isprintable()),
    st.tuples(*[st.integers(0, 3)] * 3),
)
def test_what_is_written_is_read_back(move, say, units):
    fields = {"offer": dict(zip(("book", "hat", "ball"), units, strict=True))} if move == "propose" else {}
    action = Action(move, {**fields, "say": say} if say or move == "message" else fields)
    text = write_action(action)
    assert parse_action(text, EVERY) == action
    assert parse_action("well: " + text, EVERY) == action
