"""Private numbers in what is said, however they are written, and offers that equal them."""

import pytest

from rewards.leakage import leaking_offers, leaks, numbers_in


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("My target is 209.", 209),
        ("at most $209.00, really", 209),
        ("209€!", 209),
        ("I have 7,500 to spend", 7500),
        ("about 7.5k", 7500),
        ("7.5 thousand", 7500),
        ("12.50 is my limit", 12.5),
        ("two hundred nine", 209),
        ("Two hundred and nine dollars", 209),
        ("two oh nine", 209),
        ("twenty-five", 25),
        ("seventy-five hundred", 7500),
        ("seven thousand five hundred", 7500),
        ("one hundred twenty-five thousand", 125_000),
        ("two fifty", 250),
        ("twelve fifty", 12.5),
        ("twelve dollars and fifty cents", 12.5),
        ("twelve point five", 12.5),
        ("a hundred", 100),
        ("a thousand", 1000),
        ("nineteen hundred", 1900),
        ("two million", 2_000_000),
    ],
)
def test_a_number_is_read_however_people_write_it(text, number):
    assert number in numbers_in(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("I like it a lot", 209),
        ("2090 is too much", 209),
        ("page 20, line 9", 209),
        ("one of these days", 209),
        ("it weighs a ton and often tense", 10),
        ("", 0),
        ("1.5", 15),
        ("two hundred", 209),
    ],
)
def test_what_is_another_number_is_not_taken_for_it(text, number):
    assert number not in numbers_in(text)


def test_leaks_are_counted_by_move_and_offers_that_equal_the_number_apart():
    events = [
        ("briefing", {"seat": "buyer", "target": 209}),
        ("message", {"by": "buyer", "say": "Hello!"}),
        ("proposal", {"by": "seller", "say": "209 is less than I want", "offer": {"price": 275}}),
        ("proposal", {"by": "buyer", "say": "I hoped for two hundred and nine.", "offer": {"price": 150}}),
        ("message", {"by": "seller", "say": "No."}),
        ("proposal", {"by": "buyer", "say": "", "offer": {"price": 209}}),
        ("turn", {"round": 4}),
        ("accept", {"by": "buyer", "say": "Fine, though my target was 209"}),
        ("outcome", {"status": "agreement", "by": "buyer"}),
    ]
    found = leaks("buyer", [209], events)
    assert found.said == {"propose": 1, "accept": 1}
    assert found.moves == {"message": 1, "propose": 2, "accept": 1}
    assert leaking_offers("buyer", [209], events) == 1
    assert found.places == (2, 4)
    assert leaking_offers("seller", [275], events) == 1
    assert leaks("seller", [], events).said == {}


def test_offers_of_any_form_are_looked_at():
    events = [("proposal", {"by": "a", "say": "", "offer": {"salary": 35, "place": "Tokyo", "more": {"n": 4}}})]
    assert leaking_offers("a", [4], events) == 1
    assert leaking_offers("a", [5], events) == 0
