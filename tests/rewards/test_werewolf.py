"""Werewolf is paid by sides: 1 to all who won, 0 to all who lost."""

import json

import pytest

from rewards.core import score
from scenarios.core import Scenario
from scenarios.errors import DataError
from socialrl_cli.main import run

ROLES = {"p1": "villager", "p2": "wolf", "p3": "seer", "p4": "villager", "p5": "villager"}
SCENARIO = Scenario.from_json({"roles": ROLES}, lenient=True, env="werewolf")


@pytest.mark.parametrize(
    ("outcome", "paid", "wolves_won"),
    [
        ({"status": "agreement", "agreement": {"winner": "villagers"}}, [1, 0, 1, 1, 1], 0),
        ({"status": "agreement", "agreement": {"winner": "wolves"}}, [0, 1, 0, 0, 0], 1),
        ({"status": "timeout"}, [0, 0, 0, 0, 0], 0),
        ({"status": "aborted"}, [0, 0, 0, 0, 0], 0),
    ],
)
def test_a_side_wins_or_loses_together(outcome, paid, wolves_won):
    found = score(SCENARIO, outcome)
    assert list(found.seats) == list(ROLES)
    assert [got.reward for got in found.seats.values()] == [got.raw for got in found.seats.values()] == paid
    assert found.measures == {"wolves_won": wolves_won}


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        ({"status": "walk_away", "by": "p1"}, "nobody can leave a game of werewolf"),
        (
            {"status": "agreement", "agreement": {"winner": "seer"}},
            "has the winner 'seer', expected villagers or wolves",
        ),
        ({"status": "agreement", "agreement": {"winner": ["wolves"]}}, "expected villagers or wolves"),
        ({"status": "agreement", "agreement": {"won": "wolves"}}, "expected an object with winner alone"),
        ({"status": "agreement", "agreement": "wolves"}, "expected an object with winner alone"),
        ({"status": "timeout", "by": "p7"}, "by is 'p7', expected p1 or p2 or p3"),
    ],
)
def test_an_impossible_outcome_is_refused(outcome, reason):
    with pytest.raises(DataError, match=reason):
        score(SCENARIO, outcome)


def test_outcomes_of_tables_of_different_size_are_averaged_by_seat(tmp_path, capsys):
    six = ROLES | {"p6": "villager"}
    scenes = [{"id": "five", "roles": ROLES}, {"id": "six", "roles": six}]
    wins = [{"scenario": s, "status": "agreement", "agreement": {"winner": w}} for s, w in
            (("five", "wolves"), ("six", "villagers"))]  # fmt: skip
    for name, rows in (("s.jsonl", scenes), ("o.jsonl", wins)):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["score", "--env", "werewolf", "--scenario", str(tmp_path / "s.jsonl"), "--json"]
    assert run([*words, "--outcome", str(tmp_path / "o.jsonl")]) == 0
    mean = json.loads(capsys.readouterr().out)["mean"]
    # p2 is a wolf: won once of twice; p6 sat at one table and won there
    assert {seat: part["reward"] for seat, part in mean["seats"].items()} == {**dict.fromkeys(ROLES, 0.5), "p6": 1}
    assert mean["measures"] == {"wolves_won": 0.5}
