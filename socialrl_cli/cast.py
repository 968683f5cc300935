"""Opens what the participants of a run need, once each, and seats them.

A model is loaded once however many seats it takes; its calls go through one `Recorder`, a session a seat of an
episode. The trainer's own model is handed in with `adopt`. How a model wants to be asked (prompt form, action
format, memory) stands in `socialrl.json` beside its weights; models without one get the full prompt.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs.agents import Agent, tom
from envs.agents.harness import HarnessConfig, HarnessOverride
from envs.agents.llm import LLMAgent, Transcribed
from envs.agents.remote import Remote
from envs.agents.scripted import scripted
from scenarios.errors import EngineError, ModelError, RunError, UsageError
from socialrl_cli.engines.config import EngineConfig
from socialrl_cli.engines.http11 import reach
from socialrl_cli.participants import Participant, parse

if TYPE_CHECKING:
    from socialrl_cli.calls import Call
    from socialrl_cli.engines.base import Engine
    from socialrl_cli.recorder import Recorder

HARNESS_FILE = "socialrl.json"
FATAL = (EngineError, RunError)  # of a model call: they end the episode, not the move
PLACES = {
    "human": "a person takes a seat in socialrl play",
    "remote": "a remote program takes a seat in socialrl serve",
}


class Seat:
    """One participant in one episode. `calls` (a model's) or `messages` (a scripted one's) are there after `finish`."""

    def __init__(self, agent: Agent, finish: Callable[[], list[Call]] | None = None) -> None:
        self.agent = agent
        self.fault: Exception | None = None  # of the machinery behind the agent; the episode has failed
        self.calls: list[Call] | None = None
        self._finish = finish

    @property
    def messages(self) -> list[dict[str, Any]] | None:
        """The chat that a scripted player would have had, for distillation; None for others."""
        return self.agent.messages if isinstance(self.agent, Transcribed) else None

    @property
    def tools(self) -> list[dict[str, Any]] | None:
        """The functions that this chat offered."""
        return self.agent.tools if isinstance(self.agent, Transcribed) else None

    @property
    def notes(self) -> list[tom.Note]:
        """What a model believed and expected, where it was asked."""
        return self.agent.notes if isinstance(self.agent, LLMAgent) else []

    def finish(self) -> None:
        """Take the recorded calls. Raises RunError when recording has failed."""
        if self._finish is not None:
            self.calls = self._finish()


@dataclass(frozen=True, slots=True)
class Opened:
    """A model that is ready to be asked."""

    engine: Engine
    recorder: Recorder
    harness: HarnessConfig
    owned: bool  # closed by the cast


class Cast:
    """The participants of a run. Use it as an asynchronous context manager."""

    def __init__(
        self,
        calls_dir: Path,
        *,
        engine: EngineConfig | None = None,
        transcript: HarnessConfig | None = None,
        override: Mapping[str, Any] | None = None,
        human: Callable[[str, str, Callable[[str], None]], Agent] | None = None,
    ) -> None:
        """`transcript` is how scripted players' games are written down (None: not at all); `override` holds harness
        fields that win over a model's own (temperature, max_tokens); `human` seats a person: it gets the environment,
        the seat, and what to tell when the person is gone."""
        self.calls_dir, self.engine_config = calls_dir, engine or EngineConfig()
        self.transcript = transcript
        self.override = dict(override or {})
        self.human = human
        self._opened: dict[str, Opened] = {}

    async def __aenter__(self) -> Cast:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def adopt(self, name: str, engine: Engine, recorder: Recorder, harness: HarnessConfig) -> None:
        """Seat an engine that is somebody else's under the participant text `name`."""
        harness = replace(harness, **self.override)
        check_tools(engine, harness)
        self._opened[name] = Opened(engine, recorder, harness, owned=False)

    def prepare(self, texts: tuple[str, ...]) -> None:
        """Open every participant, so that a wrong name fails before the first game."""
        for text in texts:
            if text in self._opened:
                continue
            participant = parse(text)
            if participant.kind in ("model", "run", "openai"):
                self._opened[text] = self._open(participant)
            elif participant.kind == "python":
                _attribute(participant)

    def seat(self, text: str, *, env: str, seat: str, seed: int, session: str, failed: Callable[[str], None]) -> Seat:
        """Seat a participant for one episode. `failed` is told when the machinery behind it breaks."""
        opened = self._opened.get(text)
        if opened is not None:
            return _model_seat(opened, env, seed, session, failed)
        participant = parse(text)
        if participant.kind == "scripted":
            agent = scripted(env, participant.name, seed=seed, options=participant.options)
            return Seat(agent if self.transcript is None else Transcribed(agent, env=env, config=self.transcript))
        if participant.kind == "python":
            return Seat(_called(participant, env, seat, seed))
        if participant.kind == "remote":
            return Seat(Remote())
        if participant.kind == "human" and self.human is not None:
            return Seat(self.human(env, seat, failed))
        raise AssertionError(f"{text} was not prepared")

    def _open(self, participant: Participant) -> Opened:
        from socialrl_cli.recorder import Recorder

        folder = self.calls_dir / f"{len(self._opened):02d}" if self._opened else self.calls_dir
        if participant.kind == "openai":
            from socialrl_cli.engines.remote import RemoteEngine

            assert participant.url is not None
            engine: Engine = RemoteEngine(participant.url, participant.name, os.environ.get("OPENAI_API_KEY"))
            harness = HarnessConfig()
        else:
            from socialrl_cli.engines.opening import open_engine
            from socialrl_cli.models import quiet, resolve_participant

            quiet()
            path = resolve_participant(participant)
            engine = open_engine(self.engine_config, name=participant.text, path=path, work=folder)
            harness = read_harness(path)
        mode = "rl" if engine.capabilities.token_ids else "distill"
        harness = replace(harness, **self.override)
        check_tools(engine, harness)
        return Opened(engine, Recorder(engine, folder, mode=mode), harness, owned=True)

    async def close(self) -> None:
        for opened in self._opened.values():
            if opened.owned:
                opened.recorder.close()
                await opened.engine.close()
        self._opened.clear()


