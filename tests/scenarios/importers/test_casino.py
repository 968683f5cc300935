"""Importing campers' dialogues: every odd and every bad kind of row, on invented games."""

import copy
import json
import os
from pathlib import Path

import pytest

from rewards.core import score
from scenarios import core as scenarios
from scenarios.errors import DataError, UsageError
from scenarios.importers import core

WORDS = {"High": "we are many", "Medium": "café\nnights  are long", "Low": "no need"}
ALL = {"Food": 3, "Water": 3, "Firewood": 3}
P1, P2 = "mturk_agent_1", "mturk_agent_2"


def person(high, medium, low, points):
    """Keys in an order of their own, as in the corpus."""
    return {
        "value2issue": {"Low": low, "High": high, "Medium": medium},
        "value2reason": WORDS,
        "outcomes": {"points_scored": points, "satisfaction": "x", "opponent_likeness": "x"},
    }


def say(who, text="Hello 🙂"):
    return {"text": text, "task_data": {}, "id": who}


def submit(who, food, water, firewood):
    """Quantities are texts in this layout."""
    mine = {"Food": str(food), "Water": str(water), "Firewood": str(firewood)}
    theirs = {key: str(3 - int(value)) for key, value in mine.items()}
    return {"text": "Submit-Deal", "task_data": {"issue2youget": mine, "issue2theyget": theirs}, "id": who}


def do(who, what):
    return {"text": what, "task_data": {"data": what.lower()}, "id": who}


def dialogue(*events, points=(23, 19), number=7, **more):
    """Opposed orders; the default deal gives the first 3 food, 2 water: 15 + 8 = 23, the second 4 + 15 = 19."""
    return {
        "dialogue_id": number,
        "chat_logs": copy.deepcopy(list(events)),
        "participant_info": {
            P2: person("Firewood", "Water", "Food", points[1]),
            P1: person("Food", "Water", "Firewood", points[0]),
        },
        "annotations": [["Hello", "small-talk"]] * sum(event["task_data"] == {} for event in events),
        **more,
    }


DEAL = (say(P1), say(P2), submit(P1, 3, 2, 0), do(P2, "Accept-Deal"))
LEFT = (say(P1), say(P2), do(P1, "Walk-Away"))


def summary(**change):
    people = dialogue()["participant_info"]
    agents = {
        name: {"value2issue": p["value2issue"], "value2reason": p["value2reason"], **p["outcomes"]}
        for name, p in people.items()
    }
    deal = {P2: {"Firewood": 3, "Water": 1, "Food": 0}, P1: {"Food": 3, "Water": 2, "Firewood": 0}}
    row = {"dialogue_id": 7, "split": "train", "agents": agents, "outcome": "Accept-Deal", "deal": deal}
    return copy.deepcopy({**row, "n_utterances": 2, **change})


def imported(tmp_path, *rows, name="games.json"):
    path = tmp_path / name
    lines = name.endswith(".jsonl")
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows) if lines else json.dumps(list(rows)))
    return core.read("casino", [path])


def kinds(found):
    return [(odd.line, odd.kind) for odd in found.odd]


def reasons(found):
    return [(problem.line, problem.reason) for problem in found.bad]


def test_a_dialogue_becomes_a_scenario_and_its_outcome(tmp_path):
    found = imported(tmp_path, dialogue(*DEAL))
    (only,) = found.scenarios
    assert only["priorities"] == {"a": ["food", "water", "firewood"], "b": ["firewood", "water", "food"]}
    assert only["personas"] == {"a": "camper 1 of dialogue 7", "b": "camper 2 of dialogue 7"}
    assert only["reasons"]["b"] == {"food": "no need", "water": "café nights are long", "firewood": "we are many"}
    assert only.source == "casino:games.json:1"
    assert scenarios.check(only) == []
    (game,) = found.played
    assert game.outcome["agreement"]["a"] == {"food": 3, "water": 2, "firewood": 0}
    assert {seat: got.raw for seat, got in score(only, game.outcome).seats.items()} == game.reported
    assert kinds(found) == []
    assert "mturk" not in json.dumps(only.to_json())


