"""The deals of Deal or No Deal for scripted participants, cached by counts and own values."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import product
from typing import Any

from envs.agents.deals import Deals
from scenarios.dnd import ITEMS, TOTAL, Triple, triple


def deals(briefing: Mapping[str, Any]) -> Deals:
    """The deals of a seat, from its briefing."""
    return _deals(triple(briefing["counts"]), triple(briefing["values"]))


@lru_cache(maxsize=4096)
def _deals(counts: Triple, values: Triple) -> Deals:
    taken = list(product(*(range(count + 1) for count in counts)))
    left = [tuple(c - x for c, x in zip(counts, bundle, strict=True)) for bundle in taken]
    main = [max(range(3), key=lambda i: (bundle[i] * values[i], bundle[i])) for bundle in taken]

    numbers = {bundle: i for i, bundle in enumerate(taken)}

    def theirs() -> list[list[float]]:
        return [[_points(other, bundle) / TOTAL for bundle in left] for other in conceivable(counts, values)]

    return Deals(
        offers=[dict(zip(ITEMS, bundle, strict=True)) for bundle in taken],
        mine=[_points(values, bundle) / TOTAL for bundle in taken],
        guess=[float(sum(bundle)) for bundle in left],
        guessed=[float(sum(bundle)) for bundle in taken],
        find=lambda given: numbers[triple(given)],
        theirs=theirs,
        secrets=[
            f"{a.capitalize()} {x}, {b} {y}, {c} {z}, that is my value."
            for (a, x), (b, y), (c, z) in [tuple(zip(ITEMS, values, strict=True))]
        ]
        + [f"One {item} is worth {value} to me." for item, value in zip(ITEMS, values, strict=True)],
        about=[f"the {ITEMS[i]}{'s' if counts[i] > 1 else ''}" for i in main],
    )


@lru_cache(maxsize=4096)
def conceivable(counts: Triple, values: Triple) -> list[tuple[int, ...]]:
    """The values that the counterpart may have: worth 10 in all, every item worth something to somebody."""
    found = []
    for other in product(*(range(TOTAL // count + 1) for count in counts)):
        pairs = list(zip(values, other, strict=True))
        if _points(other, counts) == TOTAL and all(x or y for x, y in pairs) and any(x and y for x, y in pairs):
            found.append(other)
    return found


def _points(values: tuple[int, ...], bundle: tuple[int, ...]) -> int:
    return sum(value * units for value, units in zip(values, bundle, strict=True))
