"""What the planner believes of its counterpart: what it values and how it concedes, learned from its moves.

A way to concede is a clock (exponent and floor: aspiration f + (1 - f)(1 - t^e)) or in kind (it gives what it is
given). `Table` holds conceivable utilities one by one, for games whose deals and values can be listed; `Linear` a
normal distribution for each way, for games with thousands of deals whose utility is a sum of parts. Both show the
planner the same: hypotheses with weights, and which deals each would take.

    K ways to concede, H utilities of the counterpart, D deals, F features
"""

from __future__ import annotations

from functools import cache, lru_cache
from math import erfc, exp, log, pi, sqrt
from typing import NamedTuple

import numpy as np

from envs.agents.deals import SLACK, Deals

WAYS: tuple[tuple[float, float], ...] = (  # exponent, floor
    *((e, f) for e in (4.0, 1.0, 0.25) for f in (0.2, 0.3, 0.4)),
    (4.0, 0.6),
)
IN_KIND = (0.9, 0.3)  # first demand and floor of who gives as it is given; the last of the K ways
KIND = 0.25  # how likely that is beforehand
SURPRISE = 0.1  # share of offers that no way explains
REFUSES = 0.03  # chance that an offer worth the aspiration is refused all the same
SOFT = 0.15  # how far from the aspiration a surprising offer is thought to be

SAMPLES = 24  # utilities that stand for a normal distribution
LEVEL = 0.005  # deals whose own utility falls into one such step are alike but for the counterpart
LOOSE = 0.02  # standard deviation of an offer's utility around the aspiration
OTHERS = 256  # deals that stand for all of them
SURE = 3.0  # standard deviations; an offer that is farther off moves the distribution less
RARE = 1e-3  # a refusal that is less likely moves it not at all


class Features(NamedTuple):
    """A utility that is linear: `columns` times a vector of which mean and covariance are known beforehand."""

    columns: np.ndarray  # (D, F)
    mean: np.ndarray  # (F,)
    covariance: np.ndarray  # (F, F)


def belief(deals: Deals) -> Table | Linear:
    """What is believed before the first move."""
    return Linear(deals, deals.theirs) if isinstance(deals.theirs, Features) else Table(deals)


def clocks(time: float) -> list[float]:
    """What each way but the last wants at its own time from 0 to 1."""
    return [f + (1 - f) * (1 - time**e) for e, f in WAYS]


class Table:
    """Weights of all hypotheses, and the planner's own offers, which move those who concede in kind."""

    def __init__(self, deals: Deals) -> None:
        self.theirs, self.mine, self.guessed = _arrays(deals)  # (H, D), (D,), (D,)
        self.deals = np.arange(len(self.mine))  # those that are looked at
        ways = np.array([(1 - KIND) / len(WAYS)] * len(WAYS) + [KIND])
        self.weight = np.repeat(ways[:, None], len(self.theirs), axis=1) / len(self.theirs)  # (K, H)
        self.best_given = np.zeros(len(self.theirs))  # (H,) the most that own offers gave
        self.told = 0  # offers received that have been looked at

    def aspirations(self, time: float) -> np.ndarray:
        """What each hypothesis wants at its own time from 0 to 1: (K, H)."""
        rows = [np.full(len(self.theirs), want) for want in clocks(time)]
        first, floor = IN_KIND
        return np.stack([*rows, np.maximum(floor, first - self.best_given)])

    def made(self, deal: int) -> None:
        """The planner proposes a deal."""
        self.best_given = np.maximum(self.best_given, self.theirs[:, deal])

    def update(self, time: float, refused: int | None, offer: int | None) -> None:
        """The counterpart moved at its `time`: it did not take our offer `refused`, and made `offer`."""
        wants = self.aspirations(time)[:, :, None]  # (K, H, 1)
        if refused is not None:
            accepts = self.theirs[None, :, refused] >= wants[:, :, 0] - SLACK  # (K, H)
            self.weight *= np.where(accepts, REFUSES, 1.0)
        if offer is not None:
            choices = self._choices(wants)  # (K, H, D)
            exact = choices[:, :, offer] / choices.sum(-1)
            far = np.abs(self.theirs[:, offer] - wants[:, :, 0])
            self.weight *= (1 - SURPRISE) * exact + SURPRISE * np.exp(-far / SOFT) / len(self.mine)
        self.weight /= self.weight.sum()

    def accepts(self, time: float) -> np.ndarray:
        """Which of our offers each hypothesis would take at its `time`: (K, H, D)."""
        wants = np.repeat(self.aspirations(time)[:, :, None], len(self.mine), axis=2)
        first, floor = IN_KIND
        wants[-1] = np.maximum(floor, np.minimum(wants[-1], first - self.theirs))
        return self.theirs >= wants - SLACK

    def last_offer(self, least: float) -> np.ndarray:
        """What the last offer of each hypothesis is worth to us, 0 where that is below `least`: (K, H)."""
        choices = self._choices(self.aspirations(1.0)[:, :, None])
        return (choices * np.where(self.mine >= least - SLACK, self.mine, 0.0)).sum(-1) / choices.sum(-1)

    def _choices(self, wants: np.ndarray) -> np.ndarray:
        """Which deals each hypothesis would propose: least to itself, then most to us by a guess: (K, H, D)."""
        theirs = np.where(self.theirs >= wants - SLACK, self.theirs, np.inf)
        least = theirs <= theirs.min(-1, keepdims=True) + SLACK
        generous = np.where(least, self.guessed, -np.inf)
        return generous >= generous.max(-1, keepdims=True) - SLACK


