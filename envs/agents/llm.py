"""The LLM harness: a seat's events become chat messages, the model's answer becomes an action.

It knows no engine: `chat` takes an OpenAI chat-completions request and returns its response. With `memory="full"`
the conversation only grows: each call's messages are the earlier ones, the model's exact reply, and one new user
message, so that its token prefix continues the previous call's. `opening`, `say_events`, `write_action` and
`parse_action` are pure; `Transcribed` uses them to write down the chat that the harness would have held with a
scripted participant in its place.

Answer format `json`, memory `full`. The other formats and memories of the specification are not here yet.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envs import module
from envs.agents.reading import Invalid, parse_action
from envs.core import derive_seed
from envs.events import Action, ActionSpec, Agent, Event

__all__ = [
    "Chat",
    "HarnessConfig",
    "Invalid",
    "LLMAgent",
    "Transcribed",
    "opening",
    "parse_action",
    "say_events",
    "write_action",
]

Chat = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
Message = dict[str, str]

FORMATS = ("json",)
MEMORIES = ("full",)
PROMPTS = ("full", "compact")


@dataclass(frozen=True, slots=True)
class HarnessConfig:
    """How a model is asked. `prompt`: `full` explains everything, `compact` is for small models that know."""

    format: str = "json"
    memory: str = "full"
    prompt: str = "full"
    temperature: float = 1.0
    max_tokens: int = 512

    def __post_init__(self) -> None:
        for name, value, known in (
            ("format", self.format, FORMATS),
            ("memory", self.memory, MEMORIES),
            ("prompt", self.prompt, PROMPTS),
        ):
            if value not in known:
                raise ValueError(f"{name} is {value!r}, expected {' or '.join(known)}")
        if not 0 <= self.temperature <= 10:
            raise ValueError(f"temperature is {self.temperature}, expected 0 to 10")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}, expected at least 1")


def opening(env: str, events: Sequence[Event], config: HarnessConfig) -> list[Message]:
    """The first call's messages: the briefing as the system message, then what has happened and is asked."""
    briefing = events[0]
    rules = module(env)
    system = rules.brief(briefing, config.prompt)
    if config.prompt == "full":
        system += "\n\n" + rules.answers(briefing)
    seat = briefing.payload["seat"]
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": say_events(env, seat, events[1:], config)},
    ]


def say_events(env: str, seat: str, events: Sequence[Event], config: HarnessConfig) -> str:
    """A user message: what a seat has not been told yet, the notification that it is to answer included.

    Of several notifications the last one alone is told; the earlier ones are over.
    """
    tell = module(env).tell
    last = len(events) - 1
    lines = [
        tell(event, seat, config.prompt) for i, event in enumerate(events) if i == last or event.kind != "notification"
    ]
    return "\n".join(line for line in lines if line)


def write_action(action: Action) -> str:
    """The canonical text of a move: compact JSON, `move` first, no empty `say` where it may be left out."""
    fields = {key: _plain(value) for key, value in action.fields.items() if key != "say"}
    if action.say or action.move == "message":
        fields["say"] = action.say
    return json.dumps({"move": action.move, **fields}, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, Mapping) else value


class _Conversation:
    """The messages of one seat so far; grows by a user message and a reply at a time."""

    def __init__(self, env: str, config: HarnessConfig) -> None:
        self.env, self.config = env, config
        self.messages: list[Message] = []
        self.seen = 0  # events that are in the messages

    def asked(self, context: Sequence[Event]) -> list[Message]:
        """The messages with what is new in the context; nothing is kept until `replied`."""
        if not self.seen:
            return opening(self.env, context, self.config)
        seat = context[0].payload["seat"]
        text = say_events(self.env, seat, context[self.seen :], self.config)
        return [*self.messages, {"role": "user", "content": text}]

    def replied(self, asked: list[Message], context: Sequence[Event], reply: str) -> None:
        self.messages = [*asked, {"role": "assistant", "content": reply}]
        self.seen = len(context)


class LLMAgent:
    """A model in a seat, for one episode. Each call gets a seed of its own, derived from `seed`.

    A call that fails or is cut off by a deadline leaves no trace in the conversation: what it was to be told
    comes with the next one.
    """

    def __init__(self, chat: Chat, *, env: str, config: HarnessConfig, seed: int, model: str = "policy") -> None:
        self.config, self.model, self.seed = config, model, seed
        self.calls = 0
        self._chat = chat
        self._talk = _Conversation(env, config)

    @property
    def messages(self) -> list[Message]:
        """The conversation so far, ending with the model's last reply."""
        return self._talk.messages

    async def decide(self, context: Sequence[Event], actions: Sequence[ActionSpec]) -> Action:
        asked = self._talk.asked(context)
        self.calls += 1
        response = await self._chat(
            {
                "model": self.model,
                "messages": asked,
                "temperature": self.config.temperature,
                "max_tokens": self.config.max_tokens,
                "seed": derive_seed(self.seed, self.calls),
            }
        )
        choice = response["choices"][0]
        reply = choice["message"].get("content") or ""
        self._talk.replied(asked, context, reply)
        found = parse_action(reply, actions)
        if isinstance(found, Action):
            return found
        reason = found.reason
        if choice.get("finish_reason") == "length":
            reason = f"the answer was cut off after {self.config.max_tokens} tokens, be shorter; {reason}"
        return Action.unreadable(reply, reason)


class Transcribed:
    """Another agent, and in `messages` the chat that the harness would have held in its place."""

    def __init__(self, agent: Agent, *, env: str, config: HarnessConfig) -> None:
        self._agent = agent
        self._talk = _Conversation(env, config)

    @property
    def messages(self) -> list[Message]:
        """The conversation so far, ending with the agent's last move."""
        return self._talk.messages

    async def decide(self, context: Sequence[Event], actions: Sequence[ActionSpec]) -> Action:
        return self._noted(await self._agent.decide(context, actions), context)

    @property
    def choose(self) -> Callable[..., Action]:
        """There when the other agent has it."""
        choose = self._agent.choose  # type: ignore[attr-defined]
        return lambda context, actions: self._noted(choose(context, actions), context)

    def _noted(self, action: Action, context: Sequence[Event]) -> Action:
        self._talk.replied(self._talk.asked(context), context, write_action(action))
        return action
