"""Deal or No Deal: seats a and b divide books, hats and balls, each with private values that add up to 10.

An offer says what its author takes, all three items named; the other seat gets the rest. The seed decides who
moves first. Scenario rules are in `scenarios/dnd.py`, the reward in `rewards/dnd.py`, the moves in `envs/bargain.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from envs import telling
from envs.bargain import Bargain, moves, without_answers
from envs.core import ActionSpec, Event, Limits, derive_seed
from envs.minds import Mind
from envs.telling import Prompt
from rewards.dnd import bundle_fault
from scenarios.core import Scenario
from scenarios.dnd import ITEMS, TOTAL, Triple, triple

SEATS = ("a", "b")
TRAINABLE = EVALUATED = SEATS
MOVES = ("message", "propose", "accept", "reject", "walk_away")
PRIVATE = {"a": ("values", "a"), "b": ("values", "b")}


def _other(seat: str) -> str:
    return SEATS[1 - SEATS.index(seat)]


MIND = Mind(
    about="what one of each item is worth to the other party",
    schema={
        "type": "object",
        "properties": {item: {"type": "integer", "minimum": 0, "maximum": TOTAL} for item in ITEMS},
        "required": list(ITEMS),
        "additionalProperties": False,
    },
    truth=lambda scenario, seat: dict(scenario["values"][_other(seat)]),
    worth=lambda scenario, seat, given: sum(scenario["values"][seat][item] * given[item] for item in ITEMS),
)


class Environment(Bargain):
    """One game of Deal or No Deal."""

    seats = SEATS

    def __init__(self, scenario: Scenario, *, seed: int, limits: Limits | None = None) -> None:
        self.counts = triple(scenario["counts"])
        self.values = {seat: triple(scenario["values"][seat]) for seat in SEATS}
        super().__init__(scenario, seed=seed, limits=limits)

    def opening_order(self) -> tuple[str, ...]:
        return SEATS if derive_seed(self.seed, "first") % 2 else SEATS[::-1]

    def specs(self) -> tuple[tuple[ActionSpec, ...], tuple[ActionSpec, ...]]:
        return _specs(self.counts)

    def facts(self, seat: str) -> Mapping[str, Any]:
        return {"counts": _bundle(*self.counts), "values": _bundle(*self.values[seat])}

    def offer_fault(self, offer: Any) -> str | None:
        return bundle_fault(self.counts, offer)

    def copy(self, offer: Any) -> Mapping[str, int]:
        return _bundle(*triple(offer))

    def gives(self, offer: Any) -> Mapping[str, int]:
        book, hat, ball = self.counts
        return _bundle(book - offer["book"], hat - offer["hat"], ball - offer["ball"])

    def value(self, seat: str, given: Any) -> Mapping[str, Any]:
        values = self.values[seat]
        return {"worth": values[0] * given["book"] + values[1] * given["hat"] + values[2] * given["ball"]}

    def terms(self, proposer: str, offer: Any) -> Mapping[str, Any]:
        parts = {proposer: offer, _other(proposer): self.gives(offer)}
        return {seat: dict(parts[seat]) for seat in SEATS}


@lru_cache(maxsize=4096)
def _bundle(book: int, hat: int, ball: int) -> Mapping[str, int]:
    return MappingProxyType({"book": book, "hat": hat, "ball": ball})


@lru_cache(maxsize=256)
def _specs(counts: Triple) -> tuple[tuple[ActionSpec, ...], tuple[ActionSpec, ...]]:
    units = {
        item: {"type": "integer", "minimum": 0, "maximum": count} for item, count in zip(ITEMS, counts, strict=True)
    }
    offer = {
        "type": "object",
        "properties": units,
        "required": list(ITEMS),
        "additionalProperties": False,
        "description": "what you take of each item; the other side gets the rest",
    }
    every = moves(offer)
    return every, without_answers(every)


BRIEF = """\
You negotiate with another party about dividing some items. There are {counts}.
To you {values}; all of them together are worth 10. The other party's values add up to 10 too, but differ from \
yours; neither of you knows the other's.
Your score grows with what you get. Without an agreement both of you get nothing.
You move in turn, {limit} moves each. When the moves are used up there is no agreement."""
ANSWERS = """\
Answer with one JSON object, one of:
{{"move":"message","say":"What do you need most?"}} to talk only
{{"move":"propose","offer":{offer},"say":"How about this?"}} to offer a division; "offer" says what you take of each \
item, the other party gets the rest; it replaces your earlier offer
{{"move":"accept"}} to close on the other party's offer
{{"move":"reject"}} to turn the other party's offer down; it is then off the table
{{"move":"walk_away"}} to end without agreement
The other party reads what you "say"; you may add it to any move."""


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
    example = ",".join(f'"{item}":{count // 2}' for item, count in event.payload["counts"].items())
    return ANSWERS.format(offer=f"{{{example}}}")


def tell(event: Event, seat: str, prompt: Prompt) -> str:
    """One event as a seat reads it."""
    return telling.tell(event, seat, prompt, _LIST[prompt], _WORTH[prompt])


def _row(bundle: Mapping[str, int]) -> str:
    return f"book {bundle['book']} hat {bundle['hat']} ball {bundle['ball']}"


def _listed(bundle: Mapping[str, int]) -> str:
    return f"you get book {bundle['book']}, hat {bundle['hat']}, ball {bundle['ball']}"


_LIST = {
    "full": _listed,
    "compact": lambda bundle: f"for me {_row(bundle)}",
    "people": lambda bundle: f"the other side {_row(bundle)}",
}
_WORTH = {
    "full": lambda turn: f"worth {turn['worth']} of {TOTAL} to you",
    "compact": lambda turn: str(turn["worth"]),
    "people": lambda turn: str(turn["worth"]),
}
