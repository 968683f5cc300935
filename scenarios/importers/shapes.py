"""Reading foreign records: each function gives a value of the kind that is asked for, or raises `ValueError` that says
what is there instead. `name` is how the message calls the value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scenarios.jsonfile import is_int, shown


def an_object(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} is {shown(value)}, expected an object")
    return value


def a_list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{name} is {shown(value)}, expected a list")
    return value


def a_text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} is {shown(value)}, expected a text")
    return value


def a_count(value: Any, name: str) -> int:
    """A whole number from 0, also as digits in a text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    if not is_int(value) or value < 0:
        raise ValueError(f"{name} is {shown(value)}, expected a whole number")
    return value


def one_of(value: Any, name: str, known: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} is {shown(value)}, expected {', '.join(known[:-1])} or {known[-1]}")
    return value
