"""The deals of dividing items, for scripted participants; `dnd` and `casino` say what a counterpart may value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from operator import itemgetter

from envs.agents.deals import Deals
from envs.division import Numbers, bundle, worth


def deals(
    items: tuple[str, ...],
    counts: Numbers,
    values: Numbers,
    total: int,
    conceivable: Callable[[], Sequence[Numbers]],
    *,
    secrets: Sequence[str],
    plurals: Sequence[str],
    outside: float = 0.0,
) -> Deals:
    """Every division, for a seat with these values. `conceivable()` lists what a unit may be worth to the other seat,
    `plurals` names the items in a sentence."""
    taken = list(product(*(range(count + 1) for count in counts)))
    left = [tuple(c - x for c, x in zip(counts, numbers, strict=True)) for numbers in taken]
    main = [max(range(len(items)), key=lambda i: (numbers[i] * values[i], numbers[i])) for numbers in taken]
    number_of = {numbers: i for i, numbers in enumerate(taken)}
    take = itemgetter(*items)

    def theirs() -> list[list[float]]:
        return [[worth(other, numbers) / total for numbers in left] for other in conceivable()]

    return Deals(
        offers=[bundle(items, numbers) for numbers in taken],
        mine=[worth(values, numbers) / total for numbers in taken],
        guess=[sum(numbers) for numbers in left],
        guessed=[sum(numbers) for numbers in taken],
        find=lambda given: number_of[take(given)],
        theirs=theirs,
        secrets=secrets,
        about=[f"the {plurals[i]}" for i in main],
        outside=outside,
    )
