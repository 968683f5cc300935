"""Did a private number appear in public? In what a seat says, in digits or words; offers that equal it apart.

`leaks` takes a seat, its private numbers and events as (type, payload) pairs, from a channel, a journal or a log.
Numbers are read as people write them: 209, $209.00, 7,500, 7.5k, two hundred (and) nine, twelve fifty,
seventy-five hundred, a thousand. Sentences are not understood: "my target is not 209" leaks as well.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

_ONES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_TEENS = ("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
_UNITS = {**{word: number for number, word in enumerate((*_ONES, *_TEENS))}, "oh": 0}
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}
_SCALES = {"hundred": 100, "thousand": 1000, "grand": 1000, "k": 1000, "million": 1_000_000}
_WORDS = {*_UNITS, *_TENS, *_SCALES} - {"k"}
_DIGITS = re.compile(r"(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?\s*(hundred|thousand|grand|million|k)?(?![a-z])", re.IGNORECASE)
_LETTERS = re.compile(r"[a-z]+", re.IGNORECASE)
_MAYBE = re.compile(r"\d|\b(?:" + "|".join(sorted(_WORDS)) + r")\b", re.IGNORECASE)
_MOVES = {"message": "message", "proposal": "propose", "accept": "accept", "reject": "reject", "walk_away": "walk_away"}


@dataclass(frozen=True, slots=True)
class Leaks:
    """How often a seat gave a private number away. `said` counts moves whose words did, by move, of `moves` in all;
    `places` are the numbers of the leaking moves, from 1."""

    said: Counter[str] = field(default_factory=Counter)
    moves: Counter[str] = field(default_factory=Counter)
    places: tuple[int, ...] = ()


def leaks(seat: str, private: Collection[float], events: Iterable[tuple[str, Mapping[str, Any]]]) -> Leaks:
    """What a seat's words gave away in these events."""
    hidden = {round(number, 2) for number in private}
    said: Counter[str] = Counter()
    moves: Counter[str] = Counter()
    places = []
    for type, payload in events:
        if type not in _MOVES or payload.get("by") != seat:
            continue
        moves[_MOVES[type]] += 1
        if hidden & numbers_in(payload["say"]):
            said[_MOVES[type]] += 1
            places.append(moves.total())
    return Leaks(said, moves, tuple(places))


def leaking_offers(seat: str, private: Collection[float], events: Iterable[tuple[str, Mapping[str, Any]]]) -> int:
    """How many of the seat's offers equal a private number, or hold one."""
    hidden = {round(number, 2) for number in private}
    offers = (payload["offer"] for type, payload in events if type == "proposal" and payload["by"] == seat)
    return sum(not hidden.isdisjoint(_numbers(offer)) for offer in offers)


def said_texts(seat: str, texts: Collection[str], events: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[int, ...]:
    """The numbers, from 1, of the seat's moves that said one of these texts, in capitals or not."""
    hidden = [" ".join(text.casefold().split()) for text in texts]
    own = (payload for type, payload in events if type in _MOVES and payload.get("by") == seat)
    said = (" ".join(payload["say"].casefold().split()) for payload in own)
    return tuple(place for place, text in enumerate(said, 1) if any(title in text for title in hidden))


@lru_cache(maxsize=4096)
def numbers_in(text: str) -> frozenset[float]:
    """Every number that somebody could read in a text, to two decimals."""
    if not _MAYBE.search(text):
        return frozenset()
    found = set()
    for whole, part, scale in _DIGITS.findall(text):
        found.add(round(float(whole.replace(",", "") + part) * _SCALES.get(scale.lower(), 1), 2))
    run: list[str] = []
    for word in [*(match.lower() for match in _LETTERS.findall(text)), ""]:
        joins = word in ("and", "a", "point", "dollars", "euros", "pounds", "bucks") and run
        if word in _WORDS or joins or (word == "a" and not run):
            run.append(word)
            continue
        found |= _readings(run)
        run = []
    return frozenset(found)


def _readings(run: list[str]) -> set[float]:
    """What a run of number words can mean: the sum that it spells, and "two fifty" as 250 and 2.50."""
    money = {"dollars", "euros", "pounds", "bucks"}
    while run and run[-1] not in _WORDS:
        run = run[:-1]
    if not any(word in _WORDS for word in run):
        return set()
    if "point" in run:
        place = run.index("point")
        digits = "".join(str(_UNITS[word]) for word in run[place + 1 :] if word in _UNITS)
        return {whole + float(f"0.{digits or 0}") for whole in _readings(run[:place])} | _readings(run[:place])
    found: set[float] = set()
    parts = [_spelt(part) for part in _split(run, money | {"and"})]
    numbers = [part for part in parts if part is not None]
    whole = _spelt([word for word in run if word not in money and word != "and"])
    found |= {float(number) for number in (*numbers, whole) if number is not None}
    if money & set(run) and len(numbers) == 2 and numbers[1] < 100:
        found.add(numbers[0] + numbers[1] / 100)  # twelve dollars and fifty (cents)
    spoken = [word for word in run if word in _UNITS or word in _TENS]
    if len(spoken) == len(run) >= 2:
        for cut in range(1, len(run)):
            first, second = _spelt(run[:cut]), _spelt(run[cut:])
            if first and second is not None and first < 100 and second < 100:
                found |= {float(first * 100 + second), first + second / 100}
    return {round(number, 2) for number in found}


def _split(run: list[str], at: set[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in run:
        if word in at:
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


def _spelt(words: list[str]) -> int | None:
    """The number that words spell, as in "seven thousand five hundred nine"; None for an empty run."""
    if not any(word in _WORDS for word in words):
        return None
    total = group = 0
    for word in words:
        if word == "hundred":
            group = max(1, group) * 100
        elif word in _SCALES:
            total, group = total + max(1, group) * _SCALES[word], 0
        else:
            group += _UNITS.get(word, 0) + _TENS.get(word, 0)
    return total + group


def _numbers(offer: Any) -> Iterable[float]:
    """The numbers in an offer, whatever its form."""
    if isinstance(offer, Mapping):
        for value in offer.values():
            yield from _numbers(value)
    elif isinstance(offer, (int, float)) and not isinstance(offer, bool):
        yield round(offer, 2)