def test_a_summary_is_the_same_game(tmp_path):
    found = imported(tmp_path, summary(), name="games.jsonl")
    assert found.formats == {str(tmp_path / "games.jsonl"): "summaries"}
    dialogues = imported(tmp_path, dialogue(*DEAL))
    assert found.scenarios[0].fields == dialogues.scenarios[0].fields
    assert found.played[0].outcome == dialogues.played[0].outcome


def test_a_dialogue_in_two_files_is_one_game(tmp_path):
    imported(tmp_path, dialogue(*DEAL))
    imported(tmp_path, summary(), name="games.jsonl")
    found = core.read("casino", [tmp_path / "games.json", tmp_path / "games.jsonl"])
    assert (found.rows, found.games, len(found.scenarios), kinds(found)) == (2, 1, 1, [(1, "again")])


def test_two_records_of_a_dialogue_that_differ_are_told_apart(tmp_path):
    found = imported(tmp_path, dialogue(*DEAL), dialogue(*LEFT, points=(5, 5)))
    assert reasons(found) == [(2, f"dialogue 7 contradicts its record at {tmp_path / 'games.json'}:1")]


@pytest.mark.parametrize(
    ("events", "points", "odd"),
    [
        (LEFT, (5, 5), ["walk_away"]),
        ((say(P1), submit(P2, 3, 3, 3), do(P1, "Walk-Away")), (5, 5), ["walk_away", "pending"]),
        ((say(P1), submit(P2, 1, 3, 3), do(P1, "Accept-Deal")), (10, 30), []),
        ((say(P1), submit(P2, 2, 3, 3), do(P1, "Accept-Deal")), (5, 33), ["no_gain"]),
        ((say(P1), say(P2), submit(P1, 3, 2, 0)), (0, 0), ["no_end"]),
        ((*DEAL, say(P1)), (23, 19), ["after_end"]),
        ((say(P1), say(P1), *LEFT[1:]), (5, 5), ["walk_away", "twice_in_a_row"]),
        (
            (say(P1), *(move for _ in range(4) for move in (submit(P2, 3, 3, 3), do(P1, "Reject-Deal"))), *DEAL[1:]),
            (23, 19),
            ["rejections"],
        ),
    ],
)
def test_odd_dialogues_are_kept_and_counted(tmp_path, events, points, odd):
    found = imported(tmp_path, dialogue(*events, points=points))
    assert found.bad == []
    assert [kind for _, kind in kinds(found)] == odd
    (game,) = found.played
    if game.outcome["status"] != "aborted":
        got = score(found.scenarios[0], game.outcome).seats
        assert {seat: one.raw for seat, one in got.items()} == dict(zip("ab", points, strict=True))


def test_annotations_may_be_too_few_or_none(tmp_path):
    found = imported(tmp_path, dialogue(*DEAL, annotations=[]), dialogue(*DEAL, annotations=[["x", "y"]], number=8))
    assert kinds(found) == [(1, "no_annotations"), (2, "annotations_missing")]


