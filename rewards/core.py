"""Scores: one reward in [0, 1] for every seat when an episode has ended.

An outcome is a mapping as in an outcome file: `status`, `agreement` (the terms, when there is one) and `by`.
Each environment is a module `rewards/NAME.py` with `score(scenario, outcome) -> Score`. It trusts the scenario
(`Scenario.from_json` has checked it) and checks the outcome, raising `DataError` with a reason of one line.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from scenarios import ENVIRONMENTS
from scenarios.core import Scenario
from scenarios.errors import DataError, UsageError, nearest
from scenarios.jsonfile import shown

STATUSES = ("agreement", "walk_away", "timeout", "aborted")


@dataclass(frozen=True, slots=True)
class SeatScore:
    """What a seat got: points or money, the same as utility in [0, 1], its reference m and the reward."""

    raw: float
    utility: float
    reference: float | None
    reward: float

    def to_json(self) -> dict[str, Any]:
        return {"raw": self.raw, "utility": self.utility, "reference": self.reference, "reward": self.reward}


@dataclass(frozen=True, slots=True)
class Score:
    """All seats' scores, and measures that are reported beside the reward and never trained on."""

    env: str
    status: str
    seats: Mapping[str, SeatScore]
    measures: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        return {
            "env": self.env,
            "status": self.status,
            "seats": {seat: score.to_json() for seat, score in self.seats.items()},
            "measures": dict(self.measures),
        }


def score(scenario: Scenario, outcome: Mapping[str, Any]) -> Score:
    """The score of an outcome of this scenario. Raises `DataError` when the outcome cannot be one."""
    return _module(scenario.env).score(scenario, outcome)


def status_of(outcome: Mapping[str, Any], seats: tuple[str, ...]) -> str:
    """The outcome's status, after checking what all environments share. Raises `DataError`."""
    if type(outcome) is not dict and not isinstance(outcome, Mapping):  # the first test is the fast one
        raise DataError(f"an outcome is a JSON object, got {shown(outcome)}")
    status = outcome.get("status")
    if not isinstance(status, str) or status not in STATUSES:
        got = f"is {shown(status)}" if "status" in outcome else "is missing"
        raise DataError(f"status {got}, expected {', '.join(STATUSES[:-1])} or {STATUSES[-1]}")
    agreement = outcome.get("agreement")
    if status == "agreement" and agreement is None:
        raise DataError("agreement is missing, though the status is agreement")
    if status != "agreement" and agreement is not None:
        raise DataError(f"agreement is {shown(agreement)}, though the status is {status}")
    by = outcome.get("by")
    if by is not None and by not in seats:
        raise DataError(f"by is {shown(by)}, expected {' or '.join(seats)}")
    return status


@cache
def _module(env: str) -> Any:
    if env not in ENVIRONMENTS:
        raise UsageError(f"unknown environment {shown(env)}; {nearest(str(env), ENVIRONMENTS)}")
    return importlib.import_module(f"rewards.{env}")
