"""Importing Craigslist bargains: every odd and every bad kind of record, on invented listings."""

import copy
import json
import os
from pathlib import Path

import pytest

from rewards.core import score
from scenarios import core as scenarios
from scenarios.errors import DataError
from scenarios.importers import core

HERE = Path(__file__).resolve().parents[3]
CORPUS = Path(os.environ.get("SOCIALRL_DATA", HERE.parent / "shared" / "data")) / "craigslist"


def talk(*events, target=80, price=100, title="Green bike", reward=1, offer=85.0, **changes):
    """A dialogue; events are (agent, action, price of an offer or words)."""
    item = {
        "Category": "bike",
        "Images": ["bike/post-0001_0.jpg"],
        "Price": price,
        "Description": ["It rolls well.", "", "It is green."],
        "Title": title,
    }
    rows = [
        {
            "agent": agent,
            "action": action,
            "data": {"price": data, "sides": ""} if action == "offer" else data,
            "time": f"{1000 + i}.10",
            "start_time": f"{1000 + i}.00" if action == "message" else None,
        }
        for i, (agent, action, data) in enumerate(events)
    ]
    outcome = {"reward": reward, "offer": None if offer is None else {"price": offer, "sides": ""}}
    return {
        "uuid": "C_1",
        "scenario": {
            "category": "bike",
            "uuid": "S_1",
            "post_id": "post-0001",
            "kbs": [
                {"personal": {"Bottomline": None, "Role": "buyer", "Target": target}, "item": copy.deepcopy(item)},
                {"personal": {"Bottomline": None, "Role": "seller", "Target": price}, "item": item},
            ],
        },
        "scenario_uuid": "S_1",
        "agents": {"0": "human", "1": "human"},
        "outcome": outcome,
        "events": rows,
        **changes,
    }


HELLO, OFFER, ACCEPT = (0, "message", "hi"), (0, "offer", 85.0), (1, "accept", None)


def summary(**changes):
    row = {
        "uuid": "C_1",
        "split": "dev",
        "scenario_uuid": "S_1",
        "inner_scenario_uuid": "S_1",
        "post_id": "post-0001",
        "category": "bike",
        "title": "Green bike",
        "list_price": 100,
        "buyer_target": 80,
        "seller_target": 100,
        "buyer_description": ["It rolls well."],
        "seller_description": ["It rolls well.", "It is green."],
        "n_images": 1,
        "outcome": {"reward": 1, "offer": {"price": 85.0, "sides": ""}},
        "last_action": "accept",
        "n_events": 3,
        "offers": [[0, 85.0]],
    }
    return {**row, **changes}


def imported(tmp_path, *records, format=None, name="games"):
    lines = format == "summaries" or (records and "list_price" in records[0])
    path = tmp_path / f"{name}.json"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in records) if lines else json.dumps(records))
    return core.read("craigslist", [path], format)


def outcome_of(found):
    return [(game.record, game.outcome) for game in found.played]


@pytest.mark.parametrize("record", [talk(HELLO, OFFER, ACCEPT), summary()])
def test_both_layouts_give_the_same_scenario_and_outcome(tmp_path, record):
    found = imported(tmp_path, record)
    (only,) = found.scenarios
    assert dict(only.fields) == {
        "category": "bike",
        "title": "Green bike",
        "description": "It rolls well.\nIt is green.",
        "listing_price": 100,
        "buyer_target": 80,
    }
    assert (only.id, only.source) == ("craigslist-green-bike-100-80", "craigslist:games.json:1")
    assert scenarios.check(only) == []
    assert outcome_of(found) == [("deal", {"status": "agreement", "agreement": {"price": 85.0}})]
    assert score(only, found.played[0].outcome).seats["buyer"].reward == 0.75  # (100 - 85) / 20
    assert (found.rows, found.games, found.bad, found.odd) == (1, 1, [], [])


