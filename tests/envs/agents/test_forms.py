"""Forms from schemas: what is typed is read or refused, and what is filled in is legal."""

import asyncio
import random

import pytest

import envs
from envs.agents.forms import Field, chosen, fields_of, filled
from envs.core import ActionSpec, derive_seed
from scenarios.core import packaged


def field(**schema):
    return Field(("offer", "some_thing"), schema, True)


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "integer", "minimum": 0, "maximum": 3}, " 3 ", 3),
        ({"type": "integer"}, "seven", 7),
        ({"type": "number", "exclusiveMinimum": 0}, "7,500", 7500),
        ({"type": "number"}, "$7.5k", 7500),
        ({"type": "number", "multipleOf": 0.01}, "19.99", 19.99),
        ({"type": "string", "enum": ["Tokyo", "Seoul"]}, "SEOUL", "Seoul"),
        ({"type": "string", "enum": ["08:00", "09:00"]}, "09", "09:00"),
        ({"enum": [20, 30]}, "30", 30),
        ({"type": "boolean"}, "y", True),
        ({"type": "boolean"}, "No", False),
        ({"type": "string"}, " a word ", "a word"),
    ],
)
def test_what_fits_is_read(schema, text, value):
    found = field(**schema).read(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("schema", "text", "message"),
    [
        ({"type": "integer", "minimum": 0, "maximum": 3}, "4", "at most 3"),
        ({"type": "integer", "minimum": 0, "maximum": 3}, "-1", "at least 0"),
        ({"type": "integer"}, "1.5", "not a whole number"),
        ({"type": "integer"}, "1e9", "not one clear number"),
        ({"type": "number"}, "nan", "not one clear number"),
        ({"type": "number"}, "inf", "not one clear number"),
        ({"type": "number"}, "1,5", "not one clear number"),
        ({"type": "number", "exclusiveMinimum": 0}, "0", "more than 0"),
        ({"type": "number", "exclusiveMaximum": 1}, "1", "less than 1"),
        ({"type": "number", "multipleOf": 0.01}, "19.999", "in steps of 0.01"),
        ({"type": "string", "enum": ["Tokyo", "Toronto"]}, "to", "'to' could be Tokyo or Toronto"),
        ({"type": "string", "enum": ["Tokyo", "Seoul"]}, "Paris", "'Paris' is not Tokyo or Seoul"),
        ({"type": "string", "enum": ["Tokyo", "Seoul"]}, "", "is not Tokyo or Seoul"),
        ({"type": "boolean"}, "perhaps", "is not yes or no"),
        ({"type": "string", "maxLength": 3}, "four", "does not fit"),
        ({"type": "string", "pattern": "^a"}, "b", "does not fit"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(schema, text, message):
    with pytest.raises(ValueError, match=message):
        field(**schema).read(text)


def test_a_question_says_what_is_expected():
    assert field(type="integer", minimum=0, maximum=3).expected() == "a whole number, at least 0, at most 3"
    assert (
        field(type="number", exclusiveMinimum=0, multipleOf=0.01).expected()
        == "a number, more than 0, in steps of 0.01"
    )
    assert field(enum=["a", "b", "c"]).expected() == "a, b or c"
    assert field(type="string").expected() == "text"
    assert field(type="string", description="what you say").expected() == "what you say"
    assert field(type="string").label == "some thing"


def test_a_form_asks_for_every_field_and_for_words_last():
    numbers = {name: {"type": "integer"} for name in ("x", "y")}
    offer = {"type": "object", "properties": numbers, "required": ["x"]}
    schema = {"properties": {"say": {"type": "string"}, "offer": offer}, "required": ["offer"]}
    found = fields_of(ActionSpec("propose", schema, ""))
    assert [(f.path, f.required) for f in found] == [(("offer", "x"), True), (("offer", "y"), False), (("say",), False)]
    assert filled([(found[0], 1), (found[2], "hi")]) == {"offer": {"x": 1}, "say": "hi"}
    with pytest.raises(AssertionError, match="no form for many"):
        fields_of(ActionSpec("search", {"properties": {"many": {"type": "array"}}}, ""))


def test_an_exact_name_wins_over_a_longer_one():
    assert chosen("day", ["daybreak", "day"]) == "day"


def typed(field, rng):
    """Something that a person might type: half of it fits."""
    schema = field.schema
    if "enum" in schema:
        return str(rng.choice(schema["enum"]))
    low, high = schema.get("minimum", schema.get("exclusiveMinimum", 0)), schema.get("maximum", 200)
    return rng.choice([str(rng.randint(int(low), int(high))), f"{rng.uniform(low, high):.3f}", "-1", "0", "x", "1e5"])


@pytest.mark.parametrize("env", envs.ENVIRONMENTS)
async def test_an_offer_from_a_form_is_never_illegal(env):
    """Every move of every environment has a form, and what its form accepts the rules accept too."""
    filled_in = 0
    for number in range(15):
        rng = random.Random(derive_seed(env, number))
        game = envs.make(packaged(env, "test")[number], seed=number)
        task = asyncio.ensure_future(game.conduct())
        while not task.done():
            await asyncio.sleep(0)
            for seat, channel in game.channels.items():
                if channel.open is None:
                    continue
                spec = rng.choice(channel.open.actions)
                answers = []
                for question in fields_of(spec):
                    while question.required or rng.random() < 0.5:
                        try:
                            answers.append((question, question.read(typed(question, rng))))
                            break
                        except ValueError:
                            continue
                action = envs.core.Action(spec.name, filled(answers))
                ack = game.submit(seat, channel.open.notification_id, action)
                assert ack.status == "accepted", (action, ack)
                filled_in += 1
    assert filled_in > 15
