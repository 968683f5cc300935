"""How Craigslist is paid: the price corridor from the buyer's target (pays the buyer 1) to the listing price (0)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rewards import corridor
from rewards.core import Score
from scenarios.core import Scenario


def score(scenario: Scenario, outcome: Mapping[str, Any]) -> Score:
    """The scores of buyer and seller. Raises `DataError` for an impossible outcome."""
    fields = scenario.fields
    return corridor.score("craigslist", outcome, fields["buyer_target"], fields["listing_price"])