@pytest.mark.parametrize(
    ("record", "kinds"),
    [
        (talk(HELLO, (0, "offer", None), (1, "quit", None), reward=0, offer=None), {"null_offer"}),
        (talk(HELLO, (1, "offer", 120.0), (0, "accept", None), offer=120.0), {"above_list"}),
        (talk(HELLO, (1, "offer", 1409.0), (0, "accept", None), offer=1409.0), {"above_list"}),
        (talk(HELLO, (0, "offer", 29.0), ACCEPT, offer=29.0), {"low"}),
        (talk(HELLO, OFFER, (1, "reject", None), reward=0), {"offer_without_deal"}),
        (talk(HELLO, (1, "message", "no"), reward=0, outcome={"reward": 0}), {"no_offer_key", "ends_with_message"}),
        (
            talk(HELLO, OFFER, (1, "offer", 85.0), (0, "accept", None), ACCEPT),
            {"two_accepts", "after_end", "own_accept"},
        ),
        (talk(HELLO, OFFER, (0, "accept", None)), {"own_accept"}),
        (talk((0, "accept", None), (1, "offer", 85.0)), {"early_accept", "after_end", "ends_with_offer", "no_message"}),
        (talk(HELLO, OFFER, ACCEPT, (0, "message", "great")), {"after_end", "ends_with_message"}),
        (talk(OFFER, ACCEPT), {"no_message"}),
        (talk(HELLO, OFFER, ACCEPT, scenario_uuid="S_2"), {"other_uuid"}),
        (summary(inner_scenario_uuid="S_9"), {"other_uuid"}),
        (summary(n_images=0), {"no_image"}),
        (summary(offers=[[0, None], [0, 85.0]]), {"null_offer"}),
        (summary(last_action="message"), {"ends_with_message"}),
        (summary(last_action="offer"), {"ends_with_offer"}),
        (summary(outcome={"reward": 0}, last_action="quit"), {"no_offer_key"}),
        (summary(offers=[[0, 20]], outcome={"reward": 1, "offer": {"price": 20}}), {"low"}),
    ],
)
def test_an_odd_record_is_a_good_scenario_and_is_told_by_kind(tmp_path, record, kinds):
    found = imported(tmp_path, record)
    assert len(found.scenarios) == 1
    assert {odd.kind for odd in found.odd} == kinds
    assert [odd.line for odd in found.odd] == [1] * len(kinds)
    for game in found.played:
        score(found.scenarios[0], game.outcome)


def test_images_and_clocks_that_do_not_fit_are_told(tmp_path):
    strange, bare, early = (talk(HELLO, OFFER, ACCEPT, uuid=f"C_{i}") for i in range(3))
    strange["scenario"]["kbs"][1]["item"]["Images"] = ["bike/post-0002_0.jpg"]
    bare["scenario"]["kbs"][1]["item"]["Images"] = []
    early["events"][0]["start_time"] = "-12.5"
    found = imported(tmp_path, strange, bare, early)
    assert [(odd.line, odd.kind) for odd in found.odd] == [(1, "other_image"), (2, "no_image"), (3, "other_clock")]
    assert found.times == {"craigslist-green-bike-100-80": 3}


