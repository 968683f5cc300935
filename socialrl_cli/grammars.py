"""What a request constrains its answer to, and the file beside a buffer's shards that keeps it.

    grammars.jsonl    one {"id", "text", "backend", "version"} a line; `call_spans` of the rows name the ids

A `response_format` of a JSON schema (or of any JSON object) becomes a grammar of the trainer's backend; every other
constraint is a server's own: it is kept as it was asked, and rows sampled under it cannot be trained on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from algos.grammars import BACKEND, Grammar, backend_version, json_grammar
from scenarios.errors import DataError, UsageError
from socialrl_cli.calls import Call
from socialrl_cli.requests import constraints

FILE = "grammars.jsonl"


def text_of(response_format: Any) -> str | None:
    """The grammar that a `response_format` asks for, None for plain text. Raises UsageError."""
    if response_format is None or response_format == {"type": "text"}:
        return None
    kind = response_format.get("type") if isinstance(response_format, Mapping) else None
    if kind == "json_object":
        return json_grammar({"type": "object"})
    schema = (response_format.get("json_schema") or {}).get("schema") if kind == "json_schema" else None
    if not isinstance(schema, Mapping):
        raise UsageError(
            f'response_format: got {response_format!r:.80}, expected {{"type": "json_schema", "json_schema": '
            '{"name": …, "schema": {…}}}'
        )
    return json_grammar(schema)


def grammar_of(call: Call) -> Grammar | None:
    """What the call was constrained to."""
    if call.grammar is None:
        return None
    asked = constraints({**call.params, "tools": call.tools})
    if asked.keys() == {"response_format"} and (text := text_of(asked["response_format"])) is not None:
        return Grammar(call.grammar, text, BACKEND, backend_version())
    return Grammar(call.grammar, json.dumps(asked, sort_keys=True), "server")


class GrammarFile:
    """Adds grammars to a buffer's directory, each once."""

    def __init__(self, directory: Path | str) -> None:
        self.path = Path(directory) / FILE
        self.known: dict[str, Grammar] = read(directory)
        if self.path.exists() and not (whole := self.path.read_bytes()).endswith(b"\n"):
            os.truncate(self.path, whole.rfind(b"\n") + 1)  # a kill tore the last line

    def add(self, calls: Iterable[Call]) -> None:
        """Keep the grammars of these calls; on disk before the rows that name them. Raises OSError."""
        new = {}
        for call in calls:
            if call.grammar is not None and call.grammar not in self.known and call.grammar not in new:
                new[call.grammar] = grammar_of(call)
        lines = b"".join(orjson.dumps(asdict(grammar)) + b"\n" for grammar in new.values() if grammar is not None)
        if not lines:
            return
        with open(self.path, "ab") as file:
            file.write(lines)
        self.known |= {name: grammar for name, grammar in new.items() if grammar is not None}


def read(directory: Path | str) -> dict[str, Grammar]:
    """The grammars beside the shards of a buffer, by id; a last line torn by a kill is left out."""
    path = Path(directory) / FILE
    found = {}
    whole = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    for number, line in enumerate(whole, 1):
        try:
            grammar = Grammar(**orjson.loads(line))
        except (ValueError, TypeError) as error:
            raise DataError(f"{path}: line {number} is not a grammar ({error})") from error
        found[grammar.id] = grammar
    return found
