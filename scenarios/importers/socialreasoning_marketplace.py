"""A marketplace task of SocialReasoning-Bench as a scenario.

The product's description is the paragraph "Product details" of the instructions; all else in them (backgrounds,
reasons for the limits, orders to a malicious party) is private to a side and left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from scenarios import marketplace
from scenarios.core import Scenario
from scenarios.importers.shapes import a_text, an_object

_DETAILS = re.compile(r"Product details:\s*([^\n]+)")  # YAML has joined the lines of a paragraph


def scenario(task: Mapping[str, Any], source: str) -> Scenario:
    """The scenario of a task of the type `marketplace`. Raises `ValueError` with what is wrong with it."""
    parts = {key: an_object(task.get(key), key) for key in ("product", "seller", "buyer")}
    name = a_text(parts["product"].get("name"), "product.name")
    if "listed_price" not in parts["product"]:
        raise ValueError("product.listed_price is missing")
    fields = {
        "product": {"name": " ".join(name.split()), "description": _details(parts) or name.strip()},
        "list_price": _number(parts["product"]["listed_price"]),
        "reservation": {seat: _number(parts[seat].get("reservation_price")) for seat in ("seller", "buyer")},
    }
    faults = marketplace.check(fields)
    if faults:
        raise ValueError("; ".join(faults))
    return marketplace.build(fields, split=marketplace.home(fields["product"]["name"]), source=source)


def _details(parts: Mapping[str, Mapping[str, Any]]) -> str:
    """What is public about the product."""
    for seat in ("buyer", "seller"):
        message = parts[seat].get("instruction_message")
        if isinstance(message, str) and (found := _DETAILS.search(message)):
            return " ".join(found[1].split())
    return ""


def _number(value: Any) -> Any:
    """A price without needless decimals; anything else as it is, to be refused by the check."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