def test_how_a_talk_without_a_deal_ended_decides_its_status(tmp_path):
    ends = [("reject", None), ("quit", None), ("message", "bye")]
    records = [talk(HELLO, OFFER, (1, *end), reward=0, offer=None, uuid=f"C_{i}") for i, end in enumerate(ends)]
    assert outcome_of(imported(tmp_path, *records)) == [
        ("reject", {"status": "walk_away"}),
        ("quit", {"status": "aborted"}),
        ("message", {"status": "aborted"}),
    ]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (talk(HELLO, OFFER, ACCEPT, target=100), "buyer_target 100 is not below listing_price 100"),
        (talk(HELLO, OFFER, ACCEPT, target=None), "buyer_target is None, expected a number"),
        (talk(HELLO, OFFER, ACCEPT, price=0), "listing_price is 0, expected more than 0"),
        (talk(HELLO, OFFER, ACCEPT, title=" "), "title is ' ', expected a text"),
        (talk(HELLO, OFFER, ACCEPT, offer=None), "outcome.offer, though the reward is 1, is None, expected an object"),
        (talk(HELLO, OFFER, ACCEPT, offer=90.0), "the deal is at 90.0, but the last offer is 85.0"),
        (talk(HELLO, ACCEPT), "the deal is at 85.0, but the last offer is None"),
        (talk(HELLO, OFFER, ACCEPT, reward=2), "outcome.reward is 2, expected 0 or 1"),
        (talk(HELLO, OFFER, ACCEPT, events="none"), "events is 'none', expected a list"),
        (talk(HELLO, OFFER, ACCEPT, scenario=None), "scenario is None, expected an object"),
        (talk(HELLO, OFFER, ACCEPT, uuid=7), "uuid is 7, expected a text"),
        (summary(category="boat"), "category is 'boat', expected bike, car"),
        (summary(seller_target=90), "the seller's target 90 is not the price 100"),
        (summary(seller_description=[" "]), "description is '', expected a text"),
        (summary(seller_description=None), "the description is None, expected a list"),
        (summary(offers=[[0]]), "an offer is [0], expected agent and price"),
        (summary(outcome={"reward": 1, "offer": {"price": -3}}), "the price of the deal is -3, expected more than 0"),
        (summary(buyer_target="80"), "buyer_target is '80', expected a number"),
    ],
)
def test_a_bad_record_is_refused_with_its_place_and_costs_no_other(tmp_path, record, reason):
    good = talk if "scenario" in record else summary
    first = good(HELLO, OFFER, ACCEPT, uuid="C_0") if good is talk else good(uuid="C_0")
    found = imported(tmp_path, first, record)
    assert [(problem.line, reason in problem.reason) for problem in found.bad] == [(2, True)], found.bad
    assert len(found.scenarios) == 1


def test_views_that_differ_are_refused(tmp_path):
    twice, cheaper = talk(HELLO, OFFER, ACCEPT), talk(HELLO, OFFER, ACCEPT)
    twice["scenario"]["kbs"][0]["personal"]["Role"] = "seller"
    cheaper["scenario"]["kbs"][0]["item"]["Price"] = 90
    found = imported(tmp_path, twice, cheaper)
    assert [problem.reason for problem in found.bad] == [
        "the views are of ['seller'], expected buyer and seller",
        "the buyer sees the price 90, the seller 100",
    ]


def test_a_dialogue_in_two_files_is_one_game_and_a_listing_in_other_words_another_scenario(tmp_path):
    imported(tmp_path, talk(HELLO, OFFER, ACCEPT), name="a")
    imported(tmp_path, summary(), summary(uuid="C_2", seller_description=["Other words."]), name="b")
    found = core.read("craigslist", [tmp_path / "a.json", tmp_path / "b.json"])
    assert (found.rows, found.games, len(found.scenarios)) == (3, 2, 2)
    assert [odd.kind for odd in found.odd] == ["again"]
    one, two = found.scenarios
    assert two.id.startswith(one.id + "-")
    assert one.split == two.split


def test_what_is_no_such_file_is_refused_whole(tmp_path):
    for text, reason in (("", "is empty"), ("[", "not JSON"), ('[{"a": 1}]', "looks like none of the formats")):
        path = tmp_path / "x.json"
        path.write_text(text)
        with pytest.raises(DataError, match=reason):
            core.read("craigslist", [path])
    path.write_text(f"nonsense\n{json.dumps(summary())}\n")
    assert [str(problem) for problem in core.read("craigslist", [path]).bad] == [
        f"{path}:1: not JSON: Expecting value at column 1"
    ]


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus is not here")
def test_the_corpus_is_read_without_a_bad_record():
    found = core.read("craigslist", [CORPUS / "dialogues_dev_150.json", CORPUS / "scenarios.jsonl"])
    assert (found.rows, found.games, found.bad) == (793, 643, [])
