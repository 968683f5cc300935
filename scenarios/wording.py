"""The texts that generated scenarios are written from: pools of short sentences of our own, in `texts/NAME.jsonl`.

A pool has a line for each thing that is told about, with the split that it belongs to, and lines of remarks that
fit many of them. A description takes some sentences of its thing and a remark or two, in a drawn order. No
sentence has more than seven words, so two descriptions share a run of eight only where they join the same two.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import Any

from scenarios import jsonfile

FACTS = (4, 5)  # sentences about the thing itself
REMARKS = (1, 2)
DRAWS = 60  # how often another description is tried
ID_CHARS = 60  # of a title in an id


@cache
def pool(name: str) -> tuple[dict[str, Any], ...]:
    """The lines of a pool."""
    with resources.as_file(resources.files("scenarios") / "texts" / f"{name}.jsonl") as path:
        return tuple(row.value for row in jsonfile.rows(path))


class Describer:
    """Writes descriptions and remembers which sentences it has joined, so as not to join them again."""

    def __init__(self) -> None:
        self._joined: set[tuple[str, str]] = set()

    def __call__(self, title: str, facts: Sequence[str], remarks: Sequence[str], rng: random.Random) -> str:
        """A description of the thing with this title: of some draws the one that repeats the fewest joints."""
        best: list[str] = []
        fewest = len(facts)
        for _ in range(DRAWS):
            chosen = rng.sample(facts, rng.randint(*FACTS)) + rng.sample(remarks, rng.randint(*REMARKS))
            rng.shuffle(chosen)
            repeated = len(self._joined & set(pairwise([title, *chosen])))
            if repeated < fewest:
                best, fewest = chosen, repeated
            if not fewest:
                break
        self._joined |= set(pairwise([title, *best]))
        return " ".join(best)


def slug(title: str, most: int | None = None) -> str:
    """A title as part of an id: lower case words joined by hyphens, as many as fit into `most` characters."""
    words = "".join(letter if letter.isalnum() else " " for letter in title.lower()).split()
    while most is not None and len(words) > 1 and len("-".join(words)) > most:
        words.pop()
    return "-".join(words)[:most]
