"""Craigslist: a buyer and a seller haggle about a posted listing; the buyer moves first.

The listing price is public and is the seller's target; the buyer's target is private. No deal pays nothing.
Scenario rules are in `scenarios/craigslist.py`, the reward in `rewards/craigslist.py`, offers in `envs/haggling.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envs import haggling
from envs.core import Event
from envs.haggling import MOVES, SEATS, Haggle
from envs.minds import Mind
from envs.telling import Prompt, one_line
from rewards.corridor import shares
from scenarios.money import written

__all__ = ["EVALUATED", "MIND", "MOVES", "PRIVATE", "SEATS", "TRAINABLE", "Environment", "answers", "brief", "tell"]

TRAINABLE = SEATS
EVALUATED = ("buyer",)
PRIVATE: dict[str, tuple[tuple[str, ...], ...]] = {"buyer": (("buyer_target",),), "seller": ()}
MIND = Mind(
    about="the price that the other party hopes for",
    schema=haggling.OFFER,
    truth=lambda scenario, seat: {"price": scenario["buyer_target"]} if seat == "seller" else None,
    worth=lambda scenario, seat, given: given["price"] if seat == "seller" else -given["price"],
    within=0.05,
)


class Environment(Haggle):
    """One talk about a listing."""

    def facts(self, seat: str) -> Mapping[str, Any]:
        fields = self.scenario.fields
        known = {key: fields[key] for key in ("category", "title", "description", "listing_price")}
        return {**known, "target": fields["buyer_target"]} if seat == "buyer" else known

    def value(self, seat: str, given: Any) -> Mapping[str, Any]:
        """For the buyer its reward, for the seller the part of the listing price."""
        price, listed = given["price"], self.scenario["listing_price"]
        worth = shares(price, self.scenario["buyer_target"], listed)[0] if seat == "buyer" else price / listed
        return {"worth": round(worth, 4)}

    def secrets(self, seat: str) -> tuple[float, ...]:
        return (self.scenario["buyer_target"],) if seat == "buyer" else ()


BRIEF = """\
You are the {seat} and talk with the {other} about this listing.
Category: {category}
Title: {title}
Description: {description}
The listing price is {price}; both of you know it. {stake}
Offers are prices. Without a deal both of you get nothing.
"""
STAKE = {
    "buyer": "You hope to pay {target}, which only you know: a deal at {target} or less is worth 1 to you, one at "
    "{price} or more 0, and in between in proportion.",
    "seller": "You hope to get it: a deal at {price} or more is worth 1 to you and every lower price less. The buyer "
    "hopes for a price of its own, which you do not know; a deal at that price is worth nothing to you.",
}


def brief(event: Event, prompt: Prompt) -> str:
    """What a seat is told at the start: the listing, its own numbers, the rules."""
    payload = event.payload
    seat, price = payload["seat"], written(payload["listing_price"])
    target = written(payload["target"]) if seat == "buyer" else price
    if prompt == "compact":
        return f"Haggle as {seat}. list {price}" + (f" my target {target}" if seat == "buyer" else "")
    if prompt == "people":
        hopes = f", hopes for {target}" if seat == "buyer" else ""
        return f"{one_line(payload['title'])} ({payload['category']}), listed at {price}{hopes}"
    rules = BRIEF.format(
        seat=seat,
        other="seller" if seat == "buyer" else "buyer",
        category=payload["category"],
        title=one_line(payload["title"]),
        description=one_line(payload["description"]),
        price=price,
        stake=STAKE[seat].format(price=price, target=target),
    )
    return rules + haggling.course(event)


def answers(event: Event) -> str:
    """How to answer in JSON; `event` is the seat's briefing."""
    return haggling.answers(event.payload["seat"], event.payload["listing_price"])


def tell(event: Event, seat: str, prompt: Prompt) -> str:
    """One event as a seat reads it."""
    return haggling.tell(event, seat, prompt, _bare if prompt == "compact" else _WORTH.get(seat, _bare))


def _bare(turn: Mapping[str, Any]) -> str:
    return f"{turn['worth']:.2f}"


_WORTH = {
    "buyer": lambda turn: f"worth {turn['worth']:.2f} of 1 to you",
    "seller": lambda turn: f"{turn['worth']:.0%} of the listing price",
}
