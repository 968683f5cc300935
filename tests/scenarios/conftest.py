"""How much of the scenarios' text is said twice."""

import random
import re
from collections import Counter

import pytest

WORDS = 8  # length of a sequence
DRAWN = 10  # scenarios that are compared
DRAWS = 20


def texts(value):
    """Every text in a scenario's fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts(inner)


def masked(text):
    """The words of a text; numbers and names (capitals within a sentence) are all alike."""
    words, inside = [], False
    for token in re.findall(r"\d[\d.,:]*|[^\W\d_][\w'’-]*|[.!?]", text):
        if token in ".!?":
            inside = False
            continue
        name = inside and token[0].isupper() and token != "I" and not token.startswith(("I'", "I’"))
        words.append("0" if token[0].isdigit() else "X" if name else token.lower())
        inside = True
    return words


def sequences(scenario):
    for text in texts(dict(scenario.fields)):
        words = masked(text)
        yield from (tuple(words[i : i + WORDS]) for i in range(len(words) - WORDS + 1))


@pytest.fixture(scope="session")
def repeated():
    """`repeated(scenarios)`: of the 8-word sequences in ten of them, the share that occurs twice or more, each
    occurrence counted; the mean over twenty draws. None where the texts are too short to hold any."""

    def share(scenarios):
        shares = []
        for draw in range(DRAWS):
            found = Counter(s for x in random.Random(draw).sample(list(scenarios), DRAWN) for s in sequences(x))
            if not found:
                return None
            shares.append(sum(n for n in found.values() if n > 1) / found.total())
        return sum(shares) / DRAWS

    return share
