"""A move's fields as questions that a person can answer, made from the JSON schema of its `ActionSpec`.

What a field reads keeps its schema, so a form that is filled in is a well-formed move whatever was typed before.
Objects become one question for each of their properties; there is no form for lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from envs.agents.reading import read_number
from envs.events import ActionSpec

BOUNDS = {  # keyword -> its words, and whether a value keeps it
    "minimum": ("at least {}", lambda value, bound: value >= bound),
    "exclusiveMinimum": ("more than {}", lambda value, bound: value > bound),
    "maximum": ("at most {}", lambda value, bound: value <= bound),
    "exclusiveMaximum": ("less than {}", lambda value, bound: value < bound),
    "multipleOf": ("in steps of {}", lambda value, step: Decimal(str(value)) % Decimal(str(step)) == 0),
}


@dataclass(frozen=True, slots=True)
class Field:
    """One question. `path` leads to the value in the move's fields; one that is not `required` may stay empty."""

    path: tuple[str, ...]
    schema: Mapping[str, Any]
    required: bool

    @property
    def label(self) -> str:
        return self.path[-1].replace("_", " ")

    def expected(self) -> str:
        """What may be typed, in words: "a whole number, at least 0, at most 3"; of a text what it is for."""
        schema = self.schema
        if "enum" in schema:
            return listed(schema["enum"])
        if schema["type"] == "boolean":
            return "yes or no"
        if schema["type"] == "string":
            return schema.get("description", "text")
        kind = "a whole number" if schema["type"] == "integer" else "a number"
        return ", ".join(
            [kind, *(words.format(_plain(schema[key])) for key, (words, _) in BOUNDS.items() if key in schema)]
        )

    def read(self, text: str) -> Any:
        """The value that a text means. Raises ValueError that says what is expected."""
        text, schema = text.strip(), self.schema
        if "enum" in schema:
            return chosen(text, schema["enum"])
        if schema["type"] == "boolean":
            return chosen(text, ("yes", "no")) == "yes"
        if schema["type"] == "string":
            if len(text) > schema.get("maxLength", len(text)) or not re.search(schema.get("pattern", ""), text):
                raise ValueError(f"{text!r} does not fit here")
            return text
        number = read_number(text)
        if schema["type"] == "integer" and not isinstance(number, int):
            raise ValueError(f"{text!r} is not a whole number")
        if not all(keeps(number, schema[key]) for key, (_, keeps) in BOUNDS.items() if key in schema):
            raise ValueError(f"{text!r} is out of bounds, expected {self.expected()}")
        return number


def fields_of(spec: ActionSpec) -> list[Field]:
    """The questions of a move, what is said last."""
    return sorted(_fields(spec.fields, (), True), key=lambda field: field.path == ("say",))


def filled(answers: Sequence[tuple[Field, Any]]) -> dict[str, Any]:
    """The move's fields from the answers."""
    found: dict[str, Any] = {}
    for field, value in answers:
        here = found
        for key in field.path[:-1]:
            here = here.setdefault(key, {})
        here[field.path[-1]] = value
    return found


def chosen(text: str, known: Sequence[Any]) -> Any:
    """The one of `known` that a text names or alone begins, whatever its case. Raises ValueError."""
    low = text.strip().lower()
    exact = [item for item in known if str(item).lower() == low]
    found = exact or [item for item in known if low and str(item).lower().startswith(low)]
    if len(found) != 1:
        raise ValueError(f"{text!r} could be {listed(found)}" if found else f"{text!r} is not {listed(known)}")
    return found[0]


def listed(items: Sequence[Any]) -> str:
    *most, last = map(str, items)
    return f"{', '.join(most)} or {last}" if most else last


def _fields(schema: Mapping[str, Any], at: tuple[str, ...], required: bool) -> Iterator[Field]:
    for name, inner in schema.get("properties", {}).items():
        needed = required and name in schema.get("required", ())
        if inner.get("type") == "object":
            yield from _fields(inner, (*at, name), needed)
        else:
            assert "enum" in inner or inner["type"] in ("integer", "number", "string", "boolean"), f"no form for {name}"
            yield Field((*at, name), inner, needed)


def _plain(number: Any) -> str:
    return f"{number:g}" if isinstance(number, float) else str(number)
