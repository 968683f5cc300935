"""A model's answer → an action, or the reason why it is none, in words that the model can act on.

Of a text the last well-formed JSON object counts; anything around it (reasoning, code fences) is ignored. Of function
calls there must be one.
Numbers are read as people mean them ("7,500", "$7.5k"); what could mean two things is invalid, not guessed.
Legality is not looked at here: that is the environment's.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envs.events import Action, ActionSpec

READ = 8_000  # characters at the end of an answer that are looked at
_NUMBER = re.compile(
    r"[$€£]?\s*(?P<sign>[-+]?)[$€£]?\s*(?P<digits>\d{1,3}(?:,\d{3})+|\d+)(?P<part>\.\d+)?\s*(?P<kilo>[kK])?"
    r"\s*(?:[$€£]|USD|EUR|GBP|dollars?|euros?|pounds?)?"
)
_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


@dataclass(frozen=True, slots=True)
class Invalid:
    """Why a text is not an action."""

    reason: str


class _Doubtful(ValueError):
    pass


Found = tuple[Action | Invalid, Mapping[str, Any]]  # the move, and all fields of the answer as they were given


def parse_action(text: str | None, actions: Sequence[ActionSpec]) -> Action | Invalid:
    """The action that a text holds. Fields that no move has are ignored, those of another move are not."""
    return read_answer(text, actions)[0]


def read_answer(text: str | None, actions: Sequence[ActionSpec]) -> Found:
    """The same, and every field of the object."""
    answer: Mapping[str, Any] = {}
    try:
        answer = _last_object(text or "")
        return _action(answer, actions), answer
    except _Doubtful as doubt:
        return Invalid(str(doubt)), answer


def read_call(calls: Sequence[Mapping[str, Any]], text: str, actions: Sequence[ActionSpec]) -> Found:
    """The action that function calls (OpenAI's `tool_calls`) make; `text` is what was said beside them."""
    answer: Mapping[str, Any] = {}
    try:
        answer = _called(calls, text, [spec.name for spec in actions])
        return _action(answer, actions), answer
    except _Doubtful as doubt:
        return Invalid(str(doubt)), answer


def read_field(value: Any, schema: Mapping[str, Any]) -> Any:
    """A value in a schema's form, numbers and words read as people mean them; None when it has another form."""
    try:
        value = _value("", value, schema)
    except _Doubtful:
        return None
    return value if _fits(value, schema) else None


def read_number(value: Any) -> float | int:
    """A number as people write it. Raises `ValueError` with the reason when it is none, or could be two."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise _Doubtful(f"{_shown(value)} is not a number")
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in _WORDS:
            return _WORDS.index(text.lower())
        match = _NUMBER.fullmatch(text)
        if match is None:
            raise _Doubtful(f"{_shown(value)} is not one clear number")
        number = float(match["digits"].replace(",", "") + (match["part"] or "")) * (1000 if match["kilo"] else 1)
        value = round(-number if match["sign"] == "-" else number, 6)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _Doubtful(f"{_shown(value)} is not a number")
        return int(value) if value.is_integer() else value
    return value


def _last_object(text: str) -> dict[str, Any]:
    """The last JSON object that stands in the text and is not part of another."""
    text = text[-READ:]
    found: dict[str, Any] | None = None
    doubt: str | None = None
    place = text.find("{")
    while place >= 0:
        try:
            value, end = _DECODER.raw_decode(text, place)
        except _Doubtful as error:
            found, doubt, end = None, str(error), place + 1
        except json.JSONDecodeError as error:
            if error.msg.startswith("Unterminated") or error.pos >= len(text.rstrip()):
                break  # cut off: what stands inside is part of it
            end = place + 1
        except (ValueError, RecursionError):
            end = place + 1
        else:
            found, doubt = value, None
        place = text.find("{", end)
    if doubt is not None:
        raise _Doubtful(doubt)
    if found is None:
        if not text.strip():
            raise _Doubtful('the answer is empty; answer with one JSON object like {"move":"message","say":"…"}')
        what = "its JSON object is not complete" if "{" in text else "it holds no JSON object"
        raise _Doubtful(f'the answer cannot be read: {what}; answer with one like {{"move":"message","say":"…"}}')
    return found


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise _Doubtful(f"the JSON object has the field {twice!r} twice")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs)


def _called(calls: Sequence[Mapping[str, Any]], text: str, possible: Sequence[str]) -> dict[str, Any]:
    """The one call as an answer: its arguments, and the function's name as the move."""
    names = ", ".join(possible)
    if not calls:
        what = "it holds no function call that can be read" if text.strip() else "the answer is empty"
        raise _Doubtful(f"{what}; call exactly one of the functions {names}")
    if len(calls) > 1:
        raise _Doubtful(f"it calls {len(calls)} functions; call exactly one of {names}")
    function = calls[0].get("function")
    function = function if isinstance(function, Mapping) else {}
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(name, str):
        raise _Doubtful(f"the call names no function; call exactly one of {names}")
    try:
        fields = _DECODER.decode(arguments) if isinstance(arguments, str) and arguments.strip() else arguments or {}
    except _Doubtful:
        raise
    except (ValueError, RecursionError):
        raise _Doubtful(f"the arguments of {_shown(name)} are not a JSON object: {_shown(arguments)}") from None
    if not isinstance(fields, dict):
        raise _Doubtful(f"the arguments of {_shown(name)} are not a JSON object: {_shown(arguments)}")
    return {**fields, "move": name}


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """The part of JSON schema that moves and beliefs use."""
    if "enum" in schema:
        return value in schema["enum"]
    kind = schema.get("type")
    if kind == "object":
        inner = schema.get("properties", {})
        return (
            isinstance(value, Mapping)
            and all(key in value for key in schema.get("required", ()))
            and all(key in inner and _fits(item, inner[key]) for key, item in value.items())
        )
    if kind == "array":
        least, most = schema.get("minItems", 0), schema.get("maxItems", READ)
        return (
            isinstance(value, list)
            and least <= len(value) <= most
            and all(_fits(item, schema["items"]) for item in value)
        )
    if kind in ("integer", "number"):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and schema.get("minimum", value) <= value <= schema.get("maximum", value)
    return isinstance(value, str)


def _action(answer: Mapping[str, Any], actions: Sequence[ActionSpec]) -> Action:
    possible = ", ".join(spec.name for spec in actions)
    if "move" not in answer:
        raise _Doubtful(f'the JSON object has no "move"; possible moves: {possible}')
    move = answer["move"]
    if not isinstance(move, str):
        raise _Doubtful(f'"move" is {_shown(move)}, expected one of {possible}')
    name = re.sub(r"[\s-]+", "_", move.strip().lower())
    spec = next((spec for spec in actions if spec.name == name), None)
    if spec is None:
        raise _Doubtful(f"the move {_shown(move)} is not possible now; possible moves: {possible}")
    elsewhere = {key for other in actions for key in other.fields["properties"]}
    fields = {}
    for key, value in answer.items():
        if key == "move" or value is None:
            continue
        schema = spec.fields["properties"].get(key)
        if schema is not None:
            fields[key] = _value(key, value, schema)
        elif key in elsewhere:
            owner = next(other.name for other in actions if key in other.fields["properties"])
            raise _Doubtful(f'{name} takes no {key!r}; leave it out, or use the move "{owner}"')
    for key in spec.fields.get("required", ()):
        if key not in fields:
            raise _Doubtful(f"{name} needs the field {key!r}")
    return Action(name, fields)


def _value(path: str, value: Any, schema: Mapping[str, Any]) -> Any:
    """A field as its schema wants it; what is of another kind is left to the environment to refuse."""
    kind = schema.get("type")
    if kind == "object" and isinstance(value, Mapping):
        inner = schema.get("properties", {})
        return {key: _value(f"{path}.{key}", item, inner[key]) if key in inner else item for key, item in value.items()}
    if kind == "array" and isinstance(value, list):
        return [_value(f"{path}[{i}]", item, schema.get("items", {})) for i, item in enumerate(value)]
    if kind in ("integer", "number"):
        try:
            number = read_number(value)
        except ValueError as error:
            raise _Doubtful(f"{path}: {error}") from None
        if kind == "integer" and not isinstance(number, int):
            raise _Doubtful(f"{path}: {_shown(value)} is not a whole number")
        return number
    if "enum" in schema and isinstance(value, str):
        return next((known for known in schema["enum"] if known.lower() == value.strip().lower()), value)
    if kind == "string" and not isinstance(value, str):
        raise _Doubtful(f"{path} is {_shown(value)}, expected a text")
    return value


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
