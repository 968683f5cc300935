"""Deal or No Deal: two seats divide books, hats and balls that each values privately.

Points are integers. Rules of a scenario: each item comes 1 to 4 times, 5 to 7 units in all; a seat's values are
integers >= 0 and everything together is worth 10 to each seat; every item is worth something to somebody, and
at least one to both. There are 5,295 such scenarios, 2,706 up to swapping the seats; the generator reaches
all of them. How a game is played is in `envs/dnd.py`, how it is paid in `rewards/dnd.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any

from scenarios.core import Scenario, split_of
from scenarios.jsonfile import is_int, shown

ITEMS = ("book", "hat", "ball")
SEATS = ("a", "b")
TOTAL = 10  # points that everything together is worth to each seat
COUNT = (1, 4)  # least and most of one item
UNITS = (5, 7)  # least and most units in all

FIELDS = ("counts", "values")
REWARD_FIELDS = FIELDS

Triple = tuple[int, int, int]  # in the order of ITEMS


def check(fields: Mapping[str, Any]) -> list[str]:
    """What is wrong with `counts` and `values`."""
    counts, values = fields["counts"], fields["values"]
    found = _triple_faults("counts", counts, *COUNT)
    if not isinstance(values, Mapping):
        return [*found, f"values is {shown(values)}, expected an object with a and b"]
    found += _key_faults("values", values, SEATS)
    for seat in SEATS:
        if seat in values:
            found += _triple_faults(f"values.{seat}", values[seat], 0, TOTAL)
    return found or _game_faults(triple(counts), triple(values["a"]), triple(values["b"]))


def triple(numbers: Mapping[str, int]) -> Triple:
    """The numbers of book, hat and ball."""
    return numbers["book"], numbers["hat"], numbers["ball"]


def named(numbers: Triple) -> dict[str, int]:
    """The inverse of `triple`."""
    return dict(zip(ITEMS, numbers, strict=True))


def build(counts: Triple, a: Triple, b: Triple, *, split: str, source: str) -> Scenario:
    """A scenario whose id is its content: counts, a's values, b's values."""
    name = "-".join(["dnd", *(".".join(map(str, numbers)) for numbers in (counts, a, b))])
    return Scenario(name, "dnd", split, source, {"counts": named(counts), "values": {"a": named(a), "b": named(b)}})


def group(counts: Triple, a: Triple, b: Triple) -> str:
    """The game up to swapping the seats."""
    return f"dnd {counts} {min(a, b)} {max(a, b)}"


def groups(fields: Mapping[str, Any]) -> tuple[str, ...]:
    values = fields["values"]
    return (group(triple(fields["counts"]), triple(values["a"]), triple(values["b"])),)


@cache
def space() -> tuple[tuple[Triple, Triple, Triple], ...]:
    """Every game once, as (counts, values, values) with the smaller values first."""
    found: list[tuple[Triple, Triple, Triple]] = []
    triples = [(x, y, z) for x, y, z in product(range(TOTAL + 1), repeat=3)]
    for counts in triples:
        if not (COUNT[0] <= min(counts) and max(counts) <= COUNT[1] and UNITS[0] <= sum(counts) <= UNITS[1]):
            continue
        worth = [values for values in triples if _worth(counts, values) == TOTAL]
        found += [(counts, a, b) for a in worth for b in worth if a <= b and not _game_faults(counts, a, b)]
    return tuple(found)


def generate(n: int, seed: int, split: str) -> Iterator[Scenario]:
    """Up to `n` distinct games of the split, uniform over all of them; who sits where is drawn as well."""
    draws = []
    for game in space():
        name = group(*game)
        if split_of(name) == split:
            draws.append((hashlib.blake2b(f"{seed} {name}".encode(), digest_size=16).digest(), game))
    for draw, (counts, a, b) in sorted(draws)[:n]:
        seats = (b, a) if draw[-1] & 1 else (a, b)
        yield build(counts, *seats, split=split, source=f"generator:dnd:seed={seed}")


def summary(fields: Mapping[str, Any]) -> str:
    counts, values = fields["counts"], fields["values"]
    units = ", ".join(f"{counts[item]} {item}{'s' if counts[item] != 1 else ''}" for item in ITEMS)
    worth = " · ".join(f"{seat} values them {'/'.join(str(values[seat][item]) for item in ITEMS)}" for seat in SEATS)
    return f"{units} · {worth}"


def _worth(counts: Triple, values: Triple) -> int:
    return sum(count * value for count, value in zip(counts, values, strict=True))


def _game_faults(counts: Triple, a: Triple, b: Triple) -> list[str]:
    """What is wrong with a game whose numbers are each in range."""
    found = []
    if not UNITS[0] <= sum(counts) <= UNITS[1]:
        found.append(f"counts add up to {sum(counts)}, expected {UNITS[0]} to {UNITS[1]}")
    for seat, values in zip(SEATS, (a, b), strict=True):
        if _worth(counts, values) != TOTAL:
            found.append(f"everything is worth {_worth(counts, values)} to {seat}, expected {TOTAL}")
    for item, x, y in zip(ITEMS, a, b, strict=True):
        if not x and not y:
            found.append(f"{item} is worth nothing to both seats")
    if not any(x and y for x, y in zip(a, b, strict=True)):
        found.append("no item is worth something to both seats")
    return found


def _triple_faults(name: str, numbers: Any, least: int, most: int) -> list[str]:
    """What is wrong with an object that should name a number of each item."""
    if not isinstance(numbers, Mapping):
        return [f"{name} is {shown(numbers)}, expected an object with book, hat and ball"]
    found = _key_faults(name, numbers, ITEMS)
    for item in ITEMS:
        if item in numbers:
            value = numbers[item]
            if not is_int(value):
                found.append(f"{name}.{item} is {shown(value)}, expected an integer")
            elif not least <= value <= most:
                found.append(f"{name}.{item} is {shown(value)}, expected {least} to {most}")
    return found


def _key_faults(name: str, given: Mapping[str, Any], keys: tuple[str, ...]) -> list[str]:
    missing = [f"{name}.{key} is missing" for key in keys if key not in given]
    return missing + [f"{name} has an unknown key {shown(key)}" for key in given if key not in keys]
