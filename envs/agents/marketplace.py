"""The prices of the marketplace for scripted participants: each runs to its reservation price."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from envs.agents.prices import ANCHOR, Facts, Prices
from scenarios.money import from_cents, tick, to_cents, written


def deals(briefing: Mapping[str, Any]) -> Prices:
    """The prices of a seat, from its briefing."""
    listed, reservation = to_cents(briefing["list_price"]), to_cents(briefing["reservation"])
    return _deals(briefing["seat"] == "buyer", listed, reservation)


@lru_cache(maxsize=4096)
def _deals(buys: bool, listed: int, reservation: int) -> Prices:
    number = written(from_cents(reservation))
    verb, end = ("pay", "most") if buys else ("take", "least")
    sign = 1 if buys else -1
    possible = (0.02 * reservation, reservation) if buys else (reservation, listed)

    def theirs(offer: float | None) -> tuple[float, float]:
        if buys or offer is None:
            return possible
        return max(reservation, offer / ANCHOR[1]), min(listed, offer / ANCHOR[0])

    return Prices(
        Facts(
            buys=buys,
            listed=listed,
            private=reservation,
            limit=lambda rng, start, floor: reservation - floor * (reservation - start),
            floors=(0.0,),
            pays=lambda price: sign * (reservation - price) / reservation,
            full=tick(from_cents(listed)) if buys else listed,
            theirs=theirs,
            possible=possible,
            their_floors=(0.0,),
            secrets=(f"I can {verb} {number} at {end}.", f"My limit is {number}.", f"For me {number} is the end."),
        )
    )
