"""The deals of Deal or No Deal for scripted participants, cached by counts and own values."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import product
from typing import Any

from envs.agents import division
from envs.agents.deals import Deals
from envs.division import worth
from scenarios.dnd import ITEMS, TOTAL, Triple, triple


def deals(briefing: Mapping[str, Any]) -> Deals:
    """The deals of a seat, from its briefing."""
    return _deals(triple(briefing["counts"]), triple(briefing["values"]))


@lru_cache(maxsize=4096)
def _deals(counts: Triple, values: Triple) -> Deals:
    (a, x), (b, y), (c, z) = zip(ITEMS, values, strict=True)
    return division.deals(
        ITEMS,
        counts,
        values,
        TOTAL,
        lambda: conceivable(counts, values),
        secrets=[f"{a.capitalize()} {x}, {b} {y}, {c} {z}, that is my value."]
        + [f"One {item} is worth {value} to me." for item, value in zip(ITEMS, values, strict=True)],
        plurals=[f"{item}{'s' if count > 1 else ''}" for item, count in zip(ITEMS, counts, strict=True)],
    )


@lru_cache(maxsize=4096)
def conceivable(counts: Triple, values: Triple) -> list[tuple[int, ...]]:
    """The values that the counterpart may have: worth 10 in all, every item worth something to somebody."""
    found = []
    for other in product(*(range(TOTAL // count + 1) for count in counts)):
        pairs = list(zip(values, other, strict=True))
        if worth(other, counts) == TOTAL and all(x or y for x, y in pairs) and any(x and y for x, y in pairs):
            found.append(other)
    return found
