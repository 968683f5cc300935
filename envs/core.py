"""The event core: an environment asks its seats, hears their actions, and says what happened.

An environment is a coroutine, `play`, that reads like the rules of its game and drives three primitives:

    action  = await self.ask(seat, actions, payload)       one seat decides
    answers = await self.ask_all({seat: actions}, payload) several decide, none sees another's choice first
    await self.broadcast(type, payload, to=seats)          something happened, no reply wanted

Underneath, `submit` takes an answer and returns an acknowledgement. An invalid answer becomes an
`invalid_action` event and the seat is asked again, `Limits.retries` times. After that, and after a deadline, an
exception in the agent or for an empty seat, an event says so to that seat and the inert action is taken for it.
None of these ends an episode by exception. `run` seats agents and plays to the outcome. An environment is used once;
its randomness comes from its seed. One timer serves all deadlines; nothing polls.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from envs.answers import clean, malformed, shown
from envs.events import NOTHING, Ack, Action, ActionSpec, Agent, Channel, Event
from envs.frame import Answer, Limits, Outcome, derive_seed
from envs.running import run
from rewards.core import score
from scenarios.core import Scenario

__all__ = [
    "Ack", "Action", "ActionSpec", "Agent", "Answer", "Channel", "Environment", "Event", "Limits", "Outcome",
    "derive_seed", "run",
]  # fmt: skip

ACCEPTED = Ack("accepted")
CLOSED = Ack("closed", "the episode has ended")
USUAL = Limits()


class _Pending:
    """A decision that a seat owes. `future` exists only while the rules wait for it."""

    __slots__ = ("actions", "answer", "expires", "future", "id", "payload", "retries")

    def __init__(self, actions: tuple[ActionSpec, ...], payload: Mapping[str, Any], retries: int) -> None:
        self.actions, self.payload, self.retries = actions, payload, retries
        self.id = ""
        self.answer: Action | None = None
        self.expires: float | None = None
        self.future: asyncio.Future[None] | None = None


class Environment:
    """Base of all games. A game sets `seats`, writes `play` and `fault`, and says what is inert."""

    seats: tuple[str, ...] = ()
    inert: ClassVar[Action] = Action("message", {"say": ""})

    def __init__(self, scenario: Scenario, *, seed: int, limits: Limits | None = None) -> None:
        self.scenario, self.seed, self.limits = scenario, seed, limits or USUAL
        self.seats = self.seats_of(scenario)
        self.channels = {seat: Channel(seat) for seat in self.seats}
        self.journal: list[tuple[tuple[str, ...], Event]] = []  # every event once, with those who were told
        self.walls: list[float] = []  # when, in seconds since the epoch, beside the journal
        self.answers: list[Answer] = []
        self.outcome: Outcome | None = None
        self.at_once: dict[str, Callable[[Environment, str, Event], None]] = {}  # who answer while being asked
        self.deciding: dict[str, tuple[str, asyncio.Task[None]]] = {}  # seat -> notification, its agent's task
        self.overdue: set[asyncio.Task[None]] = set()  # tasks that were interrupted by a deadline
        self._pending: dict[str, _Pending] = {}
        self._asked = dict.fromkeys(self.seats, 0)
        self._timer: asyncio.TimerHandle | None = None
        self._ends: float | None = None  # when the episode's own deadline is, in the loop's time
        self._abort: str | None = None
        self._used = False

    @cached_property
    def rng(self) -> random.Random:
        """Where a game's chance comes from."""
        return random.Random(self.seed)

    # ---- what a game writes

    @classmethod
    def seats_of(cls, scenario: Scenario) -> tuple[str, ...]:
        """The seats at this scenario's table: all of `seats`, or the first of them."""
        return cls.seats

    def measures(self) -> Mapping[str, float]:
        """What the game reports beside the rewards from how it was played; never trained on."""
        return {}

    async def play(self) -> Outcome:
        """The rules: ask and tell until there is an outcome (its scores are filled in by `conduct`)."""
        raise NotImplementedError

    def fault(self, seat: str, action: Action) -> str | None:
        """Why a well-formed action is illegal now, in words that its author can act on; None when it is legal."""
        return None

    # ---- what a game calls

    async def ask(self, seat: str, actions: tuple[ActionSpec, ...], payload: Mapping[str, Any] = NOTHING) -> Action:
        """The seat's next legal action, or the inert one."""
        pending = self._request(seat, actions, payload)
        self._prompt(seat)
        return pending.answer or await self._wait(pending)

    async def ask_all(
        self, wanted: Mapping[str, tuple[ActionSpec, ...]], payload: Mapping[str, Mapping[str, Any]] = NOTHING
    ) -> dict[str, Action]:
        """One action of each seat, asked together; nothing is told before all have answered, in whatever order."""
        before = len(self.answers)
        requests = {seat: self._request(seat, actions, payload.get(seat, NOTHING)) for seat, actions in wanted.items()}
        for seat in requests:
            self._prompt(seat)
        taken = {seat: pending.answer or await self._wait(pending) for seat, pending in requests.items()}
        if all(answer.kind == "action" for answer in self.answers[before:]):
            self.answers[before:] = sorted(self.answers[before:], key=lambda answer: [*taken].index(answer.seat))
        return taken

    async def broadcast(
        self,
        type: str,
        payload: Mapping[str, Any],
        to: tuple[str, ...] | None = None,
        actions: tuple[ActionSpec, ...] = (),
    ) -> None:
        """Tell some seats (default all) what happened; `actions` are moves that it speaks of."""
        self._emit(self.seats if to is None else to, "observation", type, payload, actions=actions)

    # ---- what those who play call

    def submit(self, seat: str, notification_id: str, action: Action) -> Ack:
        """Answer a notification. At most one action is accepted for each; effects come as events."""
        if self.outcome is not None or self._abort is not None:
            return CLOSED
        if seat not in self.channels:
            raise ValueError(f"no seat {seat!r}, expected one of {self.seats}")
        pending = self._pending.get(seat)
        if pending is None:
            return Ack("stale", f"{notification_id} is not open; nothing is asked of {seat} now")
        if pending.id != notification_id:
            return Ack("stale", f"{notification_id} is not open; {pending.id} is")
        try:  # a copy, so that nobody can change it afterwards
            action = Action(action.move, dict(action.fields), notification_id)
        except Exception:
            kind = type(action).__name__
            reason: str | None = f"expected an action, got {'fields of another kind' if kind == 'Action' else kind}"
        else:
            reason = malformed(action, pending.actions, self.limits.say_chars) or self.fault(seat, action)
        if reason is not None:
            self._refuse(seat, pending, shown(action), reason)
            return Ack("invalid", reason)
        self.answers.append(Answer(seat, pending.id, "action", action))
        self._resolve(seat, pending, action)
        return ACCEPTED

    def refuse(self, seat: str, notification_id: str, text: str, reason: str) -> None:
        """Count an answer as invalid without looking at it."""
        pending = self._open(seat, notification_id)
        if pending is not None:
            self._refuse(seat, pending, text, reason)

    def fail(self, seat: str, notification_id: str, kind: Literal["timeout", "error", "absent"], text: str) -> None:
        """The seat will not answer: an event says why, and the inert action is taken."""
        pending = self._open(seat, notification_id)
        if pending is None:
            return
        text = clean(text)
        self.answers.append(Answer(seat, pending.id, kind, text=text))
        self._emit((seat,), "observation", kind, {"reason": text})
        self._resolve(seat, pending, self.inert)

    def abort(self, reason: str) -> None:
        """End the episode without a result."""
        self._abort = clean(reason)
        for seat, pending in self._pending.items():
            self.channels[seat].open = None
            if pending.future is not None:
                pending.future.cancel()

    async def conduct(self) -> Outcome:
        """Play, score, tell the outcome and close the channels. Exceptions come from the rules alone."""
        if self._used:
            raise RuntimeError("an environment is used once; make a new one for every episode")
        self._used = True
        if self.limits.episode_timeout_s is not None:
            self._ends = asyncio.get_running_loop().time() + self.limits.episode_timeout_s
        ending = Outcome("aborted", error="the rules failed")
        try:
            ending = await self.play()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            ending = Outcome("aborted", error=self._abort or "cancelled")
            if self._abort is None or (task is not None and task.cancelling()):
                raise
        finally:
            self._finish(ending)
        assert self.outcome is not None
        return self.outcome

    # ---- the machinery

    def _emit(
        self,
        to: tuple[str, ...],
        kind: Literal["observation", "notification"],
        type: str,
        payload: Mapping[str, Any],
        notification_id: str | None = None,
        actions: tuple[ActionSpec, ...] = (),
    ) -> Event:
        """The one place where events are made and where it is decided who sees them."""
        assert to, f"{type} is told to nobody"
        at, payload = len(self.journal), MappingProxyType(payload)
        deadline = self.limits.decide_timeout_s if notification_id is not None else None
        for seat in to:
            channel = self.channels[seat]
            event = Event(len(channel.events), kind, type, payload, at, notification_id, actions, deadline)
            channel.append(event)
        self.journal.append((to, event))
        self.walls.append(time.time())
        return event

    def _open(self, seat: str, notification_id: str) -> _Pending | None:
        pending = self._pending.get(seat)
        return pending if pending is not None and pending.id == notification_id and self._abort is None else None

    def _request(self, seat: str, actions: tuple[ActionSpec, ...], payload: Mapping[str, Any]) -> _Pending:
        assert seat not in self._pending, f"{seat} is asked twice at once"
        pending = self._pending[seat] = _Pending(actions, payload, self.limits.retries)
        self._notify(seat, pending)
        return pending

    def _prompt(self, seat: str) -> None:
        """Let a seat whose agent needs no time answer now."""
        call = self.channels[seat].open
        if call is not None and (answer := self.at_once.get(seat)) is not None:
            answer(self, seat, call)
        if self._abort is not None:
            raise asyncio.CancelledError

    async def _wait(self, pending: _Pending) -> Action:
        """The answer that is still owed."""
        loop = asyncio.get_running_loop()
        if self._timer is None:
            self._set_timer(loop)
        pending.future = loop.create_future()
        await pending.future
        assert pending.answer is not None
        return pending.answer

    def _notify(self, seat: str, pending: _Pending) -> None:
        self._asked[seat] = number = self._asked[seat] + 1
        pending.id = f"{seat}{number}"
        if seat not in self.at_once and self.limits.decide_timeout_s is not None:
            pending.expires = asyncio.get_running_loop().time() + self.limits.decide_timeout_s
        self._emit((seat,), "notification", "turn", pending.payload, pending.id, pending.actions)

    def _refuse(self, seat: str, pending: _Pending, text: str, reason: str) -> None:
        text, reason = clean(text), clean(reason)
        self.answers.append(Answer(seat, pending.id, "invalid", text=text, reason=reason))
        payload = {"reason": reason, "text": text, "retries_left": pending.retries}
        self._emit((seat,), "observation", "invalid_action", payload)
        if pending.retries:
            pending.retries -= 1
            self._notify(seat, pending)
            self._prompt(seat)
        else:
            self._resolve(seat, pending, self.inert)

    def _resolve(self, seat: str, pending: _Pending, action: Action) -> None:
        del self._pending[seat]
        self.channels[seat].open = None
        pending.answer = action
        if pending.future is not None and not pending.future.done():
            pending.future.set_result(None)

    def _expire(self) -> None:
        """The timer: it is set for the oldest deadline it knew, so it looks again at what is pending now."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._ends is not None and self._ends <= now:
            self.abort(f"not finished within {self.limits.episode_timeout_s:g} s")
            return
        for seat, pending in list(self._pending.items()):
            if pending.expires is not None and pending.expires <= now:
                if self.deciding.get(seat, ("",))[0] == pending.id:
                    task = self.deciding[seat][1]
                    self.overdue.add(task)
                    task.cancel()
                self.fail(seat, pending.id, "timeout", f"no answer within {self.limits.decide_timeout_s:g} s")
        if self._pending:
            self._set_timer(loop)

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        deadlines = [pending.expires for pending in self._pending.values() if pending.expires is not None]
        if self._ends is not None:
            deadlines.append(self._ends)
        if deadlines:
            self._timer = loop.call_at(min(deadlines), self._expire)

    def _finish(self, ending: Outcome) -> None:
        terms = {"status": ending.status, "agreement": ending.agreement, "by": ending.by}
        self._pending.clear()
        if self._timer is not None:
            self._timer.cancel()
        try:
            scored = score(self.scenario, terms)
            self._emit(self.seats, "observation", "outcome", terms)
            self.outcome = replace(ending, seats=scored.seats, measures={**scored.measures, **self.measures()})
        finally:
            for channel in self.channels.values():
                channel.close()
