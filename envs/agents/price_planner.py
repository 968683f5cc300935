"""The planner for prices: a belief about the counterpart's limit and pace, and the proposal that is best under it.

A hypothesis is a limit on a grid and a way to concede from the opening to it: by a clock (exponent) or in kind (with
a floor). Each says which price would come next and which of ours would be taken, so every offer and every refusal
changes its weight. For each price p the planner expects

    Q(p) = Σ_n w_n [takes_n(p) · u(p) + (1 - takes_n(p)) · V_n]

with V_n what can still be had under hypothesis n: the price that it takes at its last move, or, before our own last
word, the price that it then asks. u is what a price pays by all that the seat knows. The planner takes the standing
price when that pays the best Q, and never goes beyond its own limit. `planner.py` does the same for enumerated deals.

    K ways to concede, H limits; a place of 1 is the counterpart's opening, of 0 its limit; prices are cents
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from envs.agents.beliefs import IN_KIND, KIND, REFUSES, SURPRISE
from envs.agents.planner import CLOSE, PATIENCE
from envs.agents.prices import SERIOUS, Prices

if TYPE_CHECKING:
    from envs.agents.scripted import Choice, State

EXPONENTS = (4.0, 1.0, 0.25)
EARLY = 4  # replies that must follow for a first offer that is meant to be refused
USUAL = 0.85  # share of limits in the range that is usual
CELLS = 400  # at most so many limits
SOFT = 0.1  # of the list price: how far off a surprising offer is thought to be
BLIND = 0.5  # of the list price: a buyer's opening while it has made none


class Belief:
    """Weights of all hypotheses, and what moves them."""

    def __init__(self, deals: Prices) -> None:
        facts = self.facts = deals.facts
        low, high = facts.possible
        self.tick = deals.tick
        self.step = self.tick * max(1, int((high - low) / self.tick / CELLS) + 1)
        self.limits = np.arange(np.ceil(low / self.tick), high / self.tick + 1e-9, self.step / self.tick) * self.tick
        if not len(self.limits):
            self.limits = np.array([(low + high) / 2])
        self.floors = np.array(facts.their_floors)[:, None]
        kinds = len(self.floors)
        ways = [(1 - KIND) / len(EXPONENTS)] * len(EXPONENTS) + [KIND / kinds] * kinds
        self.weight = np.repeat(np.array(ways)[:, None], len(self.limits), axis=1)  # (K, H)
        self.told = 0  # offers received that have been looked at
        self.made: list[int] = []  # our offers, which move those who concede in kind
        self.open(None)

    def open(self, offer: int | None) -> None:
        """Set where each hypothesis began, (K, H), now that its first offer is known, and how usual its limit is."""
        facts, kinds = self.facts, len(self.floors)
        if facts.buys:  # the counterpart sells, from the list price
            self.start = np.full(self.weight.shape, float(facts.listed))
        elif offer is None:
            self.start = np.full(self.weight.shape, BLIND * facts.listed)
        else:
            self.start = np.full(self.weight.shape, float(offer))
        low, high = facts.theirs(offer)
        usual = (self.limits >= low - self.step) & (self.limits <= high + self.step)
        prior = np.where(usual, USUAL / max(1, usual.sum()), 0) + (1 - USUAL) / len(self.limits)
        if not facts.buys:  # it begins below its limit
            prior = np.where(self.limits > (offer or 0), prior, 1e-9)
        ways = np.array([(1 - KIND) / len(EXPONENTS)] * len(EXPONENTS) + [KIND / kinds] * kinds)
        self.weight = ways[:, None] * (prior / prior.sum())

    def price(self, place: np.ndarray) -> np.ndarray:
        """The prices at places between limit and opening: (K, H)."""
        return self.limits + place * (self.start - self.limits)

    def place(self, price: float | np.ndarray) -> np.ndarray:
        """Where a price lies for those who concede in kind: (K', H)."""
        span = self.start[len(EXPONENTS) :] - self.limits
        return (price - self.limits) / np.where(span == 0, 1, span)

    def base(self) -> np.ndarray:
        """Where they count our concessions from, in their utility: our first offer, as far as it can be meant."""
        serious = self.limits / SERIOUS if self.facts.buys else self.limits * SERIOUS
        first = serious if not self.made else np.full(len(serious), float(self.made[0]))
        meant = np.maximum(first, serious) if self.facts.buys else np.minimum(first, serious)
        return self.floors + (1 - self.floors) * self.place(meant)

    def asks(self, time: float) -> np.ndarray:
        """The places that the hypotheses ask for at their own time from 0 to 1: (K, H)."""
        by_clock = np.repeat([[1 - time**exponent] for exponent in EXPONENTS], len(self.limits), axis=1)
        given: np.ndarray | float = 0.0
        if self.made:
            most = max(self.made) if self.facts.buys else min(self.made)
            given = np.maximum(0, self.floors + (1 - self.floors) * self.place(most) - self.base())
        wanted = IN_KIND[0] if self.told else 1.0  # goodwill comes after its first offer
        in_kind = np.maximum(0, (wanted - given - self.floors) / (1 - self.floors))
        return np.vstack([by_clock, np.broadcast_to(in_kind, (len(self.floors), len(self.limits)))])

    def takes(self, time: float) -> np.ndarray:
        """The worst prices that the hypotheses take at their time: (K, H). In kind, what it would ask for next."""
        places = self.asks(time)
        enough = np.maximum(0, ((IN_KIND[0] + self.base()) / 2 - self.floors) / (1 - self.floors))
        places[len(EXPONENTS) :] = np.minimum(places[len(EXPONENTS) :], enough)
        cell = (self.step - self.tick) / 2 * (1 - places)  # a limit stands for its whole cell: the far end of it
        return self.price(places) + (cell if self.facts.buys else -cell)

    def anchor(self, deals: Prices) -> int:
        """A first offer that nobody takes: low enough to be conceded from, still one that can be meant."""
        if not self.facts.buys:
            return int(deals.start)
        order = np.cumsum(self.weight.sum(0))
        low = self.limits[np.searchsorted(order, 0.1 * order[-1])]
        return min(int(deals.start), deals.rounded(low / SERIOUS))

    def update(self, time: float, refused: int | None, offer: int | None) -> None:
        """The counterpart moved at its `time`: it did not take our offer `refused`, and made `offer`."""
        sign = 1 if self.facts.buys else -1
        if refused is not None:
            taken = sign * (refused - self.takes(time)) >= -1e-6
            self.weight *= np.where(taken, REFUSES, 1.0)
        if offer is not None:
            places = self.asks(time)
            far = offer - sign * self.tick / 2 - self.price(places)  # offers are rounded by half a tick on average
            wide = self.tick / 2 + self.step / 2 * (1 - places)
            listed = self.facts.listed
            exact = np.exp(-((far / wide) ** 2)) / wide
            self.weight *= (1 - SURPRISE) * exact + SURPRISE * np.exp(-np.abs(far) / (SOFT * listed)) / listed
        self.weight /= self.weight.sum()


def plan(state: State) -> Choice:
    """The planner's move."""
    from envs.agents.scripted import Choice

    deals = state.deals
    assert isinstance(deals, Prices)
    belief = state.memory = state.memory or Belief(deals)
    _learn(belief, state)
    pays, left = deals.facts.pays, state.turn["replies_left"]
    standing = state.standing
    if standing is not None and deals.better(standing, deals.limit) < 0:
        standing = None
    if not left:
        return Choice("walk_away" if standing is None else "accept")

    weight, finally_ = belief.weight.ravel(), belief.takes(1.0).ravel()  # (N,), N = K H
    if left == 1:
        takes = finally_
        later = np.zeros(len(weight))
        if state.turn["moves_left"] > 1:
            later = _within(deals, belief.price(belief.asks(1.0)).ravel())
    else:
        takes = belief.takes(_time(state, 1)).ravel()
        later = PATIENCE * _within(deals, finally_)
    prices = _candidates(deals, np.concatenate([takes, finally_]))  # (D,)
    chance, otherwise = _taken(deals, prices, takes, weight, later)
    value = chance * pays(prices) + otherwise
    if standing is not None and pays(np.array([standing]))[0] >= value.max():
        return Choice("accept")
    if not state.made and left >= EARLY:
        return Choice("propose", belief.anchor(deals))
    close = np.flatnonzero(value >= value.max() - CLOSE * pays(np.array([deals.start]))[0])
    hope = _taken(deals, prices[close], finally_, weight, later)[0] * pays(prices[close])
    deal = int(prices[close[hope.argmax()]])
    return Choice("propose", deal)


def _within(deals: Prices, prices: np.ndarray) -> np.ndarray:
    """What prices pay, those beyond the own limit nothing."""
    good = prices <= deals.limit + 1e-6 if deals.facts.buys else prices >= deals.limit - 1e-6
    return np.where(good, np.maximum(0, deals.facts.pays(prices)), 0.0)


def _candidates(deals: Prices, takes: np.ndarray) -> np.ndarray:
    """Round prices that would just be taken, from the one that pays in full to the own limit, and these two."""
    step, sign = deals.tick, 1 if deals.facts.buys else -1
    rounded = sign * np.ceil((sign * takes - 1e-6) / step) * step
    ends = [float(deals.facts.full), float(deals.limit)]
    return np.unique(np.concatenate([rounded[(rounded >= min(ends)) & (rounded <= max(ends))], ends]))


def _taken(
    deals: Prices, prices: np.ndarray, takes: np.ndarray, weight: np.ndarray, later: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """For each price the chance that it is taken, and what is expected later from those who do not take it."""
    sign = 1 if deals.facts.buys else -1
    order = np.argsort(sign * takes)
    number = np.searchsorted(sign * takes[order], sign * prices + 1e-6, side="right")
    chance = np.concatenate([[0.0], np.cumsum(weight[order])])
    waits = np.concatenate([[0.0], np.cumsum((weight * later)[order])])
    return chance[number], waits[-1] - waits[number]


def _learn(belief: Belief, state: State) -> None:
    """Look at the counterpart's one move since our last turn, if there was one."""
    belief.made = state.made
    if state.turn["replies_left"] < state.turn["limit"]:  # an opening that was made for it says nothing
        offer = state.received[-1] if len(state.received) > belief.told else None
        if not belief.told and offer is not None:
            belief.open(offer)
        belief.update(_time(state, 0), state.made[-1] if state.made else None, offer)
    belief.told = len(state.received)


def _time(state: State, ahead: int) -> float:
    """The counterpart's own time at its previous move (ahead 0) or at its next one (ahead 1)."""
    limit = state.turn["limit"]
    round = limit - state.turn["replies_left"] + ahead  # of the counterpart, from 1
    return (round - 1) / (limit - 1) if limit > 1 else 1.0
