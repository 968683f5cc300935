"""How a job interview is paid: utility through the difficulty-aware curve; no deal pays 0.

All 9,920 deals are scored at once, in the order salary, weekly_holiday, position, workplace, company (each in listed
order). Reference: d* = argmax of min(u_worker, u_recruiter); ties (within 1e-9) go to the larger sum, then to the
first deal; each seat's m is its utility of d*. Found once per scenario, by its content.

    D deals
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rewards.core import Score, SeatScore, status_of
from rewards.curve import curve
from scenarios.core import Scenario
from scenarios.errors import DataError
from scenarios.job_interview import (
    BOUNDS,
    COMPANIES,
    ISSUES,
    OPTIONS,
    POSITIONS,
    SEATS,
    WORKPLACES,
    deal_fault,
    numbers,
)

SHAPE = tuple(
    BOUNDS[issue][1] - BOUNDS[issue][0] + 1 if issue in BOUNDS else len(OPTIONS[issue]) for issue in ISSUES
)  # 31, 5, 4, 4, 4
DEALS = int(np.prod(SHAPE))  # 9,920
TIE = 1e-9  # utilities closer than this are equal
PLACES = {issue: {name: i for i, name in enumerate(names)} for issue, names in OPTIONS.items()}

Numbers = tuple[float, ...]  # of one seat, see `scenarios.job_interview.numbers`


class Analysis(NamedTuple):
    """All that scoring needs to know of a game."""

    references: tuple[float, float]  # m of worker and recruiter
    best: int  # d*
    frontier: np.ndarray  # (n, 2): the Pareto-optimal utilities
    max_joint: float
    max_nash: float


def score(scenario: Scenario, outcome: Mapping[str, Any]) -> Score:
    """Utility, reference and reward of both seats. Raises `DataError` for an impossible outcome."""
    status = status_of(outcome, SEATS)
    seats = numbers(scenario.fields)
    z = (0.0, 0.0)
    if status == "agreement":
        fault = deal_fault(outcome["agreement"])
        if fault:
            raise DataError(f"agreement {fault}")
        number = number_of(outcome["agreement"])
        z = (utility(seats[0], "worker", number), utility(seats[1], "recruiter", number))
    facts = analyse(seats)
    scored = {seat: SeatScore(u, u, m, curve(u, m)) for seat, u, m in zip(SEATS, z, facts.references, strict=True)}
    return Score("job_interview", status, scored, efficiency(facts, *z))


def number_of(deal: Mapping[str, Any]) -> int:
    """The number of a (legal) deal, from 0."""
    found = 0
    for issue, size in zip(ISSUES, SHAPE, strict=True):
        place = deal[issue] - BOUNDS[issue][0] if issue in BOUNDS else PLACES[issue][deal[issue]]
        found = found * size + place
    return found


def deal_of(number: int) -> dict[str, Any]:
    """The inverse of `number_of`."""
    places = np.unravel_index(number, SHAPE)
    return {
        issue: BOUNDS[issue][0] + int(place) if issue in BOUNDS else OPTIONS[issue][int(place)]
        for issue, place in zip(ISSUES, places, strict=True)
    }


def utility(given: Numbers, seat: str, number: int) -> float:
    """A seat's utility of one deal, the same to the last bit as in `utilities`."""
    salary, holiday, position, workplace, company = contributions(given, seat, number)
    return min(max(salary + holiday + position + workplace + company, 0.0), 1.0)


def contributions(given: Numbers, seat: str, number: int) -> tuple[float, float, float, float, float]:
    """What each issue adds to a seat's utility of one deal."""
    number, company = divmod(number, len(COMPANIES))
    number, workplace = divmod(number, len(WORKPLACES))
    number, position = divmod(number, len(POSITIONS))
    salary, holiday = divmod(number, SHAPE[1])
    places, companies, titles = _parts(given)
    return (
        given[0] * _share(salary, SHAPE[0], seat),
        given[1] * _share(holiday, SHAPE[1], seat),
        given[2] * titles[company][position],
        given[3] * places[workplace],
        given[4] * companies[company],
    )


def utilities(given: Numbers, seat: str) -> np.ndarray:
    """A seat's utility of every deal: (D,)."""
    salary, holiday, position, workplace, company = np.ix_(*(np.arange(size) for size in SHAPE))
    places, companies, titles = (np.array(part) for part in _parts(given))
    found = (
        given[0] * _share(salary, SHAPE[0], seat)
        + given[1] * _share(holiday, SHAPE[1], seat)
        + given[2] * titles[company, position]
        + given[3] * places[workplace]
        + given[4] * companies[company]
    )
    return np.clip(found, 0.0, 1.0).ravel()


@lru_cache(maxsize=4096)
def analyse(seats: tuple[Numbers, ...]) -> Analysis:
    """References, frontier and maxima of a game; computed once per content."""
    worker, recruiter = (utilities(given, seat) for given, seat in zip(seats, SEATS, strict=True))
    worse, joint = np.minimum(worker, recruiter), worker + recruiter
    tied = np.flatnonzero(worse >= worse.max() - TIE)
    tied = tied[joint[tied] >= joint[tied].max() - TIE]
    best = int(tied[0])
    order = np.lexsort((-recruiter, -worker))
    highest = np.maximum.accumulate(recruiter[order])
    optimal = order[recruiter[order] > np.concatenate(([-1.0], highest[:-1]))]
    return Analysis(
        (float(worker[best]), float(recruiter[best])),
        best,
        np.stack([worker[optimal], recruiter[optimal]], axis=1),
        float(joint.max()),
        float((worker * recruiter).max()),
    )


def efficiency(facts: Analysis, worker: float, recruiter: float) -> dict[str, float]:
    """How good the utilities are for both seats together, as in `allocation.efficiency`."""
    away = np.hypot(facts.frontier[:, 0] - worker, facts.frontier[:, 1] - recruiter)
    return {
        "pareto_distance": float(away.min()),
        "joint_share": (worker + recruiter) / facts.max_joint if facts.max_joint else 0.0,
        "nash_share": worker * recruiter / facts.max_nash if facts.max_nash else 0.0,
    }


def _share(place: Any, size: int, seat: str) -> Any:
    """How much of the range is the seat's: rising for the worker, falling for the recruiter."""
    share = place / (size - 1)
    return share if seat == "worker" else 1 - share


def _parts(given: Numbers) -> tuple[Numbers, Numbers, tuple[Numbers, ...]]:
    """Values of workplaces, of companies, of positions at each company."""
    places, companies, titles = given[5:9], given[9:13], given[13:]
    return places, companies, tuple(titles[i : i + len(POSITIONS)] for i in range(0, len(titles), len(POSITIONS)))
