"""The planner: a belief about the counterpart, and the proposal that is best under it. The strong reference.

A hypothesis is a pair of what the counterpart values (a row of `Deals.theirs`) and how it concedes: by a clock
(exponent and floor) or in kind. Each predicts which offer comes next and which of ours would be accepted, so
every offer and every refusal changes its weight. For each proposal d the planner expects

    Q(d) = Σ_n w_n [accepts_n(d) · u(d) + (1 - accepts_n(d)) · V_n]

V_n is what can still be had under hypothesis n: the best deal that it accepts at its last move, or, when this is
the last proposal that will be answered, what it offers itself. The planner takes the standing offer when that is
worth the best Q, and never goes under its floor.

    K ways to concede, H conceivable utilities, D deals
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from envs.agents.deals import SLACK, Deals

if TYPE_CHECKING:
    from envs.agents.scripted import Choice, State

WAYS: tuple[tuple[float, float], ...] = (  # exponent, floor
    *((e, f) for e in (4.0, 1.0, 0.25) for f in (0.2, 0.3, 0.4)),
    (4.0, 0.6),
)
IN_KIND = (0.9, 0.3)  # first demand and floor of who gives as it is given; the last of the K ways
KIND = 0.25  # how likely that is beforehand
SURPRISE = 0.1  # share of offers that no way explains
REFUSES = 0.03  # chance that an offer worth the aspiration is refused all the same
SOFT = 0.15  # how far from the aspiration a surprising offer is thought to be
PATIENCE = 0.98  # what a later deal is worth, for all that may go wrong until then
CLOSE = 0.004  # proposals whose Q differs by less are the same; the likeliest one is made


class Belief:
    """Weights of all hypotheses, and the planner's own offers, which move those who concede in kind."""

    def __init__(self, deals: Deals) -> None:
        self.theirs, self.mine, self.guessed = _arrays(deals)
        ways = np.array([(1 - KIND) / len(WAYS)] * len(WAYS) + [KIND])
        self.weight = np.repeat(ways[:, None], len(self.theirs), axis=1) / len(self.theirs)  # (K, H)
        self.best_given = np.zeros(len(self.theirs))  # (H,) the most that own offers gave
        self.told = 0  # offers received that have been looked at

    def aspirations(self, time: float) -> np.ndarray:
        """What each hypothesis wants at its own time from 0 to 1: (K, H)."""
        rows = [np.full(len(self.theirs), f + (1 - f) * (1 - time**e)) for e, f in WAYS]
        first, floor = IN_KIND
        return np.stack([*rows, np.maximum(floor, first - self.best_given)])

    def update(self, time: float, refused: int | None, offer: int | None) -> None:
        """The counterpart moved at its `time`: it did not take our offer `refused`, and made `offer`."""
        wants = self.aspirations(time)[:, :, None]  # (K, H, 1)
        if refused is not None:
            accepts = self.theirs[None, :, refused] >= wants[:, :, 0] - SLACK  # (K, H)
            self.weight *= np.where(accepts, REFUSES, 1.0)
        if offer is not None:
            choices = self.choices(wants)  # (K, H, D)
            exact = choices[:, :, offer] / choices.sum(-1)
            far = np.abs(self.theirs[:, offer] - wants[:, :, 0])
            self.weight *= (1 - SURPRISE) * exact + SURPRISE * np.exp(-far / SOFT) / len(self.mine)
        self.weight /= self.weight.sum()

    def choices(self, wants: np.ndarray) -> np.ndarray:
        """Which deals each hypothesis would propose: least to itself, then most to us by a guess: (K, H, D)."""
        theirs = np.where(self.theirs >= wants - SLACK, self.theirs, np.inf)
        least = theirs <= theirs.min(-1, keepdims=True) + SLACK
        generous = np.where(least, self.guessed, -np.inf)
        return generous >= generous.max(-1, keepdims=True) - SLACK

    def accepts(self, time: float) -> np.ndarray:
        """Which of our offers each hypothesis would take at its `time`: (K, H, D)."""
        wants = np.repeat(self.aspirations(time)[:, :, None], len(self.mine), axis=2)
        first, floor = IN_KIND
        wants[-1] = np.maximum(floor, np.minimum(wants[-1], first - self.theirs))
        return self.theirs >= wants - SLACK


def plan(state: State) -> Choice:
    """The planner's move."""
    from envs.agents.scripted import Choice

    deals = state.deals
    assert isinstance(deals, Deals)
    belief = state.memory = state.memory or Belief(deals)
    _learn(belief, state)
    mine, standing, left = belief.mine, state.standing, state.turn["replies_left"]
    worth = -1.0 if standing is None else mine[standing]
    least = max(state.floor, deals.outside)
    if not left:
        return Choice("accept" if worth >= least - SLACK else "walk_away")

    weight = belief.weight[:, :, None]  # (K, H, 1)
    finally_ = belief.accepts(1.0)
    if left == 1:
        accepts = finally_
        later = np.zeros(belief.weight.shape)  # (K, H): their last offer, when the last word is ours
        if state.turn["moves_left"] > 1:
            choices = belief.choices(belief.aspirations(1.0)[:, :, None])
            later = (choices * np.where(mine >= least - SLACK, mine, 0.0)).sum(-1) / choices.sum(-1)
    else:
        accepts = belief.accepts(_time(state, 1))
        later = PATIENCE * (finally_ * mine).max(-1)
    value = (weight * np.where(accepts, mine, later[:, :, None])).sum((0, 1))  # (D,)
    value = np.where(mine >= least - SLACK, value, -1.0)
    if worth >= least - SLACK and worth >= value.max():
        return Choice("accept")
    close = np.flatnonzero(value >= value.max() - CLOSE)
    hope = (weight * finally_).sum((0, 1))[close] * mine[close]
    deal = int(close[hope.argmax()])
    belief.best_given = np.maximum(belief.best_given, belief.theirs[:, deal])
    return Choice("propose", deal)


def _learn(belief: Belief, state: State) -> None:
    """Look at the counterpart's one move since our last turn, if there was one."""
    offer = state.received[-1] if len(state.received) > belief.told else None
    belief.told = len(state.received)
    if state.turn["replies_left"] == state.turn["limit"]:
        return  # it has not moved yet; an opening that was made for it says nothing
    time = _time(state, 0)
    belief.update(time, state.made[-1] if state.made else None, offer)


def _time(state: State, ahead: int) -> float:
    """The counterpart's own time at its previous move (ahead 0) or at its next one (ahead 1)."""
    limit = state.turn["limit"]
    round = limit - state.turn["replies_left"] + ahead  # of the counterpart, from 1
    return (round - 1) / (limit - 1) if limit > 1 else 1.0


@lru_cache(maxsize=1024)
def _arrays(deals: Deals) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.array(deals.theirs, dtype=float), np.array(deals.mine), np.array(deals.guessed)
