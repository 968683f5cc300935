"""A price as scripted participants see it: the deals are amounts, numbered by their cents.

A participant runs on a scale of its own, from the price that it opens with (utility 1) to the last one that it would
agree to (utility f, its floor); prices beyond lie on the same straight line. Both ends are its own affair: a buyer's
opening is drawn, a seller asks the list price. It offers round numbers (`scenarios.money.tick`), rounded towards
itself, and at the end its limit exactly. An opening never equals the private number.

`Facts` is what a game says of a seat; `Prices.seated` draws the rest for one participant.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from envs.agents.deals import one_of
from scenarios.money import from_cents, tick, to_cents

if TYPE_CHECKING:
    from envs.agents.scripted import State

ANCHOR = (0.5, 0.9)  # of a buyer's private number: where it opens
SERIOUS = 2.0  # a first offer further than by this factor from the own limit is not meant
STUBBORN = 0.999  # a higher floor is cut to this, so that the scale keeps a length


@dataclass(frozen=True, slots=True)
class Facts:
    """A seat of a price game. Amounts are cents.

    limit     (rng, start, floor) -> the price at which own utility is the floor, for one who opens with `start`
    private   the seat's private number, None where it has none
    floors    what a floor is drawn from: where the limit is a reservation price already, 0 alone
    pays      what a price pays this seat, by all it knows, on any scale that is 0 without a deal
    full      the price that pays all that can be had; better ones pay no more
    theirs    (its first offer or None) -> the range in which the counterpart's limit lies as a rule
    possible  the range in which it lies for certain
    their_floors  the floors that it may have
    secrets   sentences that give the private number away
    """

    buys: bool
    listed: int
    private: int | None
    limit: Callable[[random.Random, float, float], float]
    floors: tuple[float, ...]
    pays: Callable[[Any], Any]
    full: int
    theirs: Callable[[float | None], tuple[float, float]]
    possible: tuple[float, float]
    their_floors: tuple[float, ...]
    secrets: tuple[str, ...]


class Prices:
    """The prices of one game for one seat; once `seated`, on one participant's scale."""

    planner = "envs.agents.price_planner"
    relative = True

    def __init__(self, facts: Facts, start: float = 0.0, limit: float = 0.0, floor: float = 0.0) -> None:
        self.facts = facts
        self.floors: Sequence[float] = facts.floors
        self.secrets: Sequence[str] = facts.secrets
        self.speech = "buyer" if facts.buys else "seller"
        self.tick = tick(from_cents(facts.listed))
        self.start, self.limit, self.floor = start, limit, min(floor, STUBBORN)

    def seated(self, rng: random.Random, floor: float) -> Prices:
        """The scale of one participant, who draws its opening and its limit."""
        facts = self.facts
        start = facts.listed
        if facts.buys:
            assert facts.private is not None, "a buyer has a number to start below"
            start = max(1, self.rounded(facts.private * rng.uniform(*ANCHOR)))
        limit = facts.limit(rng, start, min(floor, STUBBORN))
        limit = max(start, math.floor(limit + 1e-6)) if facts.buys else min(start, math.ceil(limit - 1e-6))
        return Prices(facts, start, limit, floor)

    def rounded(self, cents: float) -> int:
        """A round number, not worse for this seat; at least a cent."""
        step = -self.tick if self.facts.buys else self.tick
        return max(1, int(-(-cents // step)) * step)

    def utility(self, deal: float) -> float:
        span = self.limit - self.start
        if not span:  # no room at all: that price or a better one
            return 1.0 if self.better(deal, self.start) >= 0 else self.floor - 1
        return self.floor + (1 - self.floor) * (self.limit - deal) / span

    def better(self, one: float, other: float) -> float:
        """By how many cents a price is better for this seat than another one."""
        return other - one if self.facts.buys else one - other

    def at(self, utility: float) -> float:
        """The price, in cents and their parts, that has this utility; never better than the opening."""
        part = min(1.0, (utility - self.floor) / (1 - self.floor))
        return self.limit - part * (self.limit - self.start)

    def least(self, aspiration: float) -> tuple[int]:
        price = self.at(aspiration)
        if self.better(self.limit, price) > -1e-6:  # at the limit, or under the floor
            return (int(self.limit if aspiration >= self.floor else round(price)),)
        price = self.rounded(price + 1e-6 if self.facts.buys else price - 1e-6)
        return (int(price if self.better(self.start, price) >= 0 else self.start),)

    def conceded(self, received: Sequence[int]) -> float:
        """How far the best offer is from the first one, or from the own limit halved (a buyer's: doubled) where the
        first was beyond that: a first offer that nobody can mean concedes nothing."""
        if not received:
            return 0.0
        serious = self.limit * (SERIOUS if self.facts.buys else 1 / SERIOUS)
        first = min(received[0], serious) if self.facts.buys else max(received[0], serious)
        best = min(received) if self.facts.buys else max(received)
        return max(0.0, self.utility(best) - self.utility(first))

    def offer(self, deal: int) -> Mapping[str, Any]:
        return {"price": from_cents(deal)}

    def topic(self, deal: int) -> str:
        return "the price"

    def index(self, given: Any) -> int:
        return to_cents(given["price"])

    number = index

    @property
    def best(self) -> int:
        """The greediest price: next to nothing, or all that is asked."""
        return self.tick if self.facts.buys else self.facts.listed

    def opening(self, deal: int) -> int:
        if deal != self.facts.private:
            return deal
        return max(1, deal - self.tick) if self.facts.buys else deal + self.tick

    def ask_for(self, aspiration: float, state: State) -> int:
        return one_of(self, aspiration, state)

    def draw(self, rng: random.Random) -> int:
        """A round price up to the listed one."""
        return self.tick * rng.randint(1, max(1, self.facts.listed // self.tick))
