"""Haggling over one price: what the two games of buyer and seller share.

An offer is an object with a price, a positive amount with at most two decimals; accepting it is the deal. The buyer
moves first. Notifications add `worth`: what the standing price means to the seat by all that it knows. How either
private number leaked, in words or in an offer, is counted beside the reward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from envs import telling
from envs.bargain import Bargain, moves, without_answers
from envs.core import ActionSpec, Event
from envs.telling import Prompt
from rewards.corridor import price_fault
from rewards.leakage import leaking_offers
from scenarios.money import MOST, from_cents, to_cents, written

SEATS = ("buyer", "seller")
MOVES = ("message", "propose", "accept", "reject", "walk_away")

OFFER = {
    "type": "object",
    "properties": {
        "price": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": MOST,
            "multipleOf": 0.01,
            "description": "an amount with at most two decimals",
        }
    },
    "required": ["price"],
    "additionalProperties": False,
    "description": "the price of the deal",
}
_MOVES = moves(OFFER)
_OPENERS = without_answers(_MOVES)


class Haggle(Bargain):
    """The rules of an offer. A game fills in `facts`, `value` and `secrets`."""

    seats = SEATS

    def specs(self) -> tuple[tuple[ActionSpec, ...], tuple[ActionSpec, ...]]:
        return _MOVES, _OPENERS

    def offer_fault(self, offer: Any) -> str | None:
        return price_fault(offer)

    def copy(self, offer: Any) -> Mapping[str, Any]:
        return MappingProxyType({"price": from_cents(to_cents(offer["price"]))})

    def gives(self, offer: Any) -> Mapping[str, Any]:
        return offer

    def terms(self, proposer: str, offer: Any) -> Mapping[str, Any]:
        return dict(offer)

    def measures(self) -> Mapping[str, float]:
        """`leaks_SEAT`: its moves that said a private number; `leaking_offers_SEAT`: its offers that equal one."""
        found, events = dict(super().measures()), self.told()
        for seat in self.seats:
            if secrets := self.secrets(seat):
                found[f"leaking_offers_{seat}"] = float(leaking_offers(seat, secrets, events))
        return found


_EXAMPLES = {
    "buyer": ("Is it still available?", 0.75, "Could you come down a little?"),
    "seller": ("What did you have in mind?", 0.95, "I could let it go for this."),
}
_ANSWERS = """\
Answer with one JSON object, one of:
{{"move":"message","say":"{ask}"}} to talk only
{{"move":"propose","offer":{{"price":{price}}},"say":"{say}"}} to offer a price; it replaces your earlier offer
{{"move":"accept"}} to close at the other side's price
{{"move":"reject"}} to turn the other side's price down; it is then off the table
{{"move":"walk_away"}} to end without a deal
The other side reads what you "say"; you may add it to any move."""


def answers(seat: str, list_price: float) -> str:
    """How a seat answers in JSON."""
    ask, share, say = _EXAMPLES[seat]
    return _ANSWERS.format(ask=ask, say=say, price=written(max(0.01, round(list_price * share, 2))))


def course(event: Event) -> str:
    """How the talk goes, as the end of a briefing."""
    payload = event.payload
    first = "You move" if payload["first"] == payload["seat"] else "The other side moves"
    return f"{first} first, then in turn, {payload['limit']} moves each. When the moves are used up there is no deal."


def tell(event: Event, seat: str, prompt: Prompt, worth: Callable[[Mapping[str, Any]], str]) -> str:
    """One event as a seat reads it."""
    return telling.tell(event, seat, prompt, _SHOWN[prompt], worth)


_SHOWN = {
    "full": lambda given: f"the price is {written(given['price'])}",
    "compact": lambda given: f"price {written(given['price'])}",
    "people": lambda given: written(given["price"]),
}
