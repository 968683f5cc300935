"""Results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest

from socialrl_cli.output import emit, plain, progress


def test_json_is_one_document_of_plain_values(capsys: pytest.CaptureFixture[str]) -> None:
    document = {"a": (1, 2.5), "b": math.nan, 3: np.float32(0.5), "c": np.arange(2), "d": {"x"}, "e": "é"}
    emit(document, as_json=True, show=lambda console: console.print("not this"))
    out = capsys.readouterr().out
    assert json.loads(out) == {"a": [1, 2.5], "b": None, "3": 0.5, "c": [0, 1], "d": ["x"], "e": "é"}
    assert "é" in out


def test_what_people_read_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"a": 1}, as_json=False, show=lambda console: console.print("one [line]", markup=False))
    assert capsys.readouterr().out == "one [line]\n"


def test_infinite_numbers_become_null_at_any_depth() -> None:
    assert plain([{"x": [math.inf, -math.inf, 1.0]}]) == [{"x": [None, None, 1.0]}]


def test_progress_without_a_terminal_is_a_line_a_while_and_the_last_one(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("games", 5, every_s=1000) as advance:
        for reward in range(5):
            advance(reward=reward / 3)
    assert capsys.readouterr().err == "games 1/5 reward=0\ngames 5/5 reward=1.33\n"
    with progress("step", every_s=0) as advance:
        advance()
        advance(2, loss="low")
    assert capsys.readouterr().err == "step 1\nstep 3 loss=low\n"


def test_progress_on_a_terminal_leaves_stdout_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress("games", 2) as advance:
        advance()
        advance(reward=0.5)
    out, err = capsys.readouterr()
    assert out == ""
    assert "games" in err
