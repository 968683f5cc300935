"""The three ways in which a model may say its move, and how each is read: `json`, `tools`, `schema`.

All functions are pure. Moves are described by `ActionSpec`s, whose fields are JSON schemas; the `tom` scaffold adds a
field before and a field behind each move's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from envs import module
from envs.agents import tom
from envs.agents.harness import HarnessConfig
from envs.agents.reading import Invalid, read_answer, read_call
from envs.events import Action, ActionSpec, Event

Message = dict[str, Any]

CALL = "Answer by calling exactly one of the functions; each is a move."
SPEECH = 'The other party reads what you "say"; you may add it to any move.'


def instructions(env: str, briefing: Event, config: HarnessConfig) -> str:
    """How to answer, for the full prompt."""
    game = module(env)
    text = f"{CALL} {getattr(game, 'SPEECH', SPEECH)}" if config.format == "tools" else game.answers(briefing)
    return text if config.scaffold == "none" else f"{text}\n\n{tom.instructions(env)}"


def constraint(
    env: str, actions: Sequence[ActionSpec], every: Sequence[ActionSpec], config: HarnessConfig
) -> dict[str, Any]:
    """What a request says of the answer's form. `actions` are the moves that are legal now, `every` all of the game.

    All moves are offered as functions, whatever is legal now: functions stand at the beginning of the prompt, and a
    list that changed would break the conversation's prefix.
    """
    if config.format == "tools":
        return {"tools": tools(env, every, config)}
    if config.format == "schema":
        schema = {"name": "move", "strict": True, "schema": answer_schema(env, actions, config)}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
    return {}


def answer_schema(env: str, actions: Sequence[ActionSpec], config: HarnessConfig) -> dict[str, Any]:
    """The JSON schema of an answer: exactly these moves, each with exactly its fields, in the order of writing."""
    return {"anyOf": [_object(env, spec, config, {"move": {"const": spec.name}}) for spec in actions]}


def tools(env: str, actions: Sequence[ActionSpec], config: HarnessConfig) -> list[dict[str, Any]]:
    """A function for each move, as OpenAI's `tools`."""
    return [
        {
            "type": "function",
            "function": {"name": spec.name, "description": spec.description, "parameters": _object(env, spec, config)},
        }
        for spec in actions
    ]


def _object(env: str, spec: ActionSpec, config: HarnessConfig, name: Mapping[str, Any] | None = None) -> dict[str, Any]:
    before, after = ({}, {}) if config.scaffold == "none" else tom.fields(env)
    fields = plain(spec.fields)
    required = [*before, *(name or ()), *fields.get("required", ()), *after]
    properties = {**before, **(name or {}), **fields["properties"], **after}
    return {
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def read(
    reply: Message, actions: Sequence[ActionSpec], config: HarnessConfig
) -> tuple[Action | Invalid, Mapping[str, Any]]:
    """The move that a reply holds, or why it is none, and all fields of the answer as they were given."""
    if config.format == "tools":
        return read_call(reply.get("tool_calls") or (), reply.get("content") or "", actions)
    return read_answer(reply.get("content") or "", actions)


def reply_of(message: Mapping[str, Any]) -> Message:
    """A model's message as it is sent back to it; what has not the form of a message is left out."""
    content, calls = message.get("content"), message.get("tool_calls")
    reply = {"role": "assistant", "content": content if isinstance(content, str) else ""}
    found = [call for call in calls if isinstance(call, Mapping)] if isinstance(calls, (list, tuple)) else []
    return {**reply, "tool_calls": found} if found else reply


def told(text: str, after: Message | None) -> list[Message]:
    """What is told to a model: as a user, or as the result of the functions that it has just called."""
    calls = (after or {}).get("tool_calls")
    if not calls:
        return [{"role": "user", "content": text}]
    *others, last = calls
    unread = [{"role": "tool", "tool_call_id": call.get("id", ""), "content": "not read"} for call in others]
    return [*unread, {"role": "tool", "tool_call_id": last.get("id", ""), "content": text}]


def written(action: Action, config: HarnessConfig, number: int) -> Message:
    """The reply with which a model would have made this move; `number` names the call."""
    if config.format != "tools":
        return {"role": "assistant", "content": write_action(action)}
    fields = _fields(action)
    function = {"name": action.move, "arguments": _compact(fields)}
    call = {"id": f"move{number:05d}", "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def write_action(action: Action) -> str:
    """The canonical text of a move: compact JSON, `move` first, no empty `say` where it may be left out."""
    return _compact({"move": action.move, **_fields(action)})


def shown(reply: Message) -> str:
    """A reply as one text, for who looks at what went wrong."""
    calls = [call.get("function") for call in reply.get("tool_calls") or ()]
    return "\n".join([text for text in (reply["content"],) if text or not calls] + [_compact(call) for call in calls])


def _fields(action: Action) -> dict[str, Any]:
    fields = {key: plain(value) for key, value in action.fields.items() if key != "say"}
    return {**fields, "say": action.say} if action.say or action.move == "message" else fields


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def plain(value: Any) -> Any:
    """Read-only mappings as dicts, all the way down."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value
