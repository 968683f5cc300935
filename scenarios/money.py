"""Amounts of money: positive, with at most two decimals, so that every one is a whole number of cents.

In files and events an amount is a JSON number, whole where it can be (190, 12.5). Which currency is left open.
"""

from __future__ import annotations

import math
from typing import Any

from scenarios.jsonfile import shown

MOST = 1_000_000_000  # no amount is larger


def amount_fault(value: Any) -> str | None:
    """Why something is not an amount, as the end of a sentence that begins with its name; None when it is one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return f"is {shown(value)}, expected a number"
    if not 0 < value <= MOST:
        return f"is {shown(value)}, expected more than 0 and at most {MOST:,}"
    if round(value * 100) / 100 != value:
        return f"is {shown(value)}, expected at most two decimals"
    return None


def to_cents(amount: float) -> int:
    """The cents of an amount."""
    return round(amount * 100)


def from_cents(cents: int) -> int | float:
    """The inverse of `to_cents`; whole amounts are integers."""
    return cents / 100 if cents % 100 else cents // 100


def tick(list_price: float) -> int:
    """The step, in cents, in which people would haggle about something of this price: 1 to 10 thousandths of it,
    one of 1, 10, 100, … cents."""
    return max(1, 10 ** (len(str(to_cents(list_price))) - 3))


def written(amount: float) -> str:
    """An amount, or a difference of two, as text: 190, 12.50, -3."""
    cents = to_cents(amount)
    return f"{cents / 100:.2f}" if cents % 100 else str(cents // 100)