def check_participants(texts: Sequence[str], env: str, present: Sequence[str] = ()) -> None:
    """Refuse what can be seen to be wrong without loading a model; `present` are the kinds among people and remote
    programs that can sit down here. Raises UsageError, and EngineError where nobody answers at a URL."""
    for text in texts:
        participant = parse(text)
        if participant.kind in PLACES and participant.kind not in present:
            raise UsageError(f"participant {text!r}: {PLACES[participant.kind]}; name one that plays by itself here")
        if participant.kind == "scripted":
            scripted(env, participant.name, seed=0, options=participant.options)
        elif participant.kind == "python":
            _attribute(participant)
        elif participant.kind == "openai":
            _reach(participant)
        elif participant.kind in ("model", "run"):
            from socialrl_cli.models import check_participant

            check_participant(participant)


def _reach(participant: Participant) -> None:
    """See that somebody listens where a model is said to be."""
    url = participant.url or ""
    try:
        reach(url)
    except ValueError as error:  # a port that is no number
        raise UsageError(f"participant {participant.text!r}: {error}") from error
    except OSError as error:
        what = error.strerror or error
        raise EngineError(
            f"participant {participant.text!r}: {url} cannot be reached ({what}); is the server up?"
        ) from error


def check_harness(harness: HarnessOverride, envs: Sequence[str]) -> None:
    """Refuse what no model can be asked in these environments. Raises UsageError."""
    if harness.scaffold == "tom":
        for env in envs:
            tom.mind_of(env)


def check_tools(engine: Engine, harness: HarnessConfig) -> None:
    """Refuse, before a game, to offer functions through a template that does not write them. Raises ModelError."""
    tokenizer = getattr(engine, "tokenizer", None)  # a server elsewhere keeps its own
    if harness.format == "tools" and tokenizer is not None:
        from socialrl_cli.rendering import Renderer

        offered = {"name": "accept", "description": "close", "parameters": {"type": "object", "properties": {}}}
        question = [{"role": "user", "content": "Which move?"}]
        Renderer(tokenizer).text(question, [{"type": "function", "function": offered}])


def _model_seat(opened: Opened, env: str, seed: int, session: str, failed: Callable[[str], None]) -> Seat:
    recorder = opened.recorder
    recorder.open(session)

    answered = 0

    async def chat(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal answered
        try:
            response = await recorder.chat(session, request)
        except (*FATAL, ModelError) as error:
            if not (isinstance(error, ModelError) and answered):  # a talk may outgrow the context; a model may not
                taken.fault = error
                failed(str(error))
            raise
        answered += 1
        return response

    agent = LLMAgent(chat, env=env, config=opened.harness, seed=seed, model=opened.engine.model)
    taken = Seat(agent, lambda: recorder.finish(session))
    return taken


def read_harness(folder: Path | str) -> HarnessConfig:
    """How a model wants to be asked: `socialrl.json` beside its weights, or the defaults."""
    from socialrl_cli.config import load_json

    file = Path(folder) / HARNESS_FILE
    return load_json(HarnessConfig, file) if file.exists() else HarnessConfig()


def write_harness(folder: Path, harness: HarnessConfig) -> None:
    """Leave word of how the model in `folder` wants to be asked."""
    (folder / HARNESS_FILE).write_text(harness_text(harness), encoding="utf-8")


def harness_text(harness: HarnessConfig) -> str:
    """What `socialrl.json` holds."""
    return json.dumps(asdict(harness), indent=2) + "\n"


def _called(participant: Participant, env: str, seat: str, seed: int) -> Agent:
    try:
        return _attribute(participant)(env=env, seat=seat, seed=seed)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise UsageError(
            f"participant {participant.text!r}: called with env, seat and seed it must give an agent, but raised {what}"
        ) from error


def _attribute(participant: Participant) -> Callable[..., Agent]:
    assert participant.attr is not None
    try:
        return getattr(importlib.import_module(participant.name), participant.attr)
    except ImportError as error:
        raise UsageError(f"participant {participant.text!r}: {error}") from error
    except AttributeError as error:
        raise UsageError(f"participant {participant.text!r}: {participant.name} has no {participant.attr!r}") from error
