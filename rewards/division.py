"""What the games of dividing items share in scoring: which bundles there can be, and what a division pays.

An agreement names what a or b takes, or both: `{"a": {"book": 1, "hat": 2, "ball": 0}}`. The maths is in
`allocation.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from rewards import allocation
from rewards.allocation import Bundle, Game
from rewards.core import SeatScore
from rewards.curve import curve
from scenarios.errors import DataError
from scenarios.jsonfile import is_int, shown

SEATS = ("a", "b")
MAPPINGS = {dict, MappingProxyType}


def bundle_fault(items: tuple[str, ...], counts: Bundle, bundle: Any) -> str | None:
    """Why something cannot be a seat's part of these counts; None when it can."""
    if type(bundle) not in MAPPINGS and not isinstance(bundle, Mapping):  # the first test is the fast one
        return f"is {shown(bundle)}, expected an object with {', '.join(items[:-1])} and {items[-1]}"
    for item, count in zip(items, counts, strict=True):
        if item not in bundle:
            return f"does not say how many of {item}"
        units = bundle[item]
        if type(units) is not int and not is_int(units):  # the first test is the fast one
            return f"has {shown(units)} of {item}, expected an integer"
        if not 0 <= units <= count:
            return f"has {shown(units)} of {item}, expected 0 to {count}"
    if len(bundle) > len(items):
        return f"has an unknown item {shown(next(key for key in bundle if key not in items))}"
    return None


def bundle_of_a(items: tuple[str, ...], counts: Bundle, agreement: Any) -> Bundle:
    """What a takes by an agreement that names either seat's part or both. Raises `DataError`."""
    if not isinstance(agreement, Mapping) or not agreement:
        raise DataError(f"agreement is {shown(agreement)}, expected an object with what a or b takes")
    for seat, bundle in agreement.items():
        if seat not in SEATS:
            raise DataError(f"agreement names {shown(seat)}, expected a or b")
        fault = bundle_fault(items, counts, bundle)
        if fault:
            raise DataError(f"agreement: {seat}'s part {fault}")
    parts = {seat: tuple(bundle[item] for item in items) for seat, bundle in agreement.items()}
    if len(parts) == 2 and allocation.rest(counts, parts["a"]) != parts["b"]:
        raise DataError(f"agreement: the parts do not add up to the counts {counts}")
    return parts["a"] if "a" in parts else allocation.rest(counts, parts["b"])


@lru_cache(maxsize=1 << 16)
def paid(game: Game, taken: Bundle | None, outside: int) -> tuple[SeatScore, SeatScore, Mapping[str, float]]:
    """Both seats' scores and the measures when a takes `taken`, or when each gets `outside` points without a deal;
    computed once per content."""
    facts = allocation.analyse(game)
    if taken is None:
        a = b = outside
    else:
        a = allocation.points(game.a, taken)
        b = allocation.points(game.b, allocation.rest(game.counts, taken))
    seats = [
        SeatScore(raw, raw / game.total, m, curve(raw / game.total, m))
        for raw, m in ((a, facts.reference_a), (b, facts.reference_b))
    ]
    return seats[0], seats[1], allocation.efficiency(game, a, b)