def broken(change):
    row = dialogue(*DEAL)
    change(row)
    return row


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda r: r.pop("dialogue_id"), "dialogue_id is None, expected a whole number"),
        (lambda r: r.update(participant_info={}), "participant_info holds 0 participants, expected two"),
        (lambda r: r["participant_info"][P1].pop("value2issue"), f"{P1}.value2issue is None, expected an object"),
        (lambda r: r["participant_info"][P1]["value2issue"].update(High="Beer"), "High issue is 'Beer', expected Food"),
        (lambda r: r["participant_info"][P1]["value2issue"].update(High="Water"), "once each"),
        (lambda r: r["participant_info"][P1].update(value2reason={**WORDS, "Low": " "}), "Low reason is ' ', expected"),
        (lambda r: r["participant_info"][P1]["outcomes"].update(points_scored=22), "recorded with 22 points, its end"),
        (lambda r: r["participant_info"][P1]["outcomes"].update(points_scored=None), "points_scored is None"),
        (lambda r: r.update(chat_logs="none"), "chat_logs is 'none', expected a list"),
        (lambda r: r["chat_logs"].insert(0, say("mturk_agent_3")), "is by 'mturk_agent_3', expected mturk_agent_1"),
        (lambda r: r["chat_logs"].pop(2), "camper b accepts without a submission"),
        (lambda r: r["chat_logs"][3].update(id=P1), "camper a accepts its own submission"),
        (lambda r: r["chat_logs"].insert(3, do(P2, "Reject-Deal")), "camper b accepts without a submission"),
        (lambda r: r["chat_logs"][2]["task_data"]["issue2youget"].update(Food="2"), "does not divide three packages"),
        (
            lambda r: r["chat_logs"][2]["task_data"]["issue2youget"].update(Food="1.5"),
            "Food is '1.5', expected a whole",
        ),
        (lambda r: r["chat_logs"][2]["task_data"]["issue2youget"].update(Food=-1), "Food is -1, expected a whole"),
        (lambda r: r["chat_logs"][2].update(task_data={}), "issue2youget is None, expected an object"),
        (lambda r: r.update(annotations=3), "annotations is 3, expected a list"),
    ],
)
def test_a_bad_dialogue_is_named_and_left_out_alone(tmp_path, change, reason):
    found = imported(tmp_path, broken(change), dialogue(*DEAL, number=8))
    assert len(found.scenarios) == 1
    ((line, said),) = reasons(found)
    assert line == 1
    assert reason in said


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (summary(outcome="Nothing"), "outcome is 'Nothing', expected Accept-Deal or Walk-Away"),
        (summary(deal=None), "deal is None, though the outcome is Accept-Deal"),
        (summary(outcome="Walk-Away"), "though the outcome is Walk-Away"),
        (summary(deal={P1: ALL}), "deal.mturk_agent_2 is None"),
        (summary(deal={P1: ALL, P2: {"Food": 3, "Water": 0, "Firewood": 0}}), "does not divide three packages"),
        ([1], "the record is [1], expected an object"),
    ],
)
def test_a_bad_summary_is_named(tmp_path, row, reason):
    found = imported(tmp_path, summary(dialogue_id=9), row, name="games.jsonl")
    ((line, said),) = reasons(found)
    assert line == 2
    assert reason in said


def test_a_line_that_is_no_json_is_named(tmp_path):
    path = tmp_path / "games.jsonl"
    path.write_text(json.dumps(summary()) + '\n{"dialogue_id": 3,\n')
    found = core.read("casino", [path])
    ((line, said),) = reasons(found)
    assert (line, said[:8]) == (2, "not JSON")


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "x.json").write_text('[{"price": 3}]')
    with pytest.raises(DataError, match="looks like none of the formats dialogues, summaries"):
        core.read("casino", [tmp_path / "x.json"])
    (tmp_path / "y.json").write_text("[3]")
    with pytest.raises(DataError, match="holds no record that can be read"):
        core.read("casino", [tmp_path / "y.json"])
    with pytest.raises(UsageError, match="casino has no format 'csv'"):
        core.read("casino", [tmp_path / "x.json"], "csv")


HERE = Path(__file__).parents[3]
CORPUS = Path(os.environ.get("SOCIALRL_DATA", HERE.parent / "shared" / "data")) / "casino"


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")
def test_the_published_files_have_their_known_counts():
    found = core.read("casino", [CORPUS / "scenarios.jsonl", CORPUS / "casino_valid.json"])
    assert (found.rows, found.games, len(found.bad)) == (960, 930, 0)
    assert found.to_json()["outcomes"] == {"agreement": 906, "walk_away": 24}
    by_id = {scenario.id: scenario for scenario in found.scenarios}
    for game in found.played:
        got = score(by_id[game.scenario], game.outcome).seats
        assert {seat: one.raw for seat, one in got.items()} == game.reported
