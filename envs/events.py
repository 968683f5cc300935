"""What passes between an environment and its participants: actions, events, acknowledgements, channels.

A channel is one seat's view of the game: an append-only list of events, numbered from 0 without gaps, that
holds exactly what the seat may know. An *observation* tells; a *notification* asks for an action and carries
what may be done. `at` is a logical clock over the whole episode (two seats that see the same thing see it at
the same `at`); seconds of the wall are kept beside the events, by the environment, never in them.

Payloads are read-only mappings of plain JSON values.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

NOTHING: Mapping[str, Any] = MappingProxyType({})
UNREADABLE = "unreadable"  # the move of an answer that could not be read


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """A move that may be made now. `fields` is the JSON schema (an object) of its fields besides "move"."""

    name: str
    fields: Mapping[str, Any]
    description: str


class Action(NamedTuple):
    """A move and its fields; `notification_id` names what it answers (None: what was asked last)."""

    move: str
    fields: Mapping[str, Any] = NOTHING
    notification_id: str | None = None

    @property
    def say(self) -> str:
        return self.fields.get("say", "")

    @classmethod
    def unreadable(cls, text: str, reason: str) -> Action:
        """What an agent hands in when it cannot read its own model: always invalid, for this reason."""
        return cls(UNREADABLE, {"text": text, "reason": reason})


class Event(NamedTuple):
    """One thing that a seat learns. A notification has an id, the `actions` that are legal now, and a `deadline` in
    seconds from the moment of asking (None: no deadline); a briefing's `actions` are all that the game has."""

    seq: int
    kind: Literal["observation", "notification"]
    type: str
    payload: Mapping[str, Any]
    at: int
    notification_id: str | None = None
    actions: tuple[ActionSpec, ...] = ()
    deadline: float | None = None


class Ack(NamedTuple):
    """The only answer to an action; its effects arrive later, as observations."""

    status: Literal["accepted", "stale", "invalid", "closed"]
    reason: str | None = None


class Agent(Protocol):
    """A participant. It sees its own channel and decides; nothing else is known of it.

    One that never has to wait may also have `choose(context, actions) -> Action`, the same without `async`: it is
    then called in the moment of asking, which makes scripted play several times as fast.
    """

    async def decide(self, context: Sequence[Event], actions: Sequence[ActionSpec]) -> Action: ...


class Channel:
    """One seat's events. Only the environment appends; anybody who holds it may read, as often as they like."""

    __slots__ = ("_askers", "_readers", "closed", "events", "open", "seat")

    def __init__(self, seat: str) -> None:
        self.seat = seat
        self.events: list[Event] = []
        self.open: Event | None = None  # the notification that waits for an answer
        self.closed = False
        self._readers: list[asyncio.Future[None]] = []  # wait for the next event
        self._askers: list[asyncio.Future[None]] = []  # wait for the next notification

    async def read(self, cursor: int = 0) -> AsyncIterator[Event]:
        """Every event from `cursor` on, as it comes; ends when the episode has ended."""
        while await self.more(cursor):
            yield self.events[cursor]
            cursor += 1

    async def more(self, cursor: int) -> bool:
        """Whether there is an event at `cursor`, as soon as it is known; False: the episode has ended without one."""
        while cursor >= len(self.events) and not self.closed:
            await _next(self._readers)
        return cursor < len(self.events)

    async def asked(self) -> Event | None:
        """The notification that waits for an answer, as soon as there is one; None when the episode has ended."""
        while self.open is None and not self.closed:
            await _next(self._askers)
        return self.open

    def append(self, event: Event) -> None:
        self.events.append(event)
        if event.notification_id is not None:
            self.open = event
            if self._askers:
                _wake(self._askers)
        if self._readers:
            _wake(self._readers)

    def close(self) -> None:
        self.open, self.closed = None, True
        _wake(self._askers)
        _wake(self._readers)


async def _next(waiting: list[asyncio.Future[None]]) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting.append(future)
    try:
        await future
    finally:
        if future.cancelled():  # who gives up waiting leaves nothing behind
            waiting.remove(future)


def _wake(waiting: list[asyncio.Future[None]]) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)
    waiting.clear()
