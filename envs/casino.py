"""Casino: campers a and b divide three packages each of food, water and firewood.

To each seat a package of its first, second and third resource is worth 5, 4 and 3 points; walking away pays 5 points
to both. Each knows its own order, with the reasons for it. The rules of dividing are in `envs/division.py`, those of
scenarios in `scenarios/casino.py`, the reward in `rewards/casino.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from envs import division, telling
from envs.core import Event
from envs.division import Numbers
from envs.minds import Mind
from envs.telling import Prompt, one_line
from rewards.division import SEATS
from scenarios.casino import COUNTS, ITEMS, OUTSIDE, POINTS, TOTAL, points_of
from scenarios.core import Scenario

TRAINABLE = EVALUATED = SEATS
MOVES = ("message", "propose", "accept", "reject", "walk_away")
PRIVATE = {seat: tuple((field, seat) for field in ("priorities", "personas", "reasons")) for seat in SEATS}
ALL = division.bundle(ITEMS, COUNTS)

MIND = Mind(
    about="the other party's resources from what it wants most to what it wants least",
    schema={
        "type": "array",
        "items": {"type": "string", "enum": list(ITEMS)},
        "minItems": len(ITEMS),
        "maxItems": len(ITEMS),
    },
    truth=lambda scenario, seat: list(scenario["priorities"][division.other(seat)]),
    worth=lambda scenario, seat, given: division.worth(_values(scenario, seat), tuple(given[item] for item in ITEMS)),
)


def _values(scenario: Scenario, seat: str) -> Numbers:
    return points_of(tuple(scenario["priorities"][seat]))


class Environment(division.Division):
    """One game of the campers."""

    items = ITEMS
    take = division.taker(ITEMS)

    @staticmethod
    def counts_of(scenario: Scenario) -> Numbers:
        return COUNTS

    @staticmethod
    def values_of(scenario: Scenario, seat: str) -> Numbers:
        return _values(scenario, seat)

    def facts(self, seat: str) -> Mapping[str, Any]:
        fields = self.scenario.fields
        return {
            "counts": ALL,
            "priorities": tuple(fields["priorities"][seat]),
            "persona": fields.get("personas", {}).get(seat, ""),
            "reasons": MappingProxyType(dict(fields.get("reasons", {}).get(seat, {}))),
        }


BRIEF = """\
You are a camper{persona}. You and another camper divide three packages each of food, water and firewood, nine in all.
{wants}
All of them together are worth {total} points to you. The other camper has an order too, which you do not know; it \
may be the same as yours.
Your score grows with your points. Who walks away ends the talk, and both get {outside} points.
You move in turn, {limit} moves each. When the moves are used up without agreement, both get nothing."""
RANKS = ("most", "second", "least")


def brief(event: Event, prompt: Prompt) -> str:
    """What a seat is told at the start: the rules, its order and its reasons."""
    order, reasons, persona = (event.payload[key] for key in ("priorities", "reasons", "persona"))
    worth = dict(zip(order, POINTS, strict=True))
    if prompt == "compact":
        return "Camp. count*my value: " + " ".join(f"{item} {COUNTS[0]}*{worth[item]}" for item in ITEMS)
    if prompt == "people":
        who = f"{one_line(persona)}: " if persona else ""
        because = (f"\n    {item}: {one_line(reasons[item])}" for item in order if item in reasons)
        return who + ", ".join(f"{item} worth {worth[item]}" for item in order) + "".join(because)
    wants = "\n".join(
        f"You want {item} {rank}: a package is worth {worth[item]} points to you."
        + (f" {one_line(reasons[item])}" if item in reasons else "")
        for item, rank in zip(order, RANKS, strict=True)
    )
    return BRIEF.format(
        persona=f" ({one_line(persona)})" if persona else "",
        wants=wants,
        total=TOTAL,
        outside=OUTSIDE,
        limit=event.payload["limit"],
    )


def answers(event: Event) -> str:
    """How to answer in JSON; `event` is the seat's briefing."""
    return division.answers(event.payload["counts"])


def tell(event: Event, seat: str, prompt: Prompt) -> str:
    """One event as a seat reads it."""
    return telling.tell(event, seat, prompt, division.SHOWN[prompt], _WORTH[prompt])


_WORTH = {
    "full": lambda turn: f"worth {turn['worth']} of {TOTAL} points to you",
    "compact": lambda turn: str(turn["worth"]),
    "people": lambda turn: str(turn["worth"]),
}
