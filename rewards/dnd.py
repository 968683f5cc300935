"""How Deal or No Deal is paid: points over 10 through the difficulty-aware curve; no deal pays 0.

The agreement names what a or b takes, or both: `{"a": {"book": 1, "hat": 2, "ball": 0}}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from rewards import allocation
from rewards.core import Score, SeatScore, status_of
from rewards.curve import curve
from scenarios.core import Scenario
from scenarios.dnd import ITEMS, SEATS, TOTAL, Triple, triple
from scenarios.errors import DataError
from scenarios.jsonfile import is_int, shown


def score(scenario: Scenario, outcome: Mapping[str, Any]) -> Score:
    """Points, utility, reference and reward of both seats. Raises `DataError` for an impossible outcome."""
    status = status_of(outcome, SEATS)
    counts = triple(scenario.fields["counts"])
    taken = bundle_of_a(counts, outcome["agreement"]) if status == "agreement" else None
    values = scenario.fields["values"]
    a, b, measures = _paid(allocation.Game(counts, triple(values["a"]), triple(values["b"]), TOTAL), taken)
    return Score("dnd", status, {"a": a, "b": b}, dict(measures))


def utility(counts: Triple, values: Triple, bundle: Triple) -> float:
    """What a bundle is worth to a seat with these values, from 0 (nothing) to 1 (everything)."""
    return allocation.points(values, bundle) / allocation.points(values, counts)


def references(scenario: Scenario) -> dict[str, float]:
    """The reference m of each seat."""
    values = scenario.fields["values"]
    game = allocation.Game(triple(scenario.fields["counts"]), triple(values["a"]), triple(values["b"]), TOTAL)
    facts = allocation.analyse(game)
    return {"a": facts.reference_a, "b": facts.reference_b}


def bundle_fault(counts: Triple, bundle: Any) -> str | None:
    """Why something cannot be a seat's part of these counts; None when it can."""
    if type(bundle) is not dict and not isinstance(bundle, Mapping):  # the first test is the fast one
        return f"is {shown(bundle)}, expected an object with book, hat and ball"
    for item, count in zip(ITEMS, counts, strict=True):
        if item not in bundle:
            return f"does not say how many of {item}"
        units = bundle[item]
        if not is_int(units):
            return f"has {shown(units)} of {item}, expected an integer"
        if not 0 <= units <= count:
            return f"has {shown(units)} of {item}, expected 0 to {count}"
    if len(bundle) > len(ITEMS):
        return f"has an unknown item {shown(next(key for key in bundle if key not in ITEMS))}"
    return None


def bundle_of_a(counts: Triple, agreement: Any) -> Triple:
    """What a takes by an agreement that names either seat's part or both. Raises `DataError`."""
    if not isinstance(agreement, Mapping) or not agreement:
        raise DataError(f"agreement is {shown(agreement)}, expected an object with what a or b takes")
    for seat, bundle in agreement.items():
        if seat not in SEATS:
            raise DataError(f"agreement names {shown(seat)}, expected a or b")
        fault = bundle_fault(counts, bundle)
        if fault:
            raise DataError(f"agreement: {seat}'s part {fault}")
    parts = {seat: triple(bundle) for seat, bundle in agreement.items()}
    if len(parts) == 2 and allocation.rest(counts, parts["a"]) != parts["b"]:
        raise DataError(f"agreement: the parts do not add up to the counts {counts}")
    return parts["a"] if "a" in parts else tuple(allocation.rest(counts, parts["b"]))  # type: ignore[return-value]


@lru_cache(maxsize=1 << 16)
def _paid(game: allocation.Game, taken: Triple | None) -> tuple[SeatScore, SeatScore, dict[str, float]]:
    """Both seats' scores and the measures of an allocation, or of no deal; computed once per content."""
    facts = allocation.analyse(game)
    if taken is None:
        a = b = 0
    else:
        a = allocation.points(game.a, taken)
        b = allocation.points(game.b, allocation.rest(game.counts, taken))
    return _seat(a, facts.reference_a), _seat(b, facts.reference_b), allocation.efficiency(game, a, b)


def _seat(raw: int, reference: float) -> SeatScore:
    z = raw / TOTAL
    return SeatScore(raw, z, reference, curve(z, reference))
