"""The planner: a belief about the counterpart, and the proposal that is best under it. The strong reference.

A hypothesis is a pair of what the counterpart values and how it concedes: by a clock or in kind (`beliefs.py`). Each
predicts which offer comes next and which of ours would be accepted, so every offer and every refusal changes what is
believed. For each proposal d the planner expects

    Q(d) = Σ_n w_n [accepts_n(d) · u(d) + (1 - accepts_n(d)) · V_n]

V_n is what can still be had under hypothesis n: the best deal that it accepts at its last move, or, when this is
the last proposal that will be answered, what it offers itself. The planner takes the standing offer when that is
worth the best Q, and never goes under its floor.

    K ways to concede, H utilities of the counterpart, D deals
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from envs.agents.beliefs import Linear, Table, belief
from envs.agents.deals import SLACK, Deals

if TYPE_CHECKING:
    from envs.agents.scripted import Choice, State

PATIENCE = 0.98  # what a later deal is worth, for all that may go wrong until then
CLOSE = 0.004  # proposals whose Q differs by less are the same; the likeliest one is made


def plan(state: State) -> Choice:
    """The planner's move."""
    from envs.agents.scripted import Choice

    deals = state.deals
    assert isinstance(deals, Deals)
    believed: Table | Linear = state.memory or belief(deals)
    state.memory = believed
    _learn(believed, state)
    mine, left = believed.mine, state.turn["replies_left"]
    worth = -1.0 if state.standing is None else deals.mine[state.standing]
    least = max(state.floor, deals.outside)
    if not left:
        return Choice("accept" if worth >= least - SLACK else "walk_away")

    weight = believed.weight[:, :, None]  # (K, H, 1)
    finally_ = believed.accepts(1.0)
    if left == 1:
        accepts = finally_
        later = np.zeros(believed.weight.shape)  # (K, H): their last offer, when the last word is ours
        if state.turn["moves_left"] > 1:
            later = believed.last_offer(least)
    else:
        accepts = believed.accepts(_time(state, 1))
        later = PATIENCE * (finally_ * mine).max(-1)
    value = (weight * np.where(accepts, mine, later[:, :, None])).sum((0, 1))  # (D,)
    value = np.where(mine >= least - SLACK, value, -1.0)
    if worth >= least - SLACK and worth >= value.max():
        return Choice("accept")
    close = np.flatnonzero(value >= value.max() - CLOSE)
    hope = (weight * finally_).sum((0, 1))[close] * mine[close]
    deal = int(believed.deals[close[hope.argmax()]])
    believed.made(deal)
    return Choice("propose", deal)


def _learn(believed: Table | Linear, state: State) -> None:
    """Look at the counterpart's one move since our last turn, if there was one."""
    offer = state.received[-1] if len(state.received) > believed.told else None
    believed.told = len(state.received)
    if state.turn["replies_left"] == state.turn["limit"]:
        return  # it has not moved yet; an opening that was made for it says nothing
    time = _time(state, 0)
    believed.update(time, state.made[-1] if state.made else None, offer)


def _time(state: State, ahead: int) -> float:
    """The counterpart's own time at its previous move (ahead 0) or at its next one (ahead 1)."""
    limit = state.turn["limit"]
    round = limit - state.turn["replies_left"] + ahead  # of the counterpart, from 1
    return (round - 1) / (limit - 1) if limit > 1 else 1.0
