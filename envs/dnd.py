"""Deal or No Deal: seats a and b divide books, hats and balls, each with private values that add up to 10.

An offer says what its author takes, all three items named; the other seat gets the rest. The seed decides who
moves first. Scenario rules are in `scenarios/dnd.py`, the reward in `rewards/dnd.py`, the moves in `envs/bargain.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from envs.bargain import Bargain, moves, without_answers
from envs.core import ActionSpec
from rewards.dnd import bundle_fault
from scenarios.dnd import ITEMS, Triple, triple

SEATS = ("a", "b")
TRAINABLE = SEATS
MOVES = ("message", "propose", "accept", "reject", "walk_away")


class Environment(Bargain):
    """One game of Deal or No Deal."""

    seats = SEATS

    def opening_order(self) -> tuple[str, ...]:
        return ("a", "b") if self.rng.random() < 0.5 else ("b", "a")

    def specs(self) -> tuple[tuple[ActionSpec, ...], tuple[ActionSpec, ...]]:
        return _specs(triple(self.scenario["counts"]))

    def facts(self, seat: str) -> Mapping[str, Any]:
        counts, values = self.scenario["counts"], self.scenario["values"][seat]
        return {"counts": _bundle(*triple(counts)), "values": _bundle(*triple(values))}

    def offer_fault(self, offer: Any) -> str | None:
        return bundle_fault(triple(self.scenario["counts"]), offer)

    def copy(self, offer: Any) -> Mapping[str, int]:
        return _bundle(*triple(offer))

    def gives(self, offer: Any) -> Mapping[str, int]:
        counts = self.scenario["counts"]
        return _bundle(*(counts[item] - offer[item] for item in ITEMS))

    def value(self, seat: str, given: Any) -> Mapping[str, Any]:
        values = self.scenario["values"][seat]
        return {"worth": sum(values[item] * given[item] for item in ITEMS)}

    def terms(self, proposer: str, offer: Any) -> Mapping[str, Any]:
        other = SEATS[1 - SEATS.index(proposer)]
        parts = {proposer: offer, other: self.gives(offer)}
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