class Linear:
    """For each way a normal distribution of what the features are worth, and how likely the way is.

    An offer says that its utility is about the aspiration of the moment; a refusal that ours is below it, which is
    taken in by the first two moments of the truncated distribution. `SAMPLES` draws stand for each distribution, and
    of deals alike to us only the one that is expected to be best for the counterpart is looked at.
    """

    def __init__(self, deals: Deals, features: Features) -> None:
        ways = len(WAYS) + 1
        self.columns, self.worth = features.columns, np.asarray(deals.mine)  # (D, F), (D,)
        self.means = np.repeat(features.mean[None], ways, axis=0)  # (K, F)
        self.covariances = np.repeat(features.covariance[None], ways, axis=0)  # (K, F, F)
        self.evidence = np.log([(1 - KIND) / len(WAYS)] * len(WAYS) + [KIND])  # (K,)
        self.own: list[int] = []  # our offers
        self.told = 0
        self._order, self._level, self._starts, self._sizes = _levels(deals)
        self._look()

    def made(self, deal: int) -> None:
        """The planner proposes a deal."""
        self.own.append(deal)

    def update(self, time: float, refused: int | None, offer: int | None) -> None:
        """The counterpart moved at its `time`: it did not take our offer `refused`, and made `offer`."""
        first, floor = IN_KIND
        for way, clock in enumerate([*clocks(time), None]):
            best, given = self._best_given(way)
            want = max(floor, first - given) if clock is None else clock
            if refused is not None:
                self._refused(way, self.columns[refused], want)
            if offer is None:
                continue
            row = self.columns[offer]
            if clock is None and best is not None and first - given > floor:
                self._offered(way, row + self.columns[best], first)  # what it asks and what it was given add up
            else:
                self._offered(way, row, want)
        self._look()

    def accepts(self, time: float) -> np.ndarray:
        """Which of our offers each hypothesis would take at its `time`: (K, H, D)."""
        wants = np.repeat(self._aspirations(time)[:, :, None], len(self.mine), axis=2)
        first, floor = IN_KIND
        wants[-1] = np.maximum(floor, np.minimum(wants[-1], first - self.theirs[-1]))
        return self.theirs >= wants - SLACK

    def last_offer(self, least: float) -> np.ndarray:
        """What the last offer of each hypothesis is worth to us, 0 where that is below `least`: (K, H)."""
        above = self._values @ self.columns[_others(len(self.worth))].T - self._aspirations(1.0)[:, :, None]
        near = np.where(above >= -SLACK, np.exp(-above / SOFT), 1e-9)  # (K, H, OTHERS)
        worth = self.worth[_others(len(self.worth))]
        return (near * np.where(worth >= least - SLACK, worth, 0.0)).sum(-1) / near.sum(-1)

    def _aspirations(self, time: float) -> np.ndarray:
        """What each hypothesis wants at its own time from 0 to 1: (K, H)."""
        first, floor = IN_KIND
        given = (self._values[-1] @ self.columns[self.own].T).max(-1) if self.own else np.zeros(SAMPLES)  # (H,)
        return np.stack([*(np.full(SAMPLES, want) for want in clocks(time)), np.maximum(floor, first - given)])

    def _look(self) -> None:
        """Draws hypotheses, and picks the deals that are worth looking at."""
        ways = np.exp(self.evidence - self.evidence.max())
        ways /= ways.sum()
        factors = np.linalg.cholesky(self.covariances + 1e-10 * np.eye(self.columns.shape[1]))  # (K, F, F)
        self._values = self.means[:, None] + _noise(self.columns.shape[1]) @ factors.transpose(0, 2, 1)  # (K, H, F)
        self.weight = np.repeat(ways[:, None], SAMPLES, axis=1) / SAMPLES  # (K, H)
        expected = (self.columns @ (ways @ self.means))[self._order]
        best = np.repeat(np.maximum.reduceat(expected, self._starts), self._sizes)
        hits = np.flatnonzero(expected == best)
        firsts = np.unique(self._level[hits], return_index=True)[1]
        self.deals = self._order[hits[firsts]]
        self.mine = self.worth[self.deals]
        self.theirs = self._values @ self.columns[self.deals].T  # (K, H, D)

    def _best_given(self, way: int) -> tuple[int | None, float]:
        """Our offer that gave most, and how much, as this way expects."""
        if not self.own:
            return None, 0.0
        given = self.columns[self.own] @ self.means[way]
        place = int(given.argmax())
        return self.own[place], float(given[place])

    def _offered(self, way: int, row: np.ndarray, value: float) -> None:
        """The utility of `row` is `value`, as far as this way goes."""
        spread = self.covariances[way] @ row  # (F,)
        variance = float(row @ spread) + LOOSE**2
        miss = value - float(row @ self.means[way])
        usual = exp(-(miss**2) / variance / 2) / sqrt(2 * pi * variance)
        self.evidence[way] += log((1 - SURPRISE) * usual + SURPRISE)
        if miss**2 > SURE**2 * variance:
            variance += miss**2
        self.means[way] += spread * (miss / variance)
        self.covariances[way] -= np.outer(spread, spread) / variance

    def _refused(self, way: int, row: np.ndarray, want: float) -> None:
        """The utility of `row` is below `want`, as far as this way goes."""
        spread = self.covariances[way] @ row  # (F,)
        variance = float(row @ spread) + LOOSE**2
        place = (want - float(row @ self.means[way])) / sqrt(variance)
        below = erfc(-place / sqrt(2)) / 2
        self.evidence[way] += log(below + (1 - below) * REFUSES)
        if below < RARE:
            return
        ratio = exp(-(place**2) / 2) / sqrt(2 * pi) / below
        self.means[way] -= spread * (ratio / sqrt(variance))
        self.covariances[way] -= np.outer(spread, spread) * (ratio * (ratio + place) / variance)


@lru_cache(maxsize=512)
def _levels(deals: Deals) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The deals by own utility, the step of LEVEL that each is in, where each step begins, and how many are in it."""
    worth = np.asarray(deals.mine)
    order = np.argsort(worth, kind="stable")
    level = np.unique(np.floor(worth[order] / LEVEL), return_inverse=True)[1]
    starts = np.flatnonzero(np.diff(level, prepend=-1))
    return order, level, starts, np.diff(starts, append=len(order))


@cache
def _noise(features: int) -> np.ndarray:
    """Fixed draws, as many above as below: (H, F)."""
    half = np.random.default_rng(0).standard_normal((SAMPLES // 2, features))
    return np.concatenate([half, -half])


@cache
def _others(deals: int) -> np.ndarray:
    """Deals that stand for all of them: (OTHERS,)."""
    return np.random.default_rng(0).choice(deals, OTHERS, replace=False)


@lru_cache(maxsize=1024)
def _arrays(deals: Deals) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.array(deals.theirs, dtype=float), np.asarray(deals.mine), deals.guessed
