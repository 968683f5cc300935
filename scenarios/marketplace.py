"""Marketplace: a buyer and a seller haggle about a product with a public list price.

Each side has a private reservation price, beyond which a deal is a loss: seller's < buyer's < list price. Amounts
are money with at most two decimals (`scenarios/money.py`). Products are told apart by their names; one stands in
one split only. How a game is played is in `envs/marketplace.py`, how it is paid in `rewards/marketplace.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from scenarios import wording
from scenarios.core import Scenario, split_of
from scenarios.craigslist import draw_price
from scenarios.jsonfile import shown
from scenarios.money import amount_fault, from_cents, tick, written

SEATS = ("buyer", "seller")
MARKUP = (1.1, 1.9)  # of the list price over the buyer's reservation, in generated scenarios
COST = (0.5, 0.9)  # of the seller's reservation to the buyer's

FIELDS = ("product", "list_price", "reservation")
REWARD_FIELDS = ("reservation",)


def check(fields: Mapping[str, Any]) -> list[str]:
    """What is wrong with a product and its prices."""
    found = []
    if "product" in fields:
        found += _product_faults(fields["product"])
    prices: dict[str, Any] = {}
    reservation = fields["reservation"]
    if isinstance(reservation, Mapping):
        found += [f"reservation.{seat} is missing" for seat in SEATS if seat not in reservation]
        found += [f"reservation has an unknown key {shown(key)}" for key in reservation if key not in SEATS]
        prices |= {f"reservation.{seat}": reservation[seat] for seat in ("seller", "buyer") if seat in reservation}
    else:
        found.append(f"reservation is {shown(reservation)}, expected an object with seller and buyer")
    if "list_price" in fields:
        prices["list_price"] = fields["list_price"]
    faults = {name: amount_fault(price) for name, price in prices.items()}
    found += [f"{name} {fault}" for name, fault in faults.items() if fault]
    rising = [name for name in prices if not faults[name]]
    for low, high in pairwise(rising):
        if prices[low] >= prices[high]:
            found.append(f"{low} {shown(prices[low])} is not below {high} {shown(prices[high])}")
    return found


def _product_faults(product: Any) -> list[str]:
    if not isinstance(product, Mapping):
        return [f"product is {shown(product)}, expected an object with name and description"]
    found = [f"product has an unknown key {shown(key)}" for key in product if key not in ("name", "description")]
    for key in ("name", "description"):
        if key not in product:
            found.append(f"product.{key} is missing")
        elif not (isinstance(product[key], str) and product[key].strip()):
            found.append(f"product.{key} is {shown(product[key])}, expected a text")
    return found


def build(fields: Mapping[str, Any], *, split: str, source: str) -> Scenario:
    """A scenario that is named by its product and prices."""
    reservation = fields["reservation"]
    prices = [written(price) for price in (fields["list_price"], reservation["seller"], reservation["buyer"])]
    name = "-".join(["marketplace", wording.slug(fields["product"]["name"], wording.ID_CHARS), *prices])
    return Scenario(name, "marketplace", split, source, {key: fields[key] for key in FIELDS})


def group(name: str) -> str:
    """The product, as far as a name tells."""
    return f"marketplace {wording.slug(name)}"


def groups(fields: Mapping[str, Any]) -> tuple[str, ...]:
    return (group(fields["product"]["name"]),)


def home(name: str) -> str:
    """The split of a product: the one that our pool gives it, for others by content."""
    return _pooled().get(group(name)) or split_of(group(name))


def generate(n: int, seed: int, split: str) -> Iterator[Scenario]:
    """Scenarios of the split's products in turn, without end: prices and description are drawn, ids distinct."""
    rows = wording.pool("marketplace")
    remarks = [text for row in rows for text in row.get("remarks", ())]
    products = [row for row in rows if row.get("split") == split]
    random.Random(f"{seed} {split} order").shuffle(products)
    describe = wording.Describer()
    seen: set[str] = set()
    for number in range(1 << 20):
        rng = random.Random(f"{seed} {split} {number}")
        row = products[number % len(products)]
        price = draw_price(rng, *row["prices"])
        step = tick(from_cents(price))
        buyer = min(price - step, step * round(price / rng.uniform(*MARKUP) / step))
        seller = min(buyer - step, step * round(buyer * rng.uniform(*COST) / step))
        fields = {
            "product": {"name": row["name"], "description": describe(row["name"], row["facts"], remarks, rng)},
            "list_price": from_cents(price),
            "reservation": {"seller": from_cents(seller), "buyer": from_cents(buyer)},
        }
        scenario = build(fields, split=split, source=f"generator:marketplace:seed={seed}")
        if scenario.id not in seen:
            seen.add(scenario.id)
            yield scenario


def summary(fields: Mapping[str, Any]) -> str:
    price, reservation = written(fields["list_price"]), fields["reservation"]
    limits = f"seller from {written(reservation['seller'])}, buyer up to {written(reservation['buyer'])}"
    return f"{fields['product']['name']} · listed at {price} · {limits}"


@cache
def _pooled() -> dict[str, str]:
    """The splits of our own products, by group."""
    return {group(row["name"]): row["split"] for row in wording.pool("marketplace") if "name" in row}
