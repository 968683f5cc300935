"""Werewolf: five to eight players, among them a wolf or two and perhaps a seer, who must find each other out.

    names      {"p1": "Mira", …}: what the players are called, a word each; seats are p1 to p5, … or p8
    personas   {"p1": "You keep bees and trust nobody.", …}: who each of them is, told to that player alone
    roles      {"p1": "villager", …}: villager, wolf or seer

Among n players there are 1 to (n - 1) // 3 wolves and at most one seer. A persona stands in one split only. How a game
is played is in `envs/werewolf.py`, how it is paid in `rewards/werewolf.py`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

from scenarios import wording
from scenarios.core import Scenario
from scenarios.jsonfile import shown

SEATS = tuple(f"p{number}" for number in range(1, 9))
PLAYERS = (5, 8)  # fewest and most
ROLES = ("villager", "wolf", "seer")

FIELDS = ("names", "personas", "roles")
REWARD_FIELDS = ("roles",)

NAME = re.compile(r"[A-Z][a-z]{1,11}")  # so that a name can be said and typed


def seats(roles: Mapping[str, str]) -> tuple[str, ...]:
    """The seats at a table with these roles, in their order."""
    return SEATS[: len(roles)]


def most_wolves(players: int) -> int:
    """How many wolves there may be among so many players."""
    return (players - 1) // 3


def check(fields: Mapping[str, Any]) -> list[str]:
    """What is wrong with the players and their roles."""
    roles = fields["roles"]
    if not isinstance(roles, Mapping):
        return [f"roles is {shown(roles)}, expected an object with {SEATS[0]}, {SEATS[1]}, …"]
    if set(roles) != set(SEATS[: len(roles)]) or not PLAYERS[0] <= len(roles) <= PLAYERS[1]:
        return [f"roles names {shown(list(roles))}, expected {SEATS[0]} to {SEATS[PLAYERS[0] - 1]} … {SEATS[-1]}"]
    found = [f"roles.{seat} is {shown(role)}, expected villager, wolf or seer" for seat, role in roles.items()
             if role not in ROLES]  # fmt: skip
    found = found or _count_faults(list(roles.values()))
    for key in ("names", "personas"):
        if key in fields:
            found += _text_faults(key, fields[key], seats(roles))
    return found


def _count_faults(roles: list[Any]) -> list[str]:
    found, most = [], most_wolves(len(roles))
    if not 1 <= roles.count("wolf") <= most:
        found.append(f"roles has {roles.count('wolf')} wolves among {len(roles)}, expected 1 to {most}")
    if roles.count("seer") > 1:
        found.append(f"roles has {roles.count('seer')} seers, expected one at most")
    return found


def _text_faults(key: str, texts: Any, table: tuple[str, ...]) -> list[str]:
    """What is wrong with the names, or with the personas, of these seats."""
    if not isinstance(texts, Mapping) or set(texts) != set(table):
        return [f"{key} is {shown(texts)}, expected an object with {', '.join(table)}"]
    found = []
    for seat, text in texts.items():
        if not (isinstance(text, str) and text.strip() and text.isprintable()):
            found.append(f"{key}.{seat} is {shown(text)}, expected a text of one line")
        elif key == "names" and not NAME.fullmatch(text):
            found.append(f"names.{seat} is {shown(text)}, expected a capitalised word of 2 to 12 letters")
    if key == "names" and not found and len(set(texts.values())) < len(texts):
        found.append(f"names has a name twice: {shown(list(texts.values()))}")
    return found


def groups(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """The personas."""
    return tuple(f"werewolf {persona}" for persona in fields["personas"].values())


def build(names: list[str], personas: list[str], roles: list[str], *, split: str, source: str) -> Scenario:
    """A scenario that is named by its players and their roles' initials."""
    table = SEATS[: len(roles)]
    columns = (dict(zip(table, column, strict=True)) for column in (names, personas, roles))
    initials = "".join(role[0] for role in roles)
    name = f"werewolf-{initials}-{'-'.join(names).lower()}"
    return Scenario(name, "werewolf", split, source, dict(zip(FIELDS, columns, strict=True)))


def generate(n: int, seed: int, split: str) -> Iterator[Scenario]:
    """Scenarios without end, each other in its players or roles; tables of five, six, seven and eight take turns."""
    words = next(row for row in wording.pool("werewolf") if row["split"] == split)
    callings, habits, names = words["callings"], words["habits"], words["names"]
    seen: set[str] = set()
    for number in range(1 << 20):
        rng = random.Random(f"{seed} {split} {number}")
        players = PLAYERS[0] + number % (PLAYERS[1] - PLAYERS[0] + 1)
        roles = ["wolf"] * rng.randint(1, most_wolves(players)) + ["seer"] * rng.randint(0, 1)
        roles += ["villager"] * (players - len(roles))
        rng.shuffle(roles)
        personas = [
            f"You {calling} and {habit}."
            for calling, habit in zip(rng.sample(callings, players), rng.sample(habits, players), strict=True)
        ]
        scenario = build(
            rng.sample(names, players), personas, roles, split=split, source=f"generator:werewolf:seed={seed}"
        )
        if scenario.id not in seen:
            seen.add(scenario.id)
            yield scenario


def summary(fields: Mapping[str, Any]) -> str:
    names, roles = fields["names"], fields["roles"]
    return ", ".join(names[seat] + ("" if roles[seat] == "villager" else f" ({roles[seat]})") for seat in seats(roles))
