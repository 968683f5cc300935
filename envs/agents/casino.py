"""The deals of the casino campers for scripted participants, cached by the seat's order of priorities."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from envs.agents import division
from envs.agents.deals import Deals
from scenarios.casino import COUNTS, ITEMS, ORDERS, OUTSIDE, TOTAL, Order, points_of


def deals(briefing: Mapping[str, Any]) -> Deals:
    """The deals of a seat, from its briefing."""
    return _deals(tuple(briefing["priorities"]))


@lru_cache(maxsize=len(ORDERS))
def _deals(order: Order) -> Deals:
    values = points_of(order)
    first, second, third = order
    return division.deals(
        ITEMS,
        COUNTS,
        values,
        TOTAL,
        lambda: [points_of(other) for other in ORDERS],
        secrets=[f"I want {first} most, then {second}, and {third} least."]
        + [f"A package of {item} is worth {value} points to me." for item, value in zip(ITEMS, values, strict=True)],
        plurals=ITEMS,
        outside=OUTSIDE / TOTAL,
    )
