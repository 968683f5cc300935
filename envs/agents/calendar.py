"""The slots of a calendar for scripted participants, who look at their calendar before anything else.

A slot is worth its value to the seat; a busy one is never proposed nor accepted. What is free for the counterpart is
not known before it proposes it, so nobody insists on a slot that was not taken: an equal or a better one that has not
been proposed comes first, and at the last move one that the counterpart has proposed itself.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from envs.agents.deals import SLACK, Deals
from scenarios.calendar import SLOTS

if TYPE_CHECKING:
    from envs.agents.scripted import State

NEEDS = "calendar"  # the event without which there are no deals: what a look is answered with
BUSY = -1.0  # utility of a slot that cannot be had
DAYS = 512  # calendars that the counterpart may have, drawn once
FREE = 0.5  # how likely a slot is free for it


class Slots(Deals):
    """The eleven slots, of which `open` are free for the seat."""

    def __init__(self, open_slots: tuple[str, ...], **described: Any) -> None:
        super().__init__(**described)
        self.open = [SLOTS.index(slot) for slot in open_slots]

    def draw(self, rng: random.Random) -> int:
        return rng.choice(self.open)

    def ask_for(self, aspiration: float, state: State) -> int:
        """A slot worth the aspiration that has not been proposed, the one worth least (see the module)."""
        wanted = [deal for deal in self.open if self.mine[deal] >= aspiration - SLACK] or [self.best]
        fresh = [deal for deal in wanted if deal not in state.made]
        possible = [deal for deal in wanted if deal in state.received]
        pool = (possible or fresh if state.turn["moves_left"] == 1 else fresh or possible) or wanted
        least = min(self.mine[deal] for deal in pool)
        return state.rng.choice([deal for deal in pool if self.mine[deal] <= least + SLACK])


def deals(known: Mapping[str, Any]) -> Slots:
    """The slots of a seat, from its briefing and its look at its calendar."""
    values = known["values"]
    titles = tuple(entry["title"] for entry in known["entries"] if entry["secret"])
    return _deals(known["seat"], tuple(values[slot] for slot in SLOTS), tuple(known["free"]), titles)


@lru_cache(maxsize=4096)
def _deals(seat: str, values: tuple[float, ...], open_slots: tuple[str, ...], titles: tuple[str, ...]) -> Slots:
    told = [f"{slot} is worth {value:g} to me." for slot, value in zip(SLOTS, values, strict=True)]
    return Slots(
        open_slots,
        offers=[{"slot": slot} for slot in SLOTS],
        mine=[value if slot in open_slots else BUSY for slot, value in zip(SLOTS, values, strict=True)],
        guess=np.zeros(len(SLOTS)),
        guessed=np.zeros(len(SLOTS)),
        find=lambda given: SLOTS.index(given["slot"]),
        theirs=lambda: conceivable(values),
        secrets=told + [f"I have {title} at ten, so not then." for title in titles],
        about=["that hour"] * len(SLOTS),
        speech="meeting",
    )


def conceivable(values: tuple[float, ...]) -> np.ndarray:
    """What the slots may be worth to the counterpart, whose values run against these: (DAYS, slots)."""
    rng = np.random.default_rng(0)
    return np.where(rng.random((DAYS, len(values))) < FREE, 1 - np.array(values), BUSY)
