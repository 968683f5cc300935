"""Strict JSON and JSON-lines reading: every fault becomes one line that says where and what.

Stricter than `json.loads`: no NaN or Infinity, no number beyond float range, no key twice in an object, no
lone surrogate in a string (it could not be written again as UTF-8). A byte order mark at the start of a file,
CRLF line ends and blank lines are accepted. `-` names standard input.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from scenarios.errors import DataError, UsageError

SHOWN_CHARS = 60  # longest piece of a user's value that an error message repeats
MOST_DIGITS = 300  # of an integer; floats end at 308
BOM = b"\xef\xbb\xbf"


class Row(NamedTuple):
    """One non-blank line of a JSON-lines file: its value, or the reason why it has none."""

    line: int  # counts from 1
    value: Any
    fault: str | None


def shown(value: Any) -> str:
    """A short, printable form of a user's value."""
    try:
        text = ascii(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, a bottomless nest
        text = f"a {type(value).__name__} too large to print"
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 3] + "..."


def is_int(value: Any) -> bool:
    """True for integers; not for booleans, and not for 1.0."""
    return type(value) is int or (isinstance(value, int) and not isinstance(value, bool))


def loads(text: str) -> Any:
    """The value of a JSON text. Raises `ValueError` with a reason of one line."""
    hooks: dict[str, Any] = {"parse_constant": _constant, "parse_int": _int, "parse_float": _float}
    try:
        value = json.loads(text, object_pairs_hook=_unique, **hooks)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("not JSON: nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except UnicodeEncodeError:
        raise ValueError("a text holds half of a surrogate pair") from None
    return value


def read_bytes(path: str | PathLike[str]) -> bytes:
    """A file's content without a byte order mark; `-` reads standard input. Raises `UsageError` where there is no such
    file, `DataError` where it cannot be read."""
    if not str(path):
        raise UsageError("the name of a file is empty")
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else Path(path).read_bytes()
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UsageError(f"{path}: is a directory, expected a file") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise DataError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    return data.removeprefix(BOM)


def rows(path: str | PathLike[str]) -> Iterator[Row]:
    """The non-blank lines of a JSON-lines file; a bad line is yielded with its fault and does not stop the rest."""
    for number, raw in enumerate(read_bytes(path).split(b"\n"), start=1):
        if not raw.strip():
            continue
        try:
            yield Row(number, loads(raw.decode("utf-8")), None)
        except UnicodeDecodeError as error:
            yield Row(number, None, f"not UTF-8 (byte {error.start + 1} of the line)")
        except ValueError as error:
            reason = str(error)
            yield Row(number, None, reason.replace("at line 1, column", "at column"))


def documents(path: str | PathLike[str]) -> list[Row]:
    """The one JSON value of a file (laid out as it likes), or else the values of its lines. Raises `DataError`."""
    data = read_bytes(path)
    if not data.strip():
        raise DataError(f"{path}: is empty")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 (byte {error.start + 1})") from None
    try:
        return [Row(1, loads(text), None)]
    except ValueError as error:
        reason = str(error)
    pieces = [(n, line) for n, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if len(pieces) <= 1 or not pieces[0][1].rstrip().endswith("}"):
        raise DataError(f"{path}: {reason}")
    found = []
    for number, line in pieces:
        try:
            found.append(Row(number, loads(line), None))
        except ValueError as error:
            reason = str(error).replace("at line 1, column", "at column")
            raise DataError.at(path, number, reason) from None
    return found


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number that can be used")


def _int(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"{text[:20]}... is a number of {len(text)} digits")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:SHOWN_CHARS]} is too large a number")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {shown(twice)} stands twice in one object")
    return found
