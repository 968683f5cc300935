"""The prices of Craigslist for scripted participants.

A buyer's utility is its reward: 1 at its target, 0 at the listing price, so with a floor f it pays at most the
listing price less f of the way down to its target. A seller's lowest price is drawn: .5 to .8 of the listing price.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from envs.agents.deals import FLOORS
from envs.agents.prices import ANCHOR, Facts, Prices
from scenarios.craigslist import RATIO
from scenarios.money import from_cents, tick, to_cents, written

LOWEST = (0.5, 0.8)  # of the listing price: a seller's lowest


def deals(briefing: Mapping[str, Any]) -> Prices:
    """The prices of a seat, from its briefing."""
    return _deals(to_cents(briefing["listing_price"]), to_cents(briefing["target"]) if "target" in briefing else None)


@lru_cache(maxsize=4096)
def _deals(listed: int, target: int | None) -> Prices:
    if target is None:
        return Prices(_seller(listed))
    number = written(from_cents(target))
    return Prices(
        Facts(
            buys=True,
            listed=listed,
            private=target,
            limit=lambda rng, start, floor: listed - floor * (listed - target),
            floors=FLOORS,
            pays=lambda price: np.clip((listed - price) / (listed - target), 0, 1),
            full=max(1, target - tick(from_cents(listed))),  # not the private number itself
            theirs=lambda offer: (LOWEST[0] * listed, LOWEST[1] * listed),
            possible=(0.02 * listed, listed),
            their_floors=(0.0,),
            secrets=(f"I hope to pay {number}.", f"My target is {number}.", f"For me {number} would be right."),
        )
    )


def _seller(listed: int) -> Facts:
    step = tick(from_cents(listed))
    targets = np.linspace(RATIO[0], RATIO[1], 9)[:, None] * listed  # what the buyer may hope for

    def lowest(rng: random.Random, start: float, floor: float) -> float:
        cents = step * round(listed * rng.uniform(*LOWEST) / step)
        return cents + floor * (listed - cents)

    def pays(price: Any) -> Any:
        return np.clip((np.asarray(price) - targets) / (listed - targets), 0, 1).mean(0)

    def most(offer: float | None) -> tuple[float, float]:
        low, high = (share * listed for share in RATIO)  # the buyer's target
        if offer is not None:
            low, high = max(low, offer / ANCHOR[1]), min(high, offer / ANCHOR[0])
        return listed - FLOORS[-1] * (listed - low), listed - FLOORS[0] * (listed - high)

    number = written(from_cents(listed))
    return Facts(
        buys=False,
        listed=listed,
        private=None,
        limit=lowest,
        floors=(0.0,),
        pays=pays,
        full=listed,
        theirs=most,
        possible=(0.1 * listed, listed),
        their_floors=FLOORS,
        secrets=(f"I hope to get {number}.", f"My target is {number}.", f"For me {number} would be right."),
    )
