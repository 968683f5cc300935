"""The price corridor on the worked numbers, and what it refuses."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.core import score
from rewards.corridor import shares
from scenarios.core import Scenario
from scenarios.errors import DataError


def craigslist(target=209, listed=275):
    return Scenario.from_json({"listing_price": listed, "buyer_target": target}, lenient=True, env="craigslist")


def market(seller=60, buyer=90):
    return Scenario.from_json({"reservation": {"seller": seller, "buyer": buyer}}, lenient=True, env="marketplace")


def paid(scenario, price):
    found = score(scenario, {"status": "agreement", "agreement": {"price": price}})
    return found.seats["buyer"].reward, found.seats["seller"].reward


@pytest.mark.parametrize(
    ("price", "buyer", "seller"),
    [
        (190, 1, 0),  # below the target: all that a buyer can get
        (209, 1, 0),
        (275, 0, 1),
        (300, 0, 1),  # above the listing price
        (250, 0.378788, 0.621212),  # (275 - 250) / (275 - 209) = 25 / 66
    ],
)
def test_a_listing_at_275_with_a_target_of_209_pays(price, buyer, seller):
    assert paid(craigslist(), price) == pytest.approx((buyer, seller), abs=5e-7)


@pytest.mark.parametrize(("price", "buyer"), [(60, 1), (90, 0), (120, 0), (50, 1), (70, 2 / 3)])
def test_the_marketplace_pays_the_place_between_the_reservations(price, buyer):
    assert paid(market(), price) == pytest.approx((buyer, 1 - buyer))


@pytest.mark.parametrize("status", ["walk_away", "timeout", "aborted"])
@pytest.mark.parametrize("scenario", [craigslist(), market()])
def test_no_deal_pays_nothing(scenario, status):
    found = score(scenario, {"status": status})
    assert {(got.raw, got.utility, got.reference, got.reward) for got in found.seats.values()} == {(0, 0, None, 0)}
    assert found.measures["pareto_distance"] == pytest.approx(math.sqrt(0.5))  # from (0, 0) to r_buyer + r_seller = 1
    assert found.measures["joint_share"] == found.measures["nash_share"] == 0


def test_a_deal_in_the_corridor_is_on_the_frontier_and_the_middle_is_the_nash_point():
    found = score(market(), {"status": "agreement", "agreement": {"price": 75}})
    assert found.measures == {"pareto_distance": 0, "joint_share": 1, "nash_share": 1, "outcome_optimality": 0.5}
    assert found.seats["buyer"].raw == 75


@given(price=st.integers(1, 10**6), low=st.integers(1, 10**5), width=st.integers(1, 10**5))
def test_both_shares_lie_in_the_unit_interval_and_add_up_to_one(price, low, width):
    buyer, seller = shares(price / 100, low / 100, (low + width) / 100)
    assert 0 <= buyer <= 1
    assert 0 <= seller <= 1
    assert buyer + seller == pytest.approx(1)


@pytest.mark.parametrize(
    ("agreement", "reason"),
    [
        (190, 'agreement is 190, expected an object like {"price": 190}'),
        ({}, "agreement does not name a price"),
        ({"price": -5}, "agreement price is -5, expected more than 0"),
        ({"price": 0}, "agreement price is 0, expected more than 0"),
        ({"price": "190"}, "agreement price is '190', expected a number"),
        ({"price": True}, "agreement price is True, expected a number"),
        ({"price": float("nan")}, "agreement price is nan, expected a number"),
        ({"price": None}, "agreement price is None, expected a number"),
        ({"price": 1.005}, "agreement price is 1.005, expected at most two decimals"),
        ({"price": 1e12}, "expected more than 0 and at most 1,000,000,000"),
        ({"price": 190, "sides": ""}, "agreement has an unknown field 'sides'"),
    ],
)
@pytest.mark.parametrize("scenario", [craigslist(), market()])
def test_what_is_no_price_is_refused_with_its_reason(scenario, agreement, reason):
    with pytest.raises(DataError, match=re.escape(reason)):
        score(scenario, {"status": "agreement", "agreement": agreement})
