"""How the casino campers are paid: points over 36 through the difficulty-aware curve.

Walking away pays `OUTSIDE` points to each seat, through the same curve; a timeout and an aborted episode pay 0.
Beside the efficiency of every division, `nash_surplus` says how much of what could be gained over walking away was
gained: the product of both seats' gains over its largest value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rewards import allocation, division
from rewards.core import Score, status_of
from scenarios.casino import COUNTS, ITEMS, OUTSIDE, SEATS, TOTAL, points_of
from scenarios.core import Scenario


def score(scenario: Scenario, outcome: Mapping[str, Any]) -> Score:
    """Points, utility, reference and reward of both seats. Raises `DataError` for an impossible outcome."""
    status = status_of(outcome, SEATS)
    game = game_of(scenario)
    taken = division.bundle_of_a(ITEMS, COUNTS, outcome["agreement"]) if status == "agreement" else None
    a, b, measures = division.paid(game, taken, OUTSIDE if status == "walk_away" else 0)
    surplus = nash_surplus(game, int(a.raw), int(b.raw))
    return Score("casino", status, {"a": a, "b": b}, {**measures, "nash_surplus": surplus})


def game_of(scenario: Scenario) -> allocation.Game:
    """The scenario's numbers."""
    priorities = scenario.fields["priorities"]
    return allocation.Game(COUNTS, points_of(tuple(priorities["a"])), points_of(tuple(priorities["b"])), TOTAL)


def nash_surplus(game: allocation.Game, a: int, b: int) -> float:
    """The normalised Nash surplus of the points (a, b): 1 at its largest, 0 where a seat gains nothing."""
    most = max(_gains(x, y) for x, y in allocation.analyse(game).frontier)
    return _gains(a, b) / most


def _gains(a: int, b: int) -> int:
    return max(a - OUTSIDE, 0) * max(b - OUTSIDE, 0)
