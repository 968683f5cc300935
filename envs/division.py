"""Two seats divide items that each values privately: what Deal or No Deal and the campers have in common.

An offer says what its author takes, all items named; the other seat gets the rest. The seed decides who moves first.
The moves are in `envs/bargain.py`, what a bundle may be in `rewards/division.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from operator import itemgetter, mul, sub
from types import MappingProxyType
from typing import Any, ClassVar

from envs.bargain import Bargain, moves, without_answers
from envs.core import ActionSpec, Limits, derive_seed
from rewards.division import SEATS, bundle_fault
from scenarios.core import Scenario

Numbers = tuple[int, ...]  # in the order of the items


def other(seat: str) -> str:
    return SEATS[1 - SEATS.index(seat)]


def worth(values: Numbers, numbers: Numbers) -> int:
    """The points of a bundle."""
    return sum(map(mul, values, numbers))


class Division(Bargain):
    """One game of dividing `items`. A game says which counts and values its scenario has, and what a seat knows."""

    seats = SEATS
    items: ClassVar[tuple[str, ...]]
    take: ClassVar[Any]  # reads a bundle as Numbers: `taker(items)`

    def __init__(self, scenario: Scenario, *, seed: int, limits: Limits | None = None) -> None:
        self.counts = self.counts_of(scenario)
        self.values = {seat: self.values_of(scenario, seat) for seat in SEATS}
        super().__init__(scenario, seed=seed, limits=limits)

    # ---- what a game writes

    @staticmethod
    def counts_of(scenario: Scenario) -> Numbers:
        """How many there are of each item."""
        raise NotImplementedError

    @staticmethod
    def values_of(scenario: Scenario, seat: str) -> Numbers:
        """What one of each item is worth to a seat."""
        raise NotImplementedError

    # ---- the rules

    def opening_order(self) -> tuple[str, ...]:
        return SEATS if derive_seed(self.seed, "first") % 2 else SEATS[::-1]

    def specs(self) -> tuple[tuple[ActionSpec, ...], tuple[ActionSpec, ...]]:
        return _specs(self.items, self.counts)

    def offer_fault(self, offer: Any) -> str | None:
        return bundle_fault(self.items, self.counts, offer)

    def copy(self, offer: Any) -> Mapping[str, int]:
        return bundle(self.items, self.take(offer))

    def gives(self, offer: Any) -> Mapping[str, int]:
        return left(self.items, self.counts, self.take(offer))

    def value(self, seat: str, given: Any) -> Mapping[str, Any]:
        return {"worth": worth(self.values[seat], self.take(given))}

    def secrets(self, seat: str) -> Collection[float]:
        """What one of each item is worth, where it is more than there are of any item: 2 may as well be two books."""
        most = max(self.counts)
        return {value for value in self.values[seat] if value > most}

    def terms(self, proposer: str, offer: Any) -> Mapping[str, Any]:
        parts = {proposer: offer, other(proposer): self.gives(offer)}
        return {seat: dict(parts[seat]) for seat in SEATS}


@lru_cache(maxsize=4096)
def bundle(items: tuple[str, ...], numbers: Numbers) -> Mapping[str, int]:
    """Numbers by item, in one read-only form."""
    return MappingProxyType(dict(zip(items, numbers, strict=True)))


@lru_cache(maxsize=4096)
def left(items: tuple[str, ...], counts: Numbers, taken: Numbers) -> Mapping[str, int]:
    """What `taken` leaves of the counts."""
    return bundle(items, tuple(map(sub, counts, taken)))


@lru_cache(maxsize=256)
def _specs(items: tuple[str, ...], counts: Numbers) -> tuple[tuple[ActionSpec, ...], tuple[ActionSpec, ...]]:
    units = {
        item: {"type": "integer", "minimum": 0, "maximum": count} for item, count in zip(items, counts, strict=True)
    }
    offer = {
        "type": "object",
        "properties": units,
        "required": list(items),
        "additionalProperties": False,
        "description": "what you take of each item; the other side gets the rest",
    }
    every = moves(offer)
    return every, without_answers(every)


def _row(given: Mapping[str, int]) -> str:
    """A bundle in few characters."""
    return " ".join(f"{item} {units}" for item, units in given.items())


def _listed(given: Mapping[str, int]) -> str:
    return "you get " + ", ".join(f"{item} {units}" for item, units in given.items())


SHOWN = {
    "full": _listed,
    "compact": lambda given: f"for me {_row(given)}",
    "people": lambda given: f"the other side {_row(given)}",
}
ANSWERS = """\
Answer with one JSON object, one of:
{{"move":"message","say":"What do you need most?"}} to talk only
{{"move":"propose","offer":{offer},"say":"How about this?"}} to offer a division; "offer" says what you take of each \
item, the other party gets the rest; it replaces your earlier offer
{{"move":"accept"}} to close on the other party's offer
{{"move":"reject"}} to turn the other party's offer down; it is then off the table
{{"move":"walk_away"}} to end without agreement
The other party reads what you "say"; you may add it to any move."""


def answers(counts: Mapping[str, int]) -> str:
    """How to answer in JSON."""
    example = ",".join(f'"{item}":{count // 2}' for item, count in counts.items())
    return ANSWERS.format(offer=f"{{{example}}}")


def taker(items: tuple[str, ...]) -> Any:
    """What reads a bundle as numbers in the order of the items."""
    return staticmethod(itemgetter(*items))
