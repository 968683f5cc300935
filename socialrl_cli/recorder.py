"""The recorder: every model call of an episode goes through it, and is on disk before its answer leaves.

`Recorder.chat(session, request)` is the training boundary in process; `proxy.py` puts the same object behind HTTP.
It asks the engine for exact tokens, renders the prompt itself where the engine takes token ids (so that a
conversation keeps its ids), writes the call to the raw record, and returns the answer without what the caller did not
ask for. A call that fails is recorded with its error and raised. A call that cannot be written ends the run:
RunError, from then on for every call and from `finish`, so that no episode is taken for whole.

A session begins with `open` or with its first call and is freed by `finish`. Calls of one session may overlap; they
are numbered by arrival. Units: seconds, tokens, nats.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from scenarios.errors import EngineError, RunError, SocialRLError
from socialrl_cli import requests
from socialrl_cli.callfiles import CallWriter
from socialrl_cli.calls import Call
from socialrl_cli.engines.base import Engine
from socialrl_cli.rendering import Renderer
from socialrl_cli.requests import Refused
from socialrl_cli.sessions import CONTINUED, DRIFTED, RESTARTED, relation

MODES = ("rl", "distill")
KEPT_ANSWERS = 4  # a session's latest answers, for retries of their requests
KEPT_SESSIONS = 4096  # without `keep`: how many sessions stay in memory
REMEMBERED = 100_000  # finished sessions that are still known to be so
NOT_PARAMS = frozenset(("messages", "tools", "temperature", "prompt_token_ids", "return_token_ids", "logprobs"))


@dataclass(slots=True)
class RecorderCounters:
    """What the recorder has seen. `max_drift` is in tokens; `truncated` answers ended at their limit."""

    calls: int = 0
    truncated: int = 0
    errors: int = 0
    refused: int = 0
    retries: int = 0
    continued: int = 0
    drifted: int = 0
    restarted: int = 0
    max_drift: int = 0


@dataclass(slots=True)
class _Session:
    key: str
    next_index: int = 0
    last: Call | None = None  # the play call that the next one may continue
    prompt_text: str | None = None  # of `last`
    calls: list[Call] = field(default_factory=list)
    written: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # answers as sampled, by their tool call's id
    answers: OrderedDict[str, tuple[Any, asyncio.Task]] = field(default_factory=OrderedDict)

    def give_up(self) -> None:
        for _, task in self.answers.values():
            task.cancel()


class Recorder:
    """Records the calls of many sessions to one engine in `calls_dir`.

    mode "rl" refuses what would bend the samples and answers without token ids; "distill" takes any engine.
    `keep`: hold each session's calls in memory until `finish` (a stand-alone proxy does not).
    """

    def __init__(
        self,
        engine: Engine,
        calls_dir: Path | str,
        *,
        mode: str = "rl",
        renderer: Renderer | None = None,
        keep: bool = True,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"mode, got {mode!r}, expected one of {MODES}")
        can = engine.capabilities
        if renderer is None and can.token_input:
            renderer = Renderer(engine.tokenizer)
        self.engine, self.mode, self.keep = engine, mode, keep
        self.renderer = renderer if can.token_input else None
        self.writer = CallWriter(calls_dir)
        self.counters = RecorderCounters()
        self._ids = mode == "rl" or can.token_ids
        self._left_out = NOT_PARAMS | (requests.NEUTRAL.keys() if mode == "rl" else frozenset())
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._numbers: dict[str, int] = {}  # next index of sessions that were let go
        self._finished: OrderedDict[str, None] = OrderedDict()
        self._closed = False

    @property
    def failure(self) -> RunError | None:
        """Why recording has ended, if it has."""
        return self.writer.failure

    def open(self, key: str) -> None:
        """Begin a session; one that is open already is an error, one that is finished begins anew."""
        if key in self._sessions:
            raise ValueError(f"session {key!r} is open already")
        self._finished.pop(key, None)
        self._sessions[key] = _Session(key)

    def finish(self, key: str) -> list[Call]:
        """End a session: its calls by index, errors among them. Raises RunError when recording has failed.

        Calls under way are given up, and later ones refused until the session is opened again.
        """
        if self.failure is not None:
            raise self.failure
        self._finished[key] = None
        if len(self._finished) > REMEMBERED:
            self._finished.popitem(last=False)
        session = self._sessions.pop(key, None)
        self.writer.forget(key)
        if session is None:
            return []
        session.give_up()
        return sorted(session.calls, key=lambda call: call.index)

    def close(self) -> None:
        """Give up what is under way and close the file. The engine is not ours to close."""
        self._closed = True
        for session in self._sessions.values():
            session.give_up()
        self.writer.close()

    async def chat(
        self,
        session_key: str,
        request: Mapping[str, Any],
        *,
        kind: str = "play",
        idempotency_key: str | None = None,
        first_try: bool = False,
    ) -> dict[str, Any]:
        """Ask, record, answer. Raises Refused, EngineError, ModelError, UsageError, RunError.

        The same `idempotency_key` gives the same answer and is recorded once, unless the first try failed;
        `first_try` says that this is no retry, whatever was asked before under this key.
        """
        if self.failure is not None:
            raise self.failure
        try:
            requests.check(request, self.mode, rendered_here=self.renderer is not None)
        except Refused:
            self.counters.refused += 1
            raise
        session = self._session(session_key)
        if idempotency_key is None:
            return await self._call(session, request, kind)
        known = None if first_try else session.answers.get(idempotency_key)
        if known is not None:
            body, task = known
            if body != request:
                raise Refused("Idempotency-Key", f"{idempotency_key!r:.60} was used with another body", 422)
            self.counters.retries += 1
        else:
            task = asyncio.ensure_future(self._call(session, request, kind))
            session.answers[idempotency_key] = (request, task)
            session.answers.move_to_end(idempotency_key)
            task.add_done_callback(lambda done: _forget_failed(session, idempotency_key, done))
            while len(session.answers) > KEPT_ANSWERS:
                session.answers.popitem(last=False)
        # A caller that goes away does not undo the call: its retry gets this answer.
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise Refused("session", f"{session_key!r:.60} is finished", 410) from None
            raise

    def _session(self, key: str) -> _Session:
        session = self._sessions.get(key)
        if session is None:
            if key in self._finished:
                raise Refused("session", f"{key!r:.60} is finished", 410)
            session = self._sessions[key] = _Session(key, self._numbers.pop(key, 0))
        if not self.keep:
            self._sessions.move_to_end(key)
            if len(self._sessions) > KEPT_SESSIONS:
                gone, old = self._sessions.popitem(last=False)
                self._numbers[gone] = old.next_index
        return session

    async def _call(self, session: _Session, request: Mapping[str, Any], kind: str) -> dict[str, Any]:
        index, session.next_index = session.next_index, session.next_index + 1
        asked = requests.forwarded(request, self.mode, ids=self._ids)
        messages = tuple(request["messages"])
        common: dict[str, Any] = {
            "session": session.key,
            "index": index,
            "kind": kind,
            "messages": messages,
            "tools": request.get("tools") or None,
            "temperature": float(asked["temperature"]) if asked.get("temperature") is not None else 1.0,
            "grammar": requests.grammar_id(request),
            "params": {name: value for name, value in asked.items() if name not in self._left_out},
            "started_at": time.time(),
            "policy_version": self.engine.policy_version,
        }
        text = None
        try:
            if self.renderer is not None and "prompt_token_ids" not in request:
                text, asked["prompt_token_ids"] = self._render(session, messages, request.get("tools"))
            response = await self.engine.chat(asked)
            call = self._take(common, asked, response)
        except BaseException as error:
            error = self._translated(error)
            self._record(session, Call(**common, finished_at=time.time(), error=_described(error)))
            raise error
        if fault := requests.token_fault(call, self.mode):
            wrong = EngineError(f"{self.engine.model}: {fault}")
            self._record(session, replace(call, error=_described(wrong)))
            raise wrong
        self._count(session.last, call)
        self._record(session, call)
        if kind == "play":
            session.last, session.prompt_text = call, text
            if self.renderer is not None and (name := requests.tool_call_id(call.message)):
                session.written[name] = self.renderer.written(call)
        return requests.answered(request, response)

    def _render(self, session: _Session, messages: tuple, tools: Any) -> tuple[str, list[int]]:
        assert self.renderer is not None
        told = messages
        if session.written:
            told = tuple(session.written.get(requests.tool_call_id(message), message) for message in messages)
        text = self.renderer.text(told, tools)
        ids = None
        if session.last is not None:
            ids = self.renderer.extend(session.last, messages, tools, before=session.prompt_text, after=text)
        return text, self.renderer.encode(text) if ids is None else ids

    def _take(self, common: dict[str, Any], asked: Mapping[str, Any], response: Mapping[str, Any]) -> Call:
        """The call that a response makes; EngineError when it is not one."""
        try:
            choice = response["choices"][0]
            message, finish = choice["message"], choice.get("finish_reason")
            reply = message.get("content") or ""
            columns = requests.tokens(response)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise EngineError(f"{self.engine.model}: its answer is not a chat completion ({error!r})") from error
        if columns[0] is None and "prompt_token_ids" in asked:
            columns = (np.array(asked["prompt_token_ids"], np.int32), *columns[1:])
        prompt_ids, token_ids, logprobs = columns
        counted = (response.get("usage") or {}).get("completion_tokens")
        version = response.get("policy_version")
        extras = {name: value for name, value in message.items() if value and name not in ("role", "content")}
        return Call(
            **(common if version is None else {**common, "policy_version": version}),
            prompt_ids=prompt_ids,
            token_ids=token_ids,
            logprobs=logprobs,
            reply=reply,
            message={"role": "assistant", "content": message.get("content"), **extras} if extras else _reply(reply),
            finish_reason=finish,
            completion_tokens=counted if counted is not None else 0 if token_ids is None else len(token_ids),
            finished_at=time.time(),
        )

    def _record(self, session: _Session, call: Call) -> None:
        if self._closed and call.error is not None:
            return  # given up by `close`; no answer leaves
        try:
            self.writer.write(call)
        except (TypeError, ValueError) as error:
            raise Refused("messages", f"they cannot be recorded as JSON ({error})") from error
        self.counters.calls += 1
        self.counters.truncated += call.finish_reason == "length"
        self.counters.errors += call.error is not None
        if self.keep:
            session.calls.append(call)

    def _count(self, last: Call | None, call: Call) -> None:
        if call.kind != "play" or call.prompt_ids is None or last is None or not len(last.full_ids()):
            return
        how, lost = relation(last, call)
        self.counters.continued += how == CONTINUED
        self.counters.drifted += how == DRIFTED
        self.counters.restarted += how == RESTARTED
        if how == DRIFTED:
            self.counters.max_drift = max(self.counters.max_drift, lost)

    def _translated(self, error: BaseException) -> BaseException:
        if isinstance(error, SocialRLError) or not isinstance(error, Exception):
            return error
        failed = EngineError(f"{self.engine.model}: the call failed: {error!r}")
        failed.__cause__ = error
        return failed


def _reply(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def _described(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return f"{type(error).__name__}: {error}"


def _forget_failed(session: _Session, key: str, task: asyncio.Task) -> None:
    """A failed first try is not an answer: its retry is asked anew."""
    if (task.cancelled() or task.exception() is not None) and session.answers.get(key, (None, None))[1] is task:
        del session.answers[key]
