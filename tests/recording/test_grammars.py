"""What constrained a call, and the file that keeps it beside the shards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from algos.grammars import backend_version
from scenarios.errors import DataError, UsageError
from socialrl_cli.calls import Call
from socialrl_cli.grammars import FILE, GrammarFile, grammar_of, read, text_of
from socialrl_cli.requests import grammar_id


def call(number: int, **params: object) -> Call:
    tools = params.pop("tools", None)
    return Call("s", number, params=params, tools=tools, grammar=grammar_id({**params, "tools": tools}))  # type: ignore[arg-type]


def form(*words: str) -> dict:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": list(words)}}}


def test_each_grammar_is_kept_once_and_read_again(tmp_path: Path) -> None:
    calls = [call(0, response_format=form("a")), call(1), call(2, response_format=form("b", "c"))]
    kept = GrammarFile(tmp_path)
    kept.add(calls)
    kept.add(calls)
    again = GrammarFile(tmp_path)
    again.add(calls)
    found = read(tmp_path)
    assert len((tmp_path / FILE).read_text().splitlines()) == 2
    assert found == kept.known == again.known == {c.grammar: grammar_of(c) for c in (calls[0], calls[2])}
    one = found[str(calls[2].grammar)]
    assert json.loads(one.text)["grammars"][0]["json_schema"]["enum"] == ["b", "c"]
    assert json.loads(one.text)["grammars"][0]["json_schema"]["x-guidance"] == {"whitespace_flexible": False}
    assert (one.backend, one.version) == ("llguidance", backend_version())


def test_a_torn_last_line_is_left_out_and_written_anew(tmp_path: Path) -> None:
    kept = GrammarFile(tmp_path)
    kept.add([call(0, response_format=form("a"))])
    with open(tmp_path / FILE, "ab") as file:
        file.write(b'{"id":"g-1","te')
    assert len(read(tmp_path)) == 1
    again = GrammarFile(tmp_path)
    again.add([call(1, response_format=form("b"))])
    assert read(tmp_path) == again.known
    assert len(again.known) == 2
    (tmp_path / FILE).write_bytes((tmp_path / FILE).read_bytes().replace(b"\n", b"\nx\n", 1))
    with pytest.raises(DataError, match="line 2 is not a grammar"):
        read(tmp_path)


def test_what_a_server_of_its_own_understands_is_kept_as_it_was_asked() -> None:
    tools = [{"type": "function", "function": {"name": "accept"}}]
    for asked in (
        {"guided_regex": "a+"},
        {"tool_choice": "required", "tools": tools},
        {"response_format": form("a"), "regex": "a"},
    ):
        found = grammar_of(call(0, **asked))
        assert found is not None
        assert found.backend == "server"
        assert json.loads(found.text)
    assert grammar_of(call(0)) is None


def test_plain_text_is_no_grammar_and_an_unknown_form_is_refused() -> None:
    assert text_of(None) is text_of({"type": "text"}) is None
    with pytest.raises(UsageError, match="response_format: got"):
        text_of({"type": "grammar"})
