"""Importing job interviews: every odd and every bad kind of session, on an invented one."""

import copy
import json
import os
from pathlib import Path

import pytest

from rewards.core import score
from scenarios import core as scenarios
from scenarios.errors import DataError
from scenarios.importers import core

PLACES, COMPANIES = ("Tokyo", "Seoul", "Beijing", "Sydney"), ("Google", "Amazon", "Facebook", "Apple")
TITLES = ("Engineer", "Manager", "Designer", "Sales")
BODY = {"Salary": 30, "Position": "Sales", "Weekly holiday": 3, "Workplace": "Seoul", "Company": "Apple"}


def user(role, weights):
    salary, holiday, position, place, company = weights
    jobs = [
        {"names": {"Position": title, "Company": firm}, "weight": i / 3}
        for firm in COMPANIES
        for i, title in enumerate(TITLES)
    ]
    utilities = [
        {"name": "Salary", "type": "INTEGER", "min": 20, "max": 50, "weight": salary},
        {"name": "Position", "type": "DISCRETE", "relatedTo": "Company", "options": jobs, "weight": position},
        {"name": "Weekly holiday", "type": "INTEGER", "min": 2, "max": 6, "weight": holiday},
        *(
            {
                "name": name,
                "type": "DISCRETE",
                "options": [{"name": option, "weight": i / 3} for i, option in enumerate(options)],
                "weight": weight,
            }
            for name, options, weight in (("Workplace", PLACES, place), ("Company", COMPANIES, company))
        ),
    ]
    return {"id": f"u-{role}", "worker_id": "A1B2", "assignment_id": "Z9", "role": role, "utilities": utilities}


def bid(accepted=None, **change):
    return {"id": "b", "body": {**BODY, **change}, "accepted": accepted, "user_id": "u-worker", "created_at": "now"}


def session(*bids, status="completed", **change):
    users = [user("worker", (0.3, 0.1, 0.2, 0.2, 0.2)), user("recruiter", (0.1, 0.3, 0.1, 0.25, 0.25))]
    comments = [{"id": "c", "body": "Hello", "user_id": "u-worker", "created_at": "now"}]
    return {"id": "s1", "status": status, "users": users, "comments": comments, "solutions": list(bids), **change}


def imported(tmp_path, *rows):
    path = tmp_path / "data.json"
    path.write_text(json.dumps(list(rows)))
    return core.read("job_interview", [path])


def kinds(found):
    return [odd.kind for odd in found.odd]


def test_a_session_becomes_a_scenario_and_its_outcome(tmp_path):
    found = imported(tmp_path, session(bid(), bid(True, Salary=40)))
    (only,) = found.scenarios
    assert only["weights"]["recruiter"] == {
        "salary": 0.1,
        "weekly_holiday": 0.3,
        "position": 0.1,
        "workplace": 0.25,
        "company": 0.25,
    }
    assert only["options"]["worker"]["position"]["Apple"] == {
        "Engineer": 0,
        "Manager": 1 / 3,
        "Designer": 2 / 3,
        "Sales": 1,
    }
    assert list(only["options"]["worker"]["company"]) == ["Google", "Facebook", "Apple", "Amazon"]
    assert only.source == "job_interview:data.json:1"
    assert scenarios.check(only) == []
    (game,) = found.played
    assert game.outcome["agreement"]["salary"] == 40
    # .3·20/30 + .1·1/4 + .2·1 + .2·1/3 + .2·1 = .2 + .025 + .2 + .066667 + .2
    assert score(only, game.outcome).seats["worker"].utility == pytest.approx(0.691667, abs=1e-6)
    assert kinds(found) == []
    assert "A1B2" not in json.dumps([only.to_json(), game.to_json()])


@pytest.mark.parametrize(
    ("row", "status", "odd"),
    [
        (session(), "aborted", ["no_accepted_bid", "no_bids"]),
        (session(bid()), "aborted", ["no_accepted_bid"]),
        (session(bid(True), bid(True, Salary=31)), "agreement", ["two_accepted"]),
        (session(bid(False), bid(True)), "agreement", []),
        (session(bid(), status="aborted"), "aborted", []),
        (session(status="terminated"), "aborted", ["no_bids"]),
        (session(bid(Salary=35.5, **{"Weekly holiday": 4.8}), bid(True)), "agreement", ["illegal_bid"]),
        (session(bid(Salary=99), bid(True)), "agreement", ["illegal_bid"]),
        (session(bid(True), comments=[]), "agreement", ["no_comments"]),
    ],
)
def test_odd_sessions_are_kept_and_counted(tmp_path, row, status, odd):
    found = imported(tmp_path, row)
    assert found.bad == []
    assert kinds(found) == odd
    assert found.played[0].outcome["status"] == status
    if status == "agreement":
        assert found.played[0].outcome["agreement"]["salary"] == 30, "the first accepted bid counts"


