"""How Deal or No Deal is paid: points over 10 through the difficulty-aware curve; no deal pays 0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rewards import allocation, division
from rewards.core import Score, status_of
from scenarios.core import Scenario
from scenarios.dnd import ITEMS, SEATS, TOTAL, Triple, triple


def score(scenario: Scenario, outcome: Mapping[str, Any]) -> Score:
    """Points, utility, reference and reward of both seats. Raises `DataError` for an impossible outcome."""
    status = status_of(outcome, SEATS)
    game = game_of(scenario)
    taken = division.bundle_of_a(ITEMS, game.counts, outcome["agreement"]) if status == "agreement" else None
    a, b, measures = division.paid(game, taken, 0)
    return Score("dnd", status, {"a": a, "b": b}, dict(measures))


def game_of(scenario: Scenario) -> allocation.Game:
    """The scenario's numbers."""
    values = scenario.fields["values"]
    return allocation.Game(triple(scenario.fields["counts"]), triple(values["a"]), triple(values["b"]), TOTAL)


def utility(counts: Triple, values: Triple, bundle: Triple) -> float:
    """What a bundle is worth to a seat with these values, from 0 (nothing) to 1 (everything)."""
    return allocation.points(values, bundle) / allocation.points(values, counts)


def references(scenario: Scenario) -> dict[str, float]:
    """The reference m of each seat."""
    facts = allocation.analyse(game_of(scenario))
    return {"a": facts.reference_a, "b": facts.reference_b}
