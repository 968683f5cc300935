"""Dividing counted items between seats a and b: every division, the frontier, envy, the reference, efficiency.

An allocation is named by what a takes; b gets the rest. Points are integers, utilities points / `Game.total`.
Used by every environment that divides items (dnd: total 10, casino: 3 of each and total 36).

Reference (SocialRL §3): among the allocations that are Pareto-optimal and envy-free, m_i is the largest s_i / S.
If there is none: both references come from the Pareto-optimal allocation with the smallest max-of-both envy;
ties go to the larger s_a + s_b, then the larger min(s_a, s_b), then a's lexicographically smaller bundle.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import hypot
from typing import NamedTuple

Bundle = tuple[int, ...]


class Game(NamedTuple):
    """Counts and both seats' values of the items, in one order; `total` are the points whose utility is 1."""

    counts: Bundle
    a: Bundle
    b: Bundle
    total: int


class Allocation(NamedTuple):
    """What a takes, and the points of both seats."""

    bundle: Bundle
    a: int
    b: int


class Analysis(NamedTuple):
    """All that scoring needs to know of a game."""

    reference_a: float  # m, in utility
    reference_b: float
    frontier: tuple[tuple[int, int], ...]  # Pareto-optimal points (s_a, s_b), each once
    max_joint: int  # max s_a + s_b
    max_nash: int  # max s_a · s_b


def points(values: Bundle, bundle: Bundle) -> int:
    """What a bundle is worth."""
    return sum(value * units for value, units in zip(values, bundle, strict=True))


def rest(counts: Bundle, bundle: Bundle) -> Bundle:
    """What the other seat gets."""
    return tuple(count - units for count, units in zip(counts, bundle, strict=True))


def allocations(game: Game) -> list[Allocation]:
    """Every allocation, in lexicographic order of a's bundle."""
    bundles = product(*(range(count + 1) for count in game.counts))
    return [Allocation(x, points(game.a, x), points(game.b, rest(game.counts, x))) for x in bundles]


def pareto_optimal(every: list[Allocation]) -> list[Allocation]:
    """Those that no other allocation equals or beats for both seats and beats for one; order is kept."""
    best_b: dict[int, int] = {}  # s_a -> the most that b can have beside it
    for x in every:
        best_b[x.a] = max(best_b.get(x.a, x.b), x.b)
    frontier = set()
    highest = -1
    for a in sorted(best_b, reverse=True):
        if best_b[a] > highest:
            highest = best_b[a]
            frontier.add((a, highest))
    return [x for x in every if (x.a, x.b) in frontier]


def envy(game: Game, bundle: Bundle) -> tuple[int, int]:
    """By how many points each seat would rather have the other's bundle; at most 0: it would not."""
    other = rest(game.counts, bundle)
    return (
        points(game.a, other) - points(game.a, bundle),
        points(game.b, bundle) - points(game.b, other),
    )


def reference(game: Game, optimal: list[Allocation]) -> tuple[int, int]:
    """The reference points (m_a·S, m_b·S) among a game's Pareto-optimal allocations."""
    fair = [x for x in optimal if max(envy(game, x.bundle)) <= 0]
    if fair:
        return max(x.a for x in fair), max(x.b for x in fair)
    x = min(optimal, key=lambda x: (max(envy(game, x.bundle)), -(x.a + x.b), -min(x.a, x.b), x.bundle))
    return x.a, x.b


@lru_cache(maxsize=1 << 16)
def analyse(game: Game) -> Analysis:
    """References, frontier and maxima of a game; computed once per content."""
    every = allocations(game)
    optimal = pareto_optimal(every)
    reference_a, reference_b = reference(game, optimal)
    return Analysis(
        reference_a / game.total,
        reference_b / game.total,
        tuple(sorted({(x.a, x.b) for x in optimal})),
        max(x.a + x.b for x in every),
        max(x.a * x.b for x in every),
    )


def efficiency(game: Game, a: int, b: int) -> dict[str, float]:
    """How good the points (a, b) are for both seats together. Reported, never trained on.

    pareto_distance   Euclidean distance in utility to the nearest Pareto-optimal point; 0 on the frontier
    joint_share       (s_a + s_b) over its maximum
    nash_share        s_a · s_b over its maximum; 0 where the maximum is 0
    """
    facts = analyse(game)
    return {
        "pareto_distance": min(hypot(a - x, b - y) for x, y in facts.frontier) / game.total,
        "joint_share": (a + b) / facts.max_joint if facts.max_joint else 0.0,
        "nash_share": a * b / facts.max_nash if facts.max_nash else 0.0,
    }
