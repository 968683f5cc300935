"""Products with the history of their prices (AmazonHistoryPrice) as marketplace scenarios.

One JSON object a line: title, category, list_price, current_price, lowest_price, highest_price, average_price, and
`raw` with the same as printed ("$1,299.00"). The rule: the list price is public, the buyer's reservation is the
current price and the seller's the lowest that there was. A product that now costs its lowest price, or no less than
its list price, leaves nothing to bargain about and is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from scenarios import marketplace
from scenarios.core import Problem, Scenario
from scenarios.importers.core import Imported, Odd, records
from scenarios.importers.shapes import a_text, an_object
from scenarios.jsonfile import shown
from scenarios.money import amount_fault, written

ENV = "marketplace"
FORMATS = ("products",)
PRICES = ("list_price", "current_price", "lowest_price", "highest_price", "average_price")

WHY = {
    "highest_below_list": "it never cost its list price",
    "thousands": "a price is printed with a thousands comma",
    "non_ascii": "the title holds letters beyond ASCII",
}


def read(paths: Sequence[str | PathLike[str]], format: str | None = None) -> Imported:
    """The products of some files. Raises `DataError` where a file cannot be read."""
    found = Imported()
    for path in map(str, paths):
        found.formats[path] = "products"
        for number, value, fault in records(path):
            found.rows += 1
            try:
                if fault:
                    raise ValueError(fault)
                scenario, odd = product(value, f"amazon_history_price:{Path(path).name}:{number}")
            except ValueError as error:
                found.bad.append(Problem(path, number, str(error)))
                continue
            found.games += 1
            found.keep(scenario)
            found.odd += [Odd(path, number, kind, WHY[kind]) for kind in odd]
    return found


def product(row: Any, source: str) -> tuple[Scenario, list[str]]:
    """The scenario of a row and what is odd about it. Raises `ValueError`."""
    row = an_object(row, "the record")
    for key in ("title", "category"):
        a_text(row.get(key), key)
    prices: dict[str, Any] = {key: row.get(key) for key in PRICES}
    for key, price in prices.items():
        if fault := amount_fault(price):
            raise ValueError(f"{key} {fault}")
    raw = an_object(row.get("raw", {}), "raw")
    for key, text in raw.items():
        if key in prices and _printed(text) != prices[key]:
            raise ValueError(f"{key} is {shown(prices[key])}, but printed as {shown(text)}")
    listed, current, lowest, highest, average = (prices[key] for key in PRICES)
    if not lowest <= min(current, average) <= max(current, average) <= highest:
        raise ValueError(f"lowest {lowest}, current {current}, average {average}, highest {highest} are not in order")
    if current <= lowest:
        raise ValueError(f"no room to bargain: it costs its lowest price {written(lowest)} now")
    if current >= listed:
        raise ValueError(
            f"no room to bargain: it costs {written(current)}, not less than its list price {written(listed)}"
        )
    title = " ".join(row["title"].split())
    fields = {
        "product": {"name": title, "description": f"A product of the category {row['category']}."},
        "list_price": listed,
        "reservation": {"seller": lowest, "buyer": current},
    }
    odd = ["highest_below_list"] if highest < listed else []
    odd += ["thousands"] if any("," in str(text) for text in raw.values()) else []
    odd += [] if title.isascii() else ["non_ascii"]
    return marketplace.build(fields, split=marketplace.home(title), source=source), odd


def _printed(text: Any) -> float | None:
    """The number in "$1,299.00"; None where there is none."""
    try:
        return float(str(text).strip().lstrip("$").replace(",", ""))
    except ValueError:
        return None
