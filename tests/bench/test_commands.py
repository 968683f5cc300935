"""`socialrl bench`, by what it prints and refuses."""

import json

import pytest

from socialrl_cli.main import run


def test_envs_counts_decisions_and_memory(capsys):
    assert run(["bench", "envs", "--seconds", "0.1", "--concurrent", "20", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["at_once"]["decisions_s"] > document["at_once"]["episodes_s"] > 0
    assert set(document["waiting"]) == {"1", "20", "slowdown"}
    assert 0 < document["kib_per_waiting_episode"] < 50


@pytest.mark.parametrize(
    ("options", "named"),
    [(["--part", "gamse"], "no part 'gamse'"), (["--part", "games"], "needs a model that plays")],
)
def test_engine_refuses_what_it_cannot_measure(capsys, options, named):
    assert run(["bench", "engine", *options]) == 2
    assert named in capsys.readouterr().err


def test_train_refuses_a_part_that_it_does_not_have(capsys):
    assert run(["bench", "train", "--part", "actor"]) == 2
    assert "no part 'actor'" in capsys.readouterr().err
