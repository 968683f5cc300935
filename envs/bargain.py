"""Two seats bargain in turn: the moves that every negotiation here shares (`message`, `propose`, `accept`,
`reject`, `walk_away`) and what they do to the offers on the table.

    message    talk only
    propose    puts an offer on the table; it replaces the seat's previous one
    accept     closes on the counterpart's standing offer and ends the episode
    reject     turns the counterpart's standing offer down; it is no longer on the table
    walk_away  ends without agreement

A counter-offer leaves the counterpart's standing offer where it is. After `Limits.moves_per_seat` moves each the
episode ends with `timeout`. A game adds what an offer is: its schema, which offers are legal, and what it means
for the seat that receives it. It may also make a seat's opening move for it, which uses none of that seat's moves.

Events, with the payload that everybody sees:

    briefing   own seat only: env, seat, first (who opens), limit (moves a seat) and the game's own facts; its
               actions are all the moves of the game
    turn       the notification: round (own move, from 1), moves_left (this one counted), replies_left (moves that
               the counterpart still has after it), limit, standing (what accepting gives this seat) or None,
               and what the game adds about it
    message    by, say
    proposal   by, say, offer (the proposer's words), gives (what accepting gives the other seat)
    accept, reject, walk_away   by, say
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from envs.core import Action, ActionSpec, Environment, Limits, Outcome
from rewards.leakage import Leaks, leaks
from scenarios.core import Scenario

SAY = {"type": "string", "description": "what you say to the other side"}
TALK = {"message", "propose"}
ANSWERS = {"accept", "reject"}


def moves(offer: Mapping[str, Any]) -> tuple[ActionSpec, ...]:
    """The five moves, for offers of this JSON schema."""

    def fields(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
        schema = {"type": "object", "properties": {**properties, "say": SAY}, "additionalProperties": False}
        return {**schema, "required": list(required)} if required else schema

    return (
        ActionSpec("message", fields(("say",)), "talk only"),
        ActionSpec("propose", fields(("offer",), offer=offer), "make an offer; it replaces your previous one"),
        ActionSpec("accept", fields(), "close on the other side's standing offer"),
        ActionSpec("reject", fields(), "turn the other side's standing offer down"),
        ActionSpec("walk_away", fields(), "end without agreement"),
    )


def without_answers(specs: tuple[ActionSpec, ...]) -> tuple[ActionSpec, ...]:
    """The moves while nothing is on the table to be accepted or rejected."""
    return tuple(spec for spec in specs if spec.name not in ANSWERS)


class Bargain(Environment):
    """The rules above. A game fills in the five methods below and the two tuples of moves."""

    seats: tuple[str, ...] = ("a", "b")

    def __init__(self, scenario: Scenario, *, seed: int, limits: Limits | None = None) -> None:
        super().__init__(scenario, seed=seed, limits=limits)
        self.standing: dict[str, Any] = dict.fromkeys(self.seats)  # by whom it was made
        self._given: dict[str, Any] = {}  # what accepting it would give
        self.order = self.opening_order()
        self.moves, self.openers = self.specs()

    # ---- what a game writes

    def opening_order(self) -> tuple[str, ...]:
        """The seats in the order in which they move."""
        return self.seats

    def opening(self) -> tuple[str, Action] | None:
        """A seat and the move that is made for it before anybody is asked."""
        return None

    def specs(self) -> tuple[tuple[ActionSpec, ...], tuple[ActionSpec, ...]]:
        """All five moves, and those that are possible while there is no offer to answer."""
        raise NotImplementedError

    def facts(self, seat: str) -> Mapping[str, Any]:
        """What a seat knows from the start: the game's own part of its briefing."""
        raise NotImplementedError

    def offer_fault(self, offer: Any) -> str | None:
        """Why something is not a legal offer, as the end of a sentence that begins with "offer"."""
        raise NotImplementedError

    def gives(self, offer: Any) -> Any:
        """What accepting a (legal) offer gives the seat that did not make it."""
        raise NotImplementedError

    def value(self, seat: str, given: Any) -> Mapping[str, Any]:
        """What a game adds to a notification about the standing offer."""
        return {}

    def terms(self, proposer: str, offer: Any) -> Mapping[str, Any]:
        """The agreement that accepting this offer makes."""
        raise NotImplementedError

    def secrets(self, seat: str) -> Collection[float]:
        """The seat's private numbers that nobody says for another reason."""
        return ()

    # ---- the rules

    def told(self) -> list[tuple[str, Mapping[str, Any]]]:
        """All events so far, as (type, payload)."""
        return [(event.type, event.payload) for _, event in self.journal]

    def leaks(self) -> Mapping[str, Leaks]:
        """What each seat that has secrets gave away of them."""
        events = self.told()
        return {seat: leaks(seat, secrets, events) for seat in self.seats if (secrets := self.secrets(seat))}

    def measures(self) -> Mapping[str, float]:
        """`leaks_SEAT`: its moves that said a private number."""
        return {f"leaks_{seat}": float(leaked.said.total()) for seat, leaked in self.leaks().items()}

    async def play(self) -> Outcome:
        limit = self.limits.moves_per_seat
        first, second = self.order
        for seat in self.seats:
            head = {"env": self.scenario.env, "seat": seat, "first": first, "limit": limit}
            await self.broadcast("briefing", {**head, **self.facts(seat)}, to=(seat,), actions=self.moves)
        if opening := self.opening():
            seat, action = opening
            await self.apply(seat, second if seat == first else first, action)
        for round in range(1, limit + 1):
            for seat, other in (first, second), (second, first):
                left = limit - round
                replies = left + 1 if seat == first else left
                action = await self.ask(*self.request(seat, other, round, left + 1, replies))
                ending = await self.apply(seat, other, action)
                if ending is not None:
                    return ending
        return Outcome("timeout")

    def request(
        self, seat: str, other: str, round: int, moves_left: int, replies_left: int
    ) -> tuple[str, tuple[ActionSpec, ...], Mapping[str, Any]]:
        """What a seat is asked at its turn."""
        offer = self.standing[other]
        turn = {
            "round": round,
            "moves_left": moves_left,
            "replies_left": replies_left,
            "limit": self.limits.moves_per_seat,
            "standing": offer,
        }
        if offer is None:
            return seat, self.openers, turn
        turn["standing"] = given = self._given[other]
        turn.update(self.value(seat, given))
        return seat, self.moves, turn

    def fault(self, seat: str, action: Action) -> str | None:
        if action.move == "propose":
            reason = self.offer_fault(action.fields["offer"])
            return None if reason is None else f"offer {reason}"
        return None

    async def apply(self, seat: str, other: str, action: Action) -> Outcome | None:
        """Do a legal move, tell everybody, and end the episode where it does."""
        move, say = action.move, action.say
        if move == "propose":
            offer = self.standing[seat] = self.copy(action.fields["offer"])
            given = self._given[seat] = self.gives(offer)
            await self.broadcast("proposal", {"by": seat, "say": say, "offer": offer, "gives": given})
            return None
        await self.broadcast(move, {"by": seat, "say": say})
        if move == "accept":
            return Outcome("agreement", self.terms(other, self.standing[other]), seat)
        if move == "reject":
            self.standing[other] = None
        if move == "walk_away":
            return Outcome("walk_away", by=seat)
        return None

    def copy(self, offer: Any) -> Any:
        """The offer as it is kept: out of its author's reach, in one canonical form."""
        raise NotImplementedError
