"""Means and bootstrap intervals of game results; pure functions, seeded, vectorised.

An interval is the percentile bootstrap of the mean (Efron 1979): resample the games with replacement, take the
mean, read the outer percentiles. The paired form does so with the differences b − a of games that both policies
played, so that a scenario's luck cancels. Games of one scenario are alike; `cluster` resamples whole groups of them
(for example scenarios) instead of single games, which gives the wider, more careful interval.
Legend: N games, C clusters, D draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import numpy as np

K = TypeVar("K", bound=Hashable)
DRAWS = 10_000
CHUNK = 4_000_000  # resampled values held at once


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its interval; n is the number of games. All are NaN where there are none."""

    mean: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def mean(values: Sequence[float]) -> float:
    """The plain mean; NaN of nothing."""
    return math.fsum(values) / len(values) if len(values) else math.nan


def sample_sd(values: Sequence[float]) -> float:
    """The standard deviation with n − 1; NaN of fewer than two."""
    if len(values) < 2:
        return math.nan
    middle = mean(values)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1))


def interval(
    values: Sequence[float],
    *,
    clusters: Sequence[Hashable] | None = None,
    seed: int = 0,
    level: float = 0.95,
    draws: int = DRAWS,
) -> Interval:
    """The mean of `values` with its bootstrap interval; `clusters` names each value's group."""
    assert clusters is None or len(clusters) == len(values), "one cluster name a value"
    if not len(values):
        return Interval(math.nan, math.nan, math.nan, 0)
    import numpy as np

    data = np.asarray(values, dtype=np.float64)  # (N,)
    if clusters is None:
        which = np.arange(len(data))  # (N,)
    else:
        names = {name: number for number, name in enumerate(dict.fromkeys(clusters))}
        which = np.array([names[name] for name in clusters])  # (N,)
    sums, counts = np.bincount(which, data), np.bincount(which)  # (C,)
    means = _resampled(sums, counts, np.random.default_rng(seed), draws)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(mean(values), float(low), float(high), len(values))


def paired_interval(
    a: Mapping[K, float],
    b: Mapping[K, float],
    *,
    cluster: Callable[[K], Hashable] | None = None,
    seed: int = 0,
    level: float = 0.95,
    draws: int = DRAWS,
) -> Interval:
    """The mean of b − a over the games (keys) that both have, with its paired bootstrap interval."""
    shared = [key for key in a if key in b]
    differences = [b[key] - a[key] for key in shared]
    clusters = [cluster(key) for key in shared] if cluster else None
    return interval(differences, clusters=clusters, seed=seed, level=level, draws=draws)


def wins(a: Mapping[K, float], b: Mapping[K, float]) -> dict[str, int]:
    """How often b was better, worse or the same in the games that both have: {"wins", "losses", "ties"}."""
    signs = [(b[key] > a[key]) - (b[key] < a[key]) for key in a if key in b]
    return {"wins": signs.count(1), "losses": signs.count(-1), "ties": signs.count(0)}


def _resampled(sums: np.ndarray, counts: np.ndarray, generator: np.random.Generator, draws: int) -> Any:
    """The mean of each of `draws` resamples of the clusters: (D,)."""
    import numpy as np

    size = len(sums)
    rows = max(1, CHUNK // size)
    means = []
    for start in range(0, draws, rows):
        picked = generator.integers(0, size, size=(min(rows, draws - start), size))  # (rows, C)
        means.append(sums[picked].sum(axis=1) / counts[picked].sum(axis=1))
    return np.concatenate(means)
