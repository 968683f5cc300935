"""What the campers are paid, by the worked table and by properties over all orders and divisions."""

import json
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.core import score
from scenarios.core import Scenario
from scenarios.errors import DataError

ITEMS = ("food", "water", "firewood")
ORDERS = [list(order) for order in permutations(ITEMS)]
UP, DOWN = ["food", "water", "firewood"], ["firewood", "water", "food"]


def scenario(a, b):
    return Scenario.from_json({"priorities": {"a": list(a), "b": list(b)}}, lenient=True, env="casino")


def bundle(food, water, firewood):
    return {"food": food, "water": water, "firewood": firewood}


def deal(**parts):
    return {"status": "agreement", "agreement": {seat: bundle(*part) for seat, part in parts.items()}}


LEFT = {"status": "walk_away", "by": "a"}


@pytest.mark.parametrize(
    ("a", "b", "m"),
    [
        (UP, DOWN, 0.638889),  # 23 of 36: all of the first, two of the second
        (UP, UP, 0.5),
        (UP, ["water", "food", "firewood"], 0.583333),
    ],
)
def test_references_have_their_worked_numbers(a, b, m):
    seats = score(scenario(a, b), {"status": "aborted"}).seats
    assert [seat.reference for seat in seats.values()] == pytest.approx([m, m], abs=1e-6)


def test_walking_away_pays_five_points_through_the_curve():
    found = score(scenario(UP, DOWN), LEFT)
    assert [seat.raw for seat in found.seats.values()] == [5, 5]
    assert [seat.utility for seat in found.seats.values()] == [5 / 36, 5 / 36]
    assert [seat.reward for seat in found.seats.values()] == pytest.approx([0.044521] * 2, abs=1e-6)
    assert found.measures["nash_surplus"] == 0


@pytest.mark.parametrize("status", ["timeout", "aborted"])
def test_an_episode_without_an_end_pays_nothing(status):
    found = score(scenario(UP, DOWN), {"status": status})
    assert [(seat.raw, seat.reward) for seat in found.seats.values()] == [(0, 0.0), (0, 0.0)]
    assert found.measures["nash_surplus"] == 0


def test_a_deal_is_worth_five_four_and_three_points_a_package():
    # a 3·5 + 1·4 = 19; b 2·4 + 3·5 = 23
    found = score(scenario(UP, DOWN), deal(a=(3, 1, 0)))
    assert [seat.raw for seat in found.seats.values()] == [19, 23]
    assert [seat.utility for seat in found.seats.values()] == [19 / 36, 23 / 36]


@pytest.mark.parametrize(
    ("taken", "surplus"),
    [
        ((3, 1, 0), 1.0),  # gains 19 - 5 = 14 and 23 - 5 = 18: 252 is the largest product
        ((2, 1, 1), 192 / 252),  # a 10 + 4 + 3 = 17, b 3 + 8 + 10 = 21: 12 · 16
        ((3, 3, 3), 0.0),  # b gains nothing
        ((1, 0, 0), 0.0),  # a has 5: no more than by walking away
        ((0, 0, 0), 0.0),  # a is 5 points below: no credit for the other's gain
    ],
)
def test_the_nash_surplus_is_the_share_of_the_largest_product_of_gains(taken, surplus):
    assert score(scenario(UP, DOWN), deal(a=taken)).measures["nash_surplus"] == pytest.approx(surplus)


@given(a=st.sampled_from(ORDERS), b=st.sampled_from(ORDERS), taken=st.tuples(*[st.integers(0, 3)] * 3))
def test_rewards_and_measures_lie_between_zero_and_one_whoever_names_the_deal(a, b, taken):
    rest = tuple(3 - units for units in taken)
    found = score(scenario(a, b), deal(a=taken))
    assert found == score(scenario(a, b), deal(b=rest)) == score(scenario(a, b), deal(a=taken, b=rest))
    assert all(0 <= seat.reward <= 1 for seat in found.seats.values())
    assert all(0 <= value <= 1 for value in found.measures.values())
    assert sum(seat.raw for seat in found.seats.values()) <= 45


@pytest.mark.parametrize("a", ORDERS)
@pytest.mark.parametrize("b", ORDERS)
def test_some_division_is_the_best_product_of_gains(a, b):
    every = [(x, y, z) for x in range(4) for y in range(4) for z in range(4)]
    best = max(score(scenario(a, b), deal(a=taken)).measures["nash_surplus"] for taken in every)
    assert best == pytest.approx(1)


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (deal(a=(4, 0, 0)), "a's part has 4 of food, expected 0 to 3"),
        (deal(a=(-1, 0, 0)), "a's part has -1 of food, expected 0 to 3"),
        (deal(b=(1.5, 0, 0)), "b's part has 1.5 of food, expected an integer"),
        (deal(a=(1, 1, 1), b=(2, 2, 1)), "the parts do not add up to the counts (3, 3, 3)"),
        ({"status": "agreement", "agreement": {"a": {"food": 1, "water": 1}}}, "does not say how many of firewood"),
        ({"status": "agreement", "agreement": {"a": {"book": 1}}}, "does not say how many of food"),
        ({"status": "agreement", "agreement": {"a": "all"}}, "expected an object with food, water and firewood"),
        ({"status": "agreement", "agreement": {"price": 9}}, "names 'price', expected a or b"),
        ({"status": "walk_away", "by": "c"}, "by is 'c'"),
    ],
)
def test_an_impossible_outcome_is_refused_with_its_reason(outcome, reason):
    with pytest.raises(DataError) as error:
        score(scenario(UP, DOWN), outcome)
    assert reason in str(error.value)


def test_a_score_prints_as_the_documented_json():
    printed = score(scenario(UP, DOWN), LEFT).to_json()
    assert json.loads(json.dumps(printed)) == printed
    assert set(printed) == {"env", "status", "seats", "measures"}
    assert set(printed["measures"]) == {"pareto_distance", "joint_share", "nash_share", "nash_surplus"}
