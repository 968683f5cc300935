"""A seat over the wire: its events as JSON from a cursor, its actions as JSON, each with a clear answer.

This maps a channel to documents and back; what carries them is not known here. A client that drops and comes back with
its cursor misses nothing and repeats nothing, because a channel only grows. An action names the notification that it
answers, so that it counts once however often it is sent:

    accepted   it is the seat's move; sent again unchanged it is accepted again and does nothing ("repeated")
    invalid    with the reason; an event asks again, while tries are left, under a new notification
    stale      its notification is not open (any more); the reason says what happened to it
    closed     the episode has ended
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from envs.answers import described
from envs.core import Ack, Action, Environment, Event
from envs.replay import plain
from scenarios.errors import DataError
from scenarios.jsonfile import is_int, shown

Json = dict[str, Any]
FATES = {
    "action": "has been answered",
    "invalid": "has been answered, not validly",
    "timeout": "was not answered in time",
    "error": "was not answered: the seat failed",
    "absent": "was not answered: nobody sat there",
}


class Port:
    """One seat of a running episode, for whoever plays it from elsewhere."""

    def __init__(self, env: Environment, seat: str) -> None:
        self.env, self.seat = env, seat
        self._sent: dict[str, tuple[str, Ack]] = {}  # notification -> the action that it was answered with

    async def events(self, cursor: int, wait_s: float = 0.0) -> Json:
        """The events from `cursor` on, {events, cursor, closed}; where there is none yet, the wait for one.

        `cursor` in the answer is where to go on; `closed` says that nothing will follow it. Raises DataError.
        """
        channel = self.env.channels[self.seat]
        if not is_int(cursor) or not 0 <= cursor <= len(channel.events):
            raise DataError(f"cursor is {shown(cursor)}, expected 0 to {len(channel.events)}, the events so far")
        if cursor == len(channel.events) and not channel.closed and wait_s > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await channel.more(cursor)
        found = [event_json(event) for event in channel.events[cursor:]]
        return {"events": found, "cursor": cursor + len(found), "closed": channel.closed}

    def act(self, body: Any) -> Json:
        """Hand in an action, {notification_id, action: {move, …}}; answers {status, reason, repeated}.

        Raises DataError for what is no action at all; that uses up no try.
        """
        named, action, text = action_of(body)
        before = self._sent.get(named)
        if before is not None and before[0] == text:
            return {**before[1]._asdict(), "repeated": True}
        try:
            ack = self.env.submit(self.seat, named, action)
        except Exception as error:  # the rules failed: nobody else may wait for them
            self.env.abort(described(error))
            raise
        if ack.status in ("accepted", "invalid"):
            self._sent[named] = text, ack
        elif ack.status == "stale":
            ack = Ack("stale", self._fate(named))
        return {**ack._asdict(), "repeated": False}

    def outcome(self) -> Json | None:
        """How the episode ended for this seat; None while it has not."""
        outcome = self.env.outcome
        if outcome is None:
            return None
        known = {key: plain(getattr(outcome, key)) for key in ("status", "agreement", "by", "error")}
        score = outcome.seats.get(self.seat)
        return {**known, "seat": self.seat, "score": None if score is None else score.to_json()}

    def _fate(self, named: str) -> str:
        """What became of a notification that is not open."""
        fate = next(
            (FATES[a.kind] for a in self.env.answers if (a.seat, a.notification_id) == (self.seat, named)), None
        )
        now = self.env.channels[self.seat].open
        asked = "nothing is open" if now is None else f"{now.notification_id} is open"
        return f"{named} {fate or 'has never been asked'}; {asked}"


def event_json(event: Event) -> Json:
    """An event as its seat reads it; a notification adds what may be done and by when, in seconds from its asking."""
    row = {"seq": event.seq, "kind": event.kind, "type": event.type, "at": event.at, "payload": plain(event.payload)}
    if event.notification_id is None:
        return row
    actions = [{"move": s.name, "description": s.description, "fields": plain(s.fields)} for s in event.actions]
    return {**row, "notification_id": event.notification_id, "actions": actions, "deadline_s": event.deadline}


def action_of(body: Any) -> tuple[str, Action, str]:
    """The notification that is answered, the action, and the action as canonical text. Raises DataError."""
    if not isinstance(body, Mapping):
        raise DataError(f"the body is {shown(body)}, expected an object with notification_id and action")
    unknown = [key for key in body if key not in ("notification_id", "action")]
    if unknown:
        raise DataError(f"{shown(unknown[0])} is not a field here, expected notification_id and action")
    named, action = body.get("notification_id"), body.get("action")
    if not isinstance(named, str):
        raise DataError(f"notification_id is {shown(named)}, expected the one of the notification that is answered")
    if not isinstance(action, Mapping) or not isinstance(action.get("move"), str):
        raise DataError(f'action is {shown(action)}, expected an object with a "move", for example {{"move":"accept"}}')
    fields = {key: value for key, value in action.items() if key != "move"}
    return named, Action(action["move"], fields, named), json.dumps(action, sort_keys=True)
