"""Casino: two campers divide three packages each of food, water and firewood.

A seat's priorities name the resource that it wants most, second and least: a package is worth 5, 4 or 3 points to
it, all nine are worth 36. Seats may have the same order. A scenario also tells who each camper is and why they want
each resource; those are private, like the order. How a game is played is in `envs/casino.py`, how it is paid in
`rewards/casino.py`; the texts of generated scenarios are in `casino_personas.py`.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, permutations, product
from typing import Any

from scenarios.casino_personas import OPENERS, Persona, personas, reason
from scenarios.core import Scenario, split_of
from scenarios.jsonfile import shown

ITEMS = ("food", "water", "firewood")
SEATS = ("a", "b")
COUNTS = (3, 3, 3)
POINTS = (5, 4, 3)  # of a package of high, medium, low priority
TOTAL = 36
OUTSIDE = 5  # points that walking away pays to each seat

FIELDS = ("priorities", "personas", "reasons")
REWARD_FIELDS = ("priorities",)
ORDERS = tuple(permutations(ITEMS))

Order = tuple[str, ...]


def check(fields: Mapping[str, Any]) -> list[str]:
    """What is wrong with `priorities`, and with `personas` and `reasons` where they are."""
    found = _seats_faults("priorities", fields["priorities"])
    if not found:
        for seat in SEATS:
            order = fields["priorities"][seat]
            if not isinstance(order, (list, tuple)) or not all(isinstance(item, str) for item in order):
                found.append(f"priorities.{seat} is {shown(order)}, expected a list of food, water and firewood")
            elif tuple(order) not in ORDERS:
                found.append(f"priorities.{seat} is {shown(list(order))}, expected food, water and firewood once each")
    if "personas" in fields:
        wrong = _seats_faults("personas", fields["personas"])
        found += wrong or [f for s in SEATS for f in _text_faults(f"personas.{s}", fields["personas"][s])]
    if "reasons" in fields:
        wrong = _seats_faults("reasons", fields["reasons"])
        found += wrong or [f for s in SEATS for f in _reason_faults(f"reasons.{s}", fields["reasons"][s])]
    return found


@lru_cache(maxsize=64)
def points_of(order: Order) -> tuple[int, ...]:
    """What a package of each of ITEMS is worth to a seat with these priorities."""
    return tuple(POINTS[order.index(item)] for item in ITEMS)


def build(
    priorities: Sequence[Sequence[str]],
    people: Sequence[str],
    reasons: Sequence[Mapping[str, str]],
    *,
    split: str | None = None,
    source: str,
) -> Scenario:
    """A scenario of what seats a and b have, named by its content. Without `split` the personas decide it."""
    fields = {
        "priorities": {seat: list(order) for seat, order in zip(SEATS, priorities, strict=True)},
        "personas": dict(zip(SEATS, people, strict=True)),
        "reasons": {seat: {item: texts[item] for item in ITEMS} for seat, texts in zip(SEATS, reasons, strict=True)},
    }
    letters = "-".join("".join(item[0] + item[1:2] for item in order) for order in priorities)
    digest = hashlib.blake2b(repr(fields).encode(), digest_size=6).hexdigest()
    if split is None:
        split = split_of("casino " + " | ".join(sorted(people)))
    return Scenario(f"casino-{letters}-{digest}", "casino", split, source, fields)


def groups(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Every persona."""
    return tuple(f"casino persona {who}" for who in fields["personas"].values())


def generate(n: int, seed: int, split: str) -> Iterator[Scenario]:
    """Up to `n` distinct games of the split: two of its personas, any priorities, reasons in new words."""
    rng = random.Random(f"casino {seed} {split}")
    games = [(x, y, orders) for x, y in combinations(personas(split), 2) for orders in product(ORDERS, repeat=2)]
    rng.shuffle(games)
    for x, y, orders in games[:n]:
        sides = list(zip((x, y), orders, strict=True))
        if rng.random() < 0.5:
            sides.reverse()
        reasons = [_reasons(rng, persona, order) for persona, order in sides]
        people = [persona.who for persona, _ in sides]
        yield build([order for _, order in sides], people, reasons, split=split, source=f"generator:casino:seed={seed}")


def summary(fields: Mapping[str, Any]) -> str:
    people = fields.get("personas", {})
    return " · ".join(
        f"{seat}{f' ({people[seat]})' if seat in people else ''} wants {' > '.join(fields['priorities'][seat])}"
        for seat in SEATS
    )


def _reasons(rng: random.Random, persona: Persona, order: Order) -> dict[str, str]:
    found = {}
    for number, item in enumerate(ITEMS):
        level = order.index(item)
        found[item] = reason(persona, number, level, rng.choice(OPENERS[level]), rng)
    return found


def _seats_faults(name: str, given: Any) -> list[str]:
    if not isinstance(given, Mapping):
        return [f"{name} is {shown(given)}, expected an object with a and b"]
    return _key_faults(name, given, SEATS)


def _reason_faults(name: str, given: Any) -> list[str]:
    if not isinstance(given, Mapping):
        return [f"{name} is {shown(given)}, expected an object with food, water and firewood"]
    return _key_faults(name, given, ITEMS) or [f for i in ITEMS for f in _text_faults(f"{name}.{i}", given[i])]


def _text_faults(name: str, text: Any) -> list[str]:
    return [] if isinstance(text, str) and text.strip() else [f"{name} is {shown(text)}, expected a text"]


def _key_faults(name: str, given: Mapping[str, Any], keys: tuple[str, ...]) -> list[str]:
    missing = [f"{name}.{key} is missing" for key in keys if key not in given]
    return missing + [f"{name} has an unknown key {shown(key)}" for key in given if key not in keys]