def test_a_bid_may_miss_an_issue(tmp_path):
    short = bid()
    del short["body"]["Salary"]
    assert kinds(imported(tmp_path, session(short, bid(True)))) == ["incomplete_bid"]


def test_the_same_session_counts_once_and_the_same_numbers_are_one_scenario(tmp_path):
    found = imported(tmp_path, session(bid(True)), session(bid(True)), session(bid(True), id="s2"))
    assert (found.rows, found.games, len(found.scenarios)) == (3, 2, 1)
    assert kinds(found) == ["again"]
    assert found.to_json()["repeated"] == 1


def spot(row, user, name):
    return next(utility for utility in row["users"][user]["utilities"] if utility["name"] == name)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda r: r.update(status="paused"), "status is 'paused', expected completed, aborted or terminated"),
        (lambda r: r.update(users=None), "users is None, expected a list"),
        (lambda r: r["users"].pop(), "there is no recruiter"),
        (lambda r: r["users"][1].update(role="worker"), "there are two users in the role worker"),
        (lambda r: r["users"][1].update(role="boss"), "role is 'boss', expected worker or recruiter"),
        (lambda r: spot(r, 0, "Salary").update(max=60), "worker's salary runs from 20 to 60, expected 20 to 50"),
        (lambda r: spot(r, 0, "Salary").update(weight=0.5), "weights.worker add up to 1.2, expected 1"),
        (lambda r: spot(r, 0, "Salary").update(weight=None), "weights.worker.salary is None, expected a number"),
        (lambda r: spot(r, 0, "Salary").update(name="Bonus"), "the name of a utility is 'Bonus', expected Salary"),
        (lambda r: spot(r, 0, "Company").update(name="Salary", min=20, max=50), "worker has the utility Salary twice"),
        (lambda r: spot(r, 0, "Position")["options"].pop(), "options.worker.position.Apple.Sales is missing"),
        (lambda r: spot(r, 0, "Workplace")["options"][0].update(name="Paris"), "an option of workplace is 'Paris'"),
        (lambda r: spot(r, 0, "Workplace")["options"][0].update(name="Seoul"), "worker has the workplace Seoul twice"),
        (lambda r: spot(r, 0, "Workplace")["options"][0].update(weight=2), "options.worker.workplace.Tokyo is 2"),
        (lambda r: spot(r, 0, "Position")["options"][0].update(names=3), "the names of a position is 3"),
        (lambda r: r["solutions"][0].update(accepted="yes"), "accepted is 'yes', expected true or null"),
        (lambda r: r["solutions"][0].update(accepted=1), "accepted is 1, expected true or null"),
        (lambda r: r["solutions"][0]["body"].update(Salary=35.5), "the accepted bid has the salary 35.5"),
        (lambda r: r["solutions"][0]["body"].pop("Salary"), "the accepted bid does not name the salary"),
        (lambda r: r["solutions"][0].pop("body"), "the body of a bid is None, expected an object"),
        (lambda r: r.update(status="aborted"), "a bid was accepted, though the session was aborted"),
        (lambda r: r.update(comments="none"), "comments is 'none', expected a list"),
    ],
)
def test_a_bad_session_is_named_and_left_out_alone(tmp_path, change, reason):
    row = copy.deepcopy(session(bid(True)))
    change(row)
    found = imported(tmp_path, session(bid(), id="s2"), row)
    assert len(found.played) == 1
    ((line, said),) = [(problem.line, problem.reason) for problem in found.bad]
    assert line == 2
    assert reason in said


def test_a_file_of_another_kind_is_refused(tmp_path):
    with pytest.raises(DataError, match="does not look like sessions"):
        imported(tmp_path, {"dialogue_id": 3})


HERE = Path(__file__).parents[3]
CORPUS = Path(os.environ.get("SOCIALRL_DATA", HERE.parent / "shared" / "data")) / "job_interview"


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")
def test_the_sample_has_its_known_counts():
    found = core.read("job_interview", [CORPUS / "synthetic_sample.json"])
    assert (found.rows, found.games, len(found.bad)) == (60, 60, 0)
    assert found.to_json()["odd_kinds"] == {
        "no_accepted_bid": 9,
        "no_bids": 15,
        "two_accepted": 1,
        "illegal_bid": 1,
        "incomplete_bid": 1,
        "no_comments": 5,
    }
