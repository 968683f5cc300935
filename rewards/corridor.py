"""The price corridor: how far a price lies between the one that pays a seat all and the one that pays it nothing.

    r_buyer = clip((p_max - p) / (p_max - p_min), 0, 1)    r_seller = clip((p - p_min) / (p_max - p_min), 0, 1)

No deal pays 0 to both. Prices are money; `raw` is the price of the deal, 0 without one. Utility is the reward; there
is no reference. Source: SocialRL §3.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any

from rewards.core import Score, SeatScore, status_of
from scenarios.errors import DataError
from scenarios.jsonfile import shown
from scenarios.money import amount_fault

SEATS = ("buyer", "seller")


def shares(price: float, low: float, high: float) -> tuple[float, float]:
    """What a deal at `price` pays the buyer and the seller."""
    place = min(max((price - low) / (high - low), 0.0), 1.0)
    return min(max((high - price) / (high - low), 0.0), 1.0), place


def score(env: str, outcome: Mapping[str, Any], low: float, high: float) -> Score:
    """Both seats' scores for a corridor from `low` to `high`. Raises `DataError` for an impossible outcome.

    Measures: `pareto_distance` (every deal in the corridor is on the frontier; without one the distance is √½),
    `joint_share` and `nash_share`, as for the other games.
    """
    status = status_of(outcome, SEATS)
    if status == "agreement":
        price = price_of(outcome["agreement"])
        buyer, seller = shares(price, low, high)
    else:
        price = buyer = seller = 0.0
    seats = {"buyer": SeatScore(price, buyer, None, buyer), "seller": SeatScore(price, seller, None, seller)}
    distance = max(0.0, 1 - buyer - seller) / sqrt(2)
    return Score(
        env,
        status,
        seats,
        {"pareto_distance": distance, "joint_share": buyer + seller, "nash_share": 4 * buyer * seller},
    )


def price_fault(terms: Any) -> str | None:
    """Why something does not name a price, as the end of a sentence; None when it does."""
    if type(terms) is not dict and not isinstance(terms, Mapping):  # the first test is the fast one
        return f'is {shown(terms)}, expected an object like {{"price": 190}}'
    if "price" not in terms:
        return "does not name a price"
    if len(terms) > 1:
        return f"has an unknown field {shown(next(key for key in terms if key != 'price'))}; it has price"
    fault = amount_fault(terms["price"])
    return f"price {fault}" if fault else None


def price_of(agreement: Any) -> float:
    """The price of an agreement. Raises `DataError`."""
    fault = price_fault(agreement)
    if fault:
        raise DataError(f"agreement {fault}")
    return agreement["price"]
