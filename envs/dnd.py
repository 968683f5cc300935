"""Deal or No Deal: seats a and b divide books, hats and balls, each with private values that add up to 10.

The rules of dividing are in `envs/division.py`, those of scenarios in `scenarios/dnd.py`, the reward in
`rewards/dnd.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envs import division, telling
from envs.core import Event
from envs.division import Numbers, bundle
from envs.minds import Mind
from envs.telling import Prompt
from rewards.division import SEATS
from scenarios.core import Scenario
from scenarios.dnd import ITEMS, TOTAL, triple

TRAINABLE = EVALUATED = SEATS
MOVES = ("message", "propose", "accept", "reject", "walk_away")
PRIVATE = {seat: (("values", seat),) for seat in SEATS}

MIND = Mind(
    about="what one of each item is worth to the other party",
    schema={
        "type": "object",
        "properties": {item: {"type": "integer", "minimum": 0, "maximum": TOTAL} for item in ITEMS},
        "required": list(ITEMS),
        "additionalProperties": False,
    },
    truth=lambda scenario, seat: dict(scenario["values"][division.other(seat)]),
    worth=lambda scenario, seat, given: division.worth(triple(scenario["values"][seat]), triple(given)),
)


class Environment(division.Division):
    """One game of Deal or No Deal."""

    items = ITEMS
    take = division.taker(ITEMS)

    @staticmethod
    def counts_of(scenario: Scenario) -> Numbers:
        return triple(scenario["counts"])

    @staticmethod
    def values_of(scenario: Scenario, seat: str) -> Numbers:
        return triple(scenario["values"][seat])

    def facts(self, seat: str) -> Mapping[str, Any]:
        return {"counts": bundle(ITEMS, self.counts), "values": bundle(ITEMS, self.values[seat])}


BRIEF = """\
You negotiate with another party about dividing some items. There are {counts}.
To you {values}; all of them together are worth 10. The other party's values add up to 10 too, but differ from \
yours; neither of you knows the other's.
Your score grows with what you get. Without an agreement both of you get nothing.
You move in turn, {limit} moves each. When the moves are used up there is no agreement."""


def brief(event: Event, prompt: Prompt) -> str:
    """What a seat is told at the start: the rules and its own numbers."""
    counts, values = event.payload["counts"], event.payload["values"]
    if prompt == "compact":
        return "Split. count*my value: " + " ".join(f"{item} {counts[item]}*{values[item]}" for item in ITEMS)
    if prompt == "people":
        return ", ".join(f"{counts[item]} {item} worth {values[item]}" for item in ITEMS)
    units = ", ".join(f"{item}: {counts[item]}" for item in ITEMS)
    worth = ", ".join(f"one {item} is worth {values[item]}" for item in ITEMS)
    return BRIEF.format(counts=units, values=worth, limit=event.payload["limit"])


def answers(event: Event) -> str:
    """How to answer in JSON; `event` is the seat's briefing."""
    return division.answers(event.payload["counts"])


def tell(event: Event, seat: str, prompt: Prompt) -> str:
    """One event as a seat reads it."""
    return telling.tell(event, seat, prompt, division.SHOWN[prompt], _WORTH[prompt])


_WORTH = {
    "full": lambda turn: f"worth {turn['worth']} of {TOTAL} to you",
    "compact": lambda turn: str(turn["worth"]),
    "people": lambda turn: str(turn["worth"]),
}
