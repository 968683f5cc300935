"""The messages that a model is sent: a seat's events told as text, and what is kept of earlier exchanges.

With memory `full` the conversation only grows: each call's messages are the earlier ones, the model's exact reply, and
what is new, so that its token prefix continues the previous call's. `opening` and `say_events` are pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envs import module
from envs.agents import formats
from envs.agents.harness import HarnessConfig
from envs.events import Event

Message = dict[str, Any]

SUM_UP = {
    "full": "Before you go on, sum up the conversation so far for yourself in a few sentences: what was said and "
    "done, what the others seem to want, what you plan. Only this summary will be kept. Answer with the summary "
    "alone.",
    "compact": "sum up",
}
SUMMED_UP = {
    "full": "What happened so far, in your own words: {summary}\n\n{told}",
    "compact": "so far: {summary}\n{told}",
}


def opening(env: str, events: Sequence[Event], config: HarnessConfig) -> list[Message]:
    """The first call's messages: the briefing as the system message, then what has happened and is asked."""
    seat = events[0].payload["seat"]
    return [system(env, events[0], config), {"role": "user", "content": say_events(env, seat, events[1:], config)}]


def system(env: str, briefing: Event, config: HarnessConfig) -> Message:
    """The rules, the seat's own numbers, and for the full prompt how to answer."""
    game = module(env)
    brief = getattr(game, "brief_in_numbers", game.brief) if config.values == "numbers" else game.brief
    text = brief(briefing, config.prompt)
    if config.prompt == "full":
        text += "\n\n" + formats.instructions(env, briefing, config)
    return {"role": "system", "content": text}


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


class Conversation:
    """The exchanges of one seat so far. What was to be told and was not answered is told again with the next call."""

    def __init__(self, env: str, config: HarnessConfig) -> None:
        self.env, self.config = env, config
        self.seen = 0  # events that are in the messages
        self._system: list[Message] = []
        self._exchanges: list[tuple[list[Message], Message]] = []  # what was told, and the reply
        self._summary: str | None = None  # of what came before the exchanges

    @property
    def messages(self) -> list[Message]:
        """What is kept, ending with the last reply."""
        exchanges = self._exchanges
        if self.config.memory == "window" and len(exchanges) > self.config.window:
            exchanges = exchanges[-self.config.window :]
            told = exchanges[0][0][-1]  # no call stands before it any more
            exchanges = [([{"role": "user", "content": told["content"]}], exchanges[0][1]), *exchanges[1:]]
        return [*self._system, *(message for told, reply in exchanges for message in (*told, reply))]

    def asked(self, context: Sequence[Event]) -> list[Message]:
        """The messages of what is new in the context; nothing is kept until `replied`."""
        seat = context[0].payload["seat"]
        if not self._system:
            self._system = [system(self.env, context[0], self.config)]
            self.seen = 1
        text = say_events(self.env, seat, context[self.seen :], self.config)
        if self._summary is not None and not self._exchanges:
            text = SUMMED_UP[self.config.prompt].format(summary=self._summary, told=text)
        return formats.told(text, self._exchanges[-1][1] if self._exchanges else None)

    def replied(self, asked: list[Message], context: Sequence[Event], reply: Message) -> None:
        """The model has answered what it was asked."""
        self._exchanges.append((asked, reply))
        self.seen = len(context)

    @property
    def too_long(self) -> bool:
        """Is it time to sum up?"""
        if self.config.memory != "summary" or len(self._exchanges) < 2:
            return False
        return sum(len(message["content"] or "") for message in self.messages) > self.config.summary_chars

    def ask_summary(self) -> list[Message]:
        return [*self.messages, *formats.told(SUM_UP[self.config.prompt], self._exchanges[-1][1])]

    def summed_up(self, summary: str) -> None:
        """Go on from the summary alone."""
        self._summary, self._exchanges = " ".join(summary.split()) or "(no summary)", []
