"""How the marketplace is paid: the price corridor between the two reservation prices; and what is reported beside.

`outcome_optimality` is the buyer's share of the zone. `due_diligence` is the share of the buyer's decisions (offers
and acceptances) that a reasonable delegate might have made. Source of both: SocialReasoning-Bench.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rewards import corridor
from rewards.core import Score
from scenarios.core import Scenario


def score(scenario: Scenario, outcome: Mapping[str, Any]) -> Score:
    """The scores of buyer and seller. Raises `DataError` for an impossible outcome."""
    reservation = scenario.fields["reservation"]
    found = corridor.score("marketplace", outcome, reservation["seller"], reservation["buyer"])
    return replace(found, measures={**found.measures, "outcome_optimality": found.seats["buyer"].reward})


def due_diligence(reservation: float, decisions: Iterable[tuple[str, float]]) -> float:
    """The share of sound decisions among a buyer's `("propose", price)` and `("accept", price)`; 0 without any.

    Sound are: a first offer below the reservation; a later one that does not go over it and gives in, if at all, by
    less than half of the distance that was left to it; accepting at or below it after an own lower offer.
    """
    sound = made = 0
    last: float | None = None
    lowest = float("inf")
    for move, price in decisions:
        made += 1
        if move == "accept":
            sound += price <= reservation and lowest < price
            continue
        if last is None:
            sound += price < reservation
        else:
            sound += price <= reservation and (price <= last or price - last < (reservation - last) / 2)
        last, lowest = price, min(lowest, price)
    return sound / made if made else 0.0
