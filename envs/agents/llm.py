"""The LLM harness: a seat's events become chat messages, the model's answer becomes an action.

It knows no engine: `chat` takes an OpenAI chat-completions request and returns its response. Settings are in
`harness.py`, what is sent in `conversation.py`, the forms of answers in `formats.py`, the theory-of-mind scaffold in
`tom.py`. `Transcribed` writes down the chat that the harness would have held with a scripted participant in its place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from envs.agents import formats, tom
from envs.agents.conversation import Conversation, Message, opening, say_events
from envs.agents.formats import write_action
from envs.agents.harness import HarnessConfig
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


class LLMAgent:
    """A model in a seat, for one episode. Each call gets a seed of its own, derived from `seed`.

    A call that fails or is cut off by a deadline leaves no trace in the conversation: what it was to be told
    comes with the next one. `notes` are what the model believed and expected, with the scaffold `tom`.
    """

    def __init__(self, chat: Chat, *, env: str, config: HarnessConfig, seed: int, model: str = "policy") -> None:
        self.env, self.config, self.model, self.seed = env, config, model, seed
        self.calls = 0
        self.notes: list[tom.Note] = []
        self._chat = chat
        self._talk = Conversation(env, config)

    @property
    def messages(self) -> list[Message]:
        """The conversation as it is kept, ending with the model's last reply."""
        return self._talk.messages

    async def decide(self, context: Sequence[Event], actions: Sequence[ActionSpec]) -> Action:
        talk, config = self._talk, self.config
        every = context[0].actions or actions
        if talk.too_long:
            functions = {} if config.format == "schema" else formats.constraint(self.env, actions, every, config)
            summary = await self._ask(talk.ask_summary(), functions)
            talk.summed_up(summary["message"].get("content") or "")
        asked = talk.asked(context)
        choice = await self._ask([*talk.messages, *asked], formats.constraint(self.env, actions, every, config))
        reply = formats.reply_of(choice["message"])
        talk.replied(asked, context, reply)
        found, answer = formats.read(reply, actions, config)
        if config.scaffold == "tom":
            self.notes.append(tom.note(self.env, answer, turn=self.calls - 1, seen=len(context)))
        if isinstance(found, Action):
            return found
        reason = found.reason
        if choice.get("finish_reason") == "length":
            reason = f"the answer was cut off after {config.max_tokens} tokens, be shorter; {reason}"
        return Action.unreadable(formats.shown(reply), reason)

    async def _ask(self, messages: list[Message], form: dict[str, Any]) -> dict[str, Any]:
        """The choice that a call gives."""
        self.calls += 1
        response = await self._chat(
            {
                "model": self.model,
                "messages": messages,
                "temperature": self.config.temperature,
                "max_tokens": self.config.max_tokens,
                "seed": derive_seed(self.seed, self.calls),
                **form,
            }
        )
        return response["choices"][0]


class Transcribed:
    """Another agent, and in `messages` the chat that the harness would have held in its place.

    It forgets nothing and states no beliefs, whatever the settings say of memory and scaffold.
    """

    def __init__(self, agent: Agent, *, env: str, config: HarnessConfig) -> None:
        self.env, self.config = env, replace(config, memory="full", scaffold="none")
        self.tools: list[dict[str, Any]] | None = None  # with the format `tools`: the functions that were offered
        self._agent = agent
        self._talk = Conversation(env, self.config)

    @property
    def messages(self) -> list[Message]:
        """The conversation so far, ending with the agent's last move."""
        return self._talk.messages

    async def decide(self, context: Sequence[Event], actions: Sequence[ActionSpec]) -> Action:
        return self._noted(await self._agent.decide(context, actions), context, actions)

    @property
    def choose(self) -> Callable[..., Action]:
        """There when the other agent has it."""
        choose = self._agent.choose  # type: ignore[attr-defined]
        return lambda context, actions: self._noted(choose(context, actions), context, actions)

    def _noted(self, action: Action, context: Sequence[Event], actions: Sequence[ActionSpec]) -> Action:
        if self.config.format == "tools" and self.tools is None:
            self.tools = formats.tools(self.env, context[0].actions or actions, self.config)
        reply = formats.written(action, self.config, len(context))
        self._talk.replied(self._talk.asked(context), context, reply)
        return action
