"""The deals of a job interview for scripted participants, cached by seat, weights and option values.

What the counterpart's utility may be is not a list of tables but a distribution of the numbers in which it is linear
(`Features`): its weight times its values, of salary, holiday, each workplace, and each position with its company.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import permutations, product
from random import Random
from typing import Any

import numpy as np

from envs.agents.beliefs import Features
from envs.agents.deals import Deals
from envs.job_interview import deal
from rewards.job_interview import DEALS, SHAPE, contributions, number_of, utilities
from scenarios.job_interview import (
    COMPANIES,
    ISSUES,
    MOST_LEFT,
    OPTIONS,
    POSITIONS,
    STEPS,
    WORKPLACES,
    drawn_weights,
    seat_numbers,
)

GUESSED_WEIGHT = 1 / len(ISSUES)  # of every issue, by a uniform guess
DRAWN = 2000  # weights from which their moments are taken
JOBS = np.arange(len(COMPANIES) * len(POSITIONS))  # a company and a position there
NAMES = ("salary", "holidays", *OPTIONS)


def deals(briefing: Mapping[str, Any]) -> Deals:
    """The deals of a seat, from its briefing."""
    return _deals(briefing["seat"], seat_numbers(briefing["weights"], briefing["options"]))


class Numbered(Sequence[Any]):
    """What belongs to each deal, made when it is asked for."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self._make = make

    def __len__(self) -> int:
        return DEALS

    def __getitem__(self, number: Any) -> Any:
        return self._make(number)


@lru_cache(maxsize=512)
def _deals(seat: str, given: tuple[float, ...]) -> Deals:
    other = "recruiter" if seat == "worker" else "worker"
    return Deals(
        offers=Numbered(deal),
        mine=utilities(given, seat),
        guess=_numeric(other),
        guessed=_numeric(seat),
        find=number_of,
        theirs=lambda: plausible(other, given),
        secrets=[
            f"The {name} is {100 * weight:.3g} percent of it for me."
            for name, weight in zip(NAMES, given[: len(ISSUES)], strict=True)
        ],
        about=Numbered(lambda number: _main(contributions(given, seat, number))),
        speech="job",
    )


def _main(adds: Sequence[float]) -> str:
    return f"the {NAMES[max(range(len(adds)), key=adds.__getitem__)]}"


@cache
def _numeric(seat: str) -> np.ndarray:
    """What salary and holiday give a seat, by a uniform guess of their weights: (D,). The rest is anybody's guess."""
    weights = [GUESSED_WEIGHT] * 2 + [0.0] * (len(ISSUES) - 2)
    return utilities((*weights, *[0.0] * (len(WORKPLACES) + len(COMPANIES) + len(COMPANIES) * len(POSITIONS))), seat)


def plausible(seat: str, opposite: tuple[float, ...]) -> Features:
    """What the utility of somebody in this seat may be, to a counterpart with these numbers, before the first move.

    Weights and values are taken to be drawn as the generator draws them; all that is known is that the best option of
    each is worth next to nothing to the other. A feature is worth Σ_i w_i z_i over the issues i, with z_i its value in
    issue i; weights and the values of different issues do not depend on each other.
    """
    features = 2 + len(WORKPLACES) + len(JOBS)
    means = np.zeros((len(ISSUES), features))  # E[z_i]
    squares = np.zeros((len(ISSUES), features, features))  # E[z_i z_i']
    for i in (0, 1):  # salary and holiday
        means[i, i] = squares[i, i, i] = 1
    places, jobs, firms = slice(2, 6), slice(6, features), JOBS // len(POSITIONS)
    (place, place2), (company, company2), *titles = (_moments(opposite[i : i + 4]) for i in range(5, len(opposite), 4))
    means[3, places], squares[3, places, places] = place, place2
    means[4, jobs], squares[4, jobs, jobs] = company[firms], company2[np.ix_(firms, firms)]
    means[2, jobs] = title = np.concatenate([mean for mean, _ in titles])
    alike = np.outer(title, title)  # positions at two companies; at one company:
    for i, (_, square) in enumerate(titles):
        alike[np.ix_(firms == i, firms == i)] = square
    squares[2, jobs, jobs] = alike

    weight, same, two = _weight_moments()
    total = means.sum(0)
    second = same * squares.sum(0) + two * (np.outer(total, total) - means.T @ means)
    return Features(_columns(seat), weight * total, second - weight**2 * np.outer(total, total))


@cache
def _columns(seat: str) -> np.ndarray:
    """The features of every deal: (D, F)."""
    salary, holiday, position, workplace, company = np.indices(SHAPE).reshape(len(SHAPE), -1)
    shares = [salary / (SHAPE[0] - 1), holiday / (SHAPE[1] - 1)]
    columns = [share if seat == "worker" else 1 - share for share in shares]
    columns += [workplace == i for i in range(len(WORKPLACES))]
    columns += [len(POSITIONS) * company + position == i for i in JOBS]
    return np.stack(columns, axis=1).astype(float)


def _moments(opposite: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and second moments of four option values, to somebody with the values `opposite`: (4,), (4, 4)."""
    every = _all_values()
    most = MOST_LEFT / STEPS
    possible = (every[:, np.argmax(opposite)] <= most) & (np.array(opposite)[every.argmax(1)] <= most)
    values = every[possible] if possible.any() else every
    return values.mean(0), values.T @ values / len(values)


@cache
def _all_values() -> np.ndarray:
    """Every way in which four options can be worth 1, 0 and two numbers of tenths between: (n, 4)."""
    tenths = range(1, STEPS)
    found = [row for x, y in product(tenths, tenths) for row in set(permutations((STEPS, 0, x, y)))]
    return np.array(sorted(found)) / STEPS


@cache
def _weight_moments() -> tuple[float, float, float]:
    """E[w_i], E[w_i²] and E[w_i w_j]: they add up to 1 in five weights that are alike."""
    drawn = [drawn_weights(Random(number)).values() for number in range(DRAWN)]
    same = float(np.mean([weight**2 for weights in drawn for weight in weights]))
    issues = len(ISSUES)
    return 1 / issues, same, (1 - issues * same) / (issues * (issues - 1))
