"""A person at the table: is told what happens in words, chooses a move and fills in its form.

How questions reach the person is the asker's business (`socialrl_cli.terminal`), so that everything here is tested
without a terminal. An empty line where something is needed leads back to the choice of moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from envs import module
from envs.agents.forms import chosen, fields_of, filled
from envs.events import Action, ActionSpec, Event

Kind = Literal["rules", "told", "turn", "fault", "hint"]
GONE = "the person has left: standard input has ended"


class Asker(Protocol):
    """Shows text and reads a line; `ask` raises EOFError when no more lines will come."""

    def show(self, text: str, kind: Kind) -> None: ...

    async def ask(self, question: str) -> str: ...


class Human:
    """Keeps the agent protocol. `left` is told when the person is gone, which ends the episode."""

    def __init__(self, env: str, asker: Asker, left: Callable[[str], None]) -> None:
        self.env, self.asker, self.left = env, asker, left
        self._heard = 0

    async def decide(self, context: Sequence[Event], actions: Sequence[ActionSpec]) -> Action:
        self.hear(context)
        try:
            while True:
                spec = await self._move(actions)
                fields = await self._fields(spec)
                if fields is not None:
                    return Action(spec.name, fields)
        except EOFError:
            self.left(GONE)
            raise

    def hear(self, events: Sequence[Event]) -> None:
        """Tell what has not been told yet."""
        seat, rules = events[0].payload["seat"], module(self.env)
        for event in events[self._heard :]:
            if event.type == "briefing":
                self.asker.show(rules.brief(event, "full"), "rules")
            elif text := rules.tell(event, seat, "full"):
                self.asker.show(text, _KINDS.get(event.type, "told"))
        self._heard = len(events)

    async def _move(self, actions: Sequence[ActionSpec]) -> ActionSpec:
        names = [spec.name for spec in actions]
        width = max(map(len, names))
        lines = (f"{i}  {spec.name:<{width}}  {spec.description}" for i, spec in enumerate(actions, start=1))
        self.asker.show("\n".join(lines), "hint")
        while True:
            text = (await self.asker.ask("your move: ")).strip()
            if text.isdecimal() and 1 <= int(text) <= len(actions):
                return actions[int(text) - 1]
            try:
                return actions[names.index(chosen(text.replace(" ", "_"), names))]
            except ValueError as error:
                self.asker.show(f"{error}; write its number or its name", "fault")

    async def _fields(self, spec: ActionSpec) -> dict | None:
        """The move's fields; None when the person wants to choose again."""
        answers = []
        about = spec.fields.get("properties", {}).get("offer", {}).get("description")
        if about:
            self.asker.show(f"{about}; an empty line leads back", "hint")
        for field in fields_of(spec):
            while True:
                may = "" if field.required else ", may stay empty"
                text = await self.asker.ask(f"{field.label} ({field.expected()}{may}): ")
                if not text.strip() and field.required:
                    return None
                if not text.strip():
                    break
                try:
                    answers.append((field, field.read(text)))
                    break
                except ValueError as error:
                    self.asker.show(str(error), "fault")
        return filled(answers)


_KINDS: dict[str, Kind] = {"turn": "turn", "invalid_action": "fault", "timeout": "fault", "error": "fault"}
