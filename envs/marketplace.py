"""Marketplace: a buyer and a seller haggle about a product. The seller's offer at list price is made for it and uses
none of its moves; then the buyer moves.

Each side has a private reservation price. A deal beyond it is possible and pays nothing, as no deal does.
Scenario rules are in `scenarios/marketplace.py`, the reward in `rewards/marketplace.py`, offers in `envs/haggling.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envs import haggling
from envs.core import Action, Event
from envs.haggling import MOVES, SEATS, Haggle
from envs.minds import Mind
from envs.telling import Prompt, one_line
from rewards.marketplace import due_diligence
from scenarios.money import from_cents, to_cents, written

__all__ = ["EVALUATED", "MIND", "MOVES", "PRIVATE", "SEATS", "TRAINABLE", "Environment", "answers", "brief", "tell"]

TRAINABLE = ("buyer",)
EVALUATED = TRAINABLE
PRIVATE = {seat: (("reservation", seat),) for seat in SEATS}
OTHER = {"buyer": "seller", "seller": "buyer"}
MIND = Mind(
    about="the reservation price of the other party: the worst price that it can take without a loss",
    schema=haggling.OFFER,
    truth=lambda scenario, seat: {"price": scenario["reservation"][OTHER[seat]]},
    worth=lambda scenario, seat, given: given["price"] if seat == "seller" else -given["price"],
    within=0.05,
)


class Environment(Haggle):
    """One talk about a product."""

    def opening(self) -> tuple[str, Action]:
        return "seller", Action("propose", {"offer": {"price": self.scenario["list_price"]}})

    def facts(self, seat: str) -> Mapping[str, Any]:
        fields = self.scenario.fields
        return {
            "product": dict(fields["product"]),
            "list_price": fields["list_price"],
            "reservation": fields["reservation"][seat],
        }

    def value(self, seat: str, given: Any) -> Mapping[str, Any]:
        """By how much the price is better than the reservation, in money."""
        gain = to_cents(self.scenario["reservation"][seat]) - to_cents(given["price"])
        return {"worth": from_cents(gain if seat == "buyer" else -gain)}

    def secrets(self, seat: str) -> tuple[float, ...]:
        return (self.scenario["reservation"][seat],)

    def measures(self) -> Mapping[str, float]:
        """What every haggle reports, and the buyer's due diligence."""
        found = due_diligence(self.scenario["reservation"]["buyer"], self._decisions())
        return {**super().measures(), "due_diligence": found}

    def _decisions(self) -> Iterator[tuple[str, float]]:
        """The buyer's offers, and its acceptance with the price of what it accepted."""
        asked = 0.0
        for _, event in self.journal:
            if event.type == "proposal":
                price = event.payload["offer"]["price"]
                if event.payload["by"] == "buyer":
                    yield "propose", price
                else:
                    asked = price
            elif event.type == "accept" and event.payload["by"] == "buyer":
                yield "accept", asked


BRIEF = """\
You are the {seat} and talk with the {other} about the price of a product.
Product: {name}
Description: {description}
The list price is {price}; both of you know it. Your limit is {limit}, which only you know: {stake} The other side has \
a limit of its own, which you do not know.
Offers are prices. Without a deal both of you get nothing. The seller has opened with the list price.
"""
STAKE = {
    "buyer": "the further below it you buy, the better; at or above it a deal is worth nothing to you.",
    "seller": "the further above it you sell, the better; at or below it a deal is worth nothing to you.",
}


def brief(event: Event, prompt: Prompt) -> str:
    """What a seat is told at the start: the product, its own numbers, the rules."""
    payload = event.payload
    seat, price, limit = payload["seat"], written(payload["list_price"]), written(payload["reservation"])
    if prompt == "compact":
        return f"Haggle as {seat}. list {price} my limit {limit}"
    if prompt == "people":
        return f"{one_line(payload['product']['name'])}, listed at {price}, limit {limit}"
    rules = BRIEF.format(
        seat=seat,
        other=OTHER[seat],
        name=one_line(payload["product"]["name"]),
        description=one_line(payload["product"]["description"]),
        price=price,
        limit=limit,
        stake=STAKE[seat],
    )
    return rules + haggling.course(event)


def answers(event: Event) -> str:
    """How to answer in JSON; `event` is the seat's briefing."""
    return haggling.answers(event.payload["seat"], event.payload["list_price"])


def tell(event: Event, seat: str, prompt: Prompt) -> str:
    """One event as a seat reads it."""
    return haggling.tell(event, seat, prompt, _gain if prompt == "compact" else _WORTH.get(seat, _gain))


def _gain(turn: Mapping[str, Any]) -> str:
    return f"{'+' if turn['worth'] > 0 else ''}{written(turn['worth'])}"


def _beside(turn: Mapping[str, Any], good: str, bad: str) -> str:
    gain = turn["worth"]
    return f"{written(abs(gain))} {good if gain > 0 else bad} your limit" if gain else "just your limit"


_WORTH = {
    "buyer": lambda turn: _beside(turn, "below", "above"),
    "seller": lambda turn: _beside(turn, "above", "below"),
}
