"""Craigslist: a buyer and a seller haggle about a posted listing.

The listing price is public and is the seller's target; the buyer's target, below it, is the buyer's own. Amounts
are money with at most two decimals (`scenarios/money.py`). Listings are told apart by their titles; one stands in
one split only. How a game is played is in `envs/craigslist.py`, how it is paid in `rewards/craigslist.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from scenarios import wording
from scenarios.core import Scenario, split_of
from scenarios.jsonfile import shown
from scenarios.money import amount_fault, from_cents, tick, to_cents, written

CATEGORIES = ("bike", "car", "electronics", "furniture", "housing", "phone")
SEATS = ("buyer", "seller")
RATIO = (0.5, 0.9)  # of the buyer's target to the listing price, in generated scenarios

FIELDS = ("category", "title", "description", "listing_price", "buyer_target")
REWARD_FIELDS = ("listing_price", "buyer_target")


def check(fields: Mapping[str, Any]) -> list[str]:
    """What is wrong with a listing and its prices."""
    found = []
    if "category" in fields and fields["category"] not in CATEGORIES:
        found.append(f"category is {shown(fields['category'])}, expected {', '.join(CATEGORIES)}")
    for key in ("title", "description"):
        if key in fields and not (isinstance(fields[key], str) and fields[key].strip()):
            found.append(f"{key} is {shown(fields[key])}, expected a text")
    faults = {key: amount_fault(fields[key]) for key in REWARD_FIELDS}
    found += [f"{key} {fault}" for key, fault in faults.items() if fault]
    if not any(faults.values()) and fields["buyer_target"] >= fields["listing_price"]:
        target, price = fields["buyer_target"], fields["listing_price"]
        found.append(f"buyer_target {shown(target)} is not below listing_price {shown(price)}")
    return found


def build(fields: Mapping[str, Any], *, split: str, source: str) -> Scenario:
    """A scenario that is named by its listing and prices."""
    prices = [written(fields[key]) for key in REWARD_FIELDS]
    name = "-".join(["craigslist", wording.slug(fields["title"], wording.ID_CHARS), *prices])
    return Scenario(name, "craigslist", split, source, {key: fields[key] for key in FIELDS})


def group(title: str) -> str:
    """The listing, as far as a title tells."""
    return f"craigslist {wording.slug(title)}"


def groups(fields: Mapping[str, Any]) -> tuple[str, ...]:
    return (group(fields["title"]),)


def home(title: str) -> str:
    """The split of a listing: the one that our pool gives it, for others by content."""
    return _pooled().get(group(title)) or split_of(group(title))


def generate(n: int, seed: int, split: str) -> Iterator[Scenario]:
    """Scenarios of the split's listings in turn, without end: prices and description are drawn, ids distinct."""
    rows = wording.pool("craigslist")
    remarks = {row["category"]: row["remarks"] for row in rows if "remarks" in row}
    listings = [row for row in rows if row.get("split") == split]
    random.Random(f"{seed} {split} order").shuffle(listings)
    describe = wording.Describer()
    seen: set[str] = set()
    for number in range(1 << 20):
        rng = random.Random(f"{seed} {split} {number}")
        row = listings[number % len(listings)]
        price = draw_price(rng, *row["prices"])
        step = max(100, tick(from_cents(price)) // 10)
        target = min(price - step, step * round(price * rng.uniform(*RATIO) / step))
        fields = {
            "category": row["category"],
            "title": row["title"],
            "description": describe(row["title"], row["facts"], remarks[row["category"]], rng),
            "listing_price": from_cents(price),
            "buyer_target": from_cents(target),
        }
        scenario = build(fields, split=split, source=f"generator:craigslist:seed={seed}")
        if scenario.id not in seen:
            seen.add(scenario.id)
            yield scenario


def draw_price(rng: random.Random, low: float, high: float) -> int:
    """A price in cents between two amounts, as people ask for: in steps of 1, 5, 10, 50, 100, …, and rather low."""
    drawn = low * (high / low) ** rng.random()
    step = max(100, 5 * tick(drawn))
    return max(step, step * round(to_cents(drawn) / step))


def summary(fields: Mapping[str, Any]) -> str:
    price, target = (written(fields[key]) for key in REWARD_FIELDS)
    return f"{fields['category']}: {fields['title']} · listed at {price} · the buyer hopes for {target}"


@cache
def _pooled() -> dict[str, str]:
    """The splits of our own listings, by group."""
    return {group(row["title"]): row["split"] for row in wording.pool("craigslist") if "title" in row}
