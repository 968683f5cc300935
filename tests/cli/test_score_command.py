"""`socialrl score`, by what it prints."""

import io
import json

import pytest

from scenarios.core import packaged
from socialrl_cli.main import run

SCENARIO = {
    "counts": {"book": 1, "hat": 2, "ball": 3},
    "values": {"a": {"book": 1, "hat": 3, "ball": 1}, "b": {"book": 2, "hat": 1, "ball": 2}},
}
DEAL = {"status": "agreement", "agreement": {"a": {"book": 1, "hat": 2, "ball": 0}}}


def result(capsys, tmp_path, scenario, outcome, *more, env="dnd"):
    paths = []
    for name, content in (("s.json", scenario), ("o.json", outcome)):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        paths.append(str(path))
    code = run(["score", "--env", env, "--scenario", paths[0], "--outcome", paths[1], *more])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_json_is_the_documented_document(capsys, tmp_path):
    code, out, err = result(capsys, tmp_path, SCENARIO, DEAL, "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert list(document) == ["env", "status", "seats", "measures"]
    assert document["seats"]["a"] == {
        "raw": 7,
        "utility": 0.7,
        "reference": 0.7,
        "reward": pytest.approx(0.597121, abs=1e-6),
    }
    assert document["seats"]["b"]["reward"] == pytest.approx(0.351935, abs=1e-6)


def test_people_get_a_table(capsys, tmp_path):
    assert result(capsys, tmp_path, SCENARIO, DEAL)[1].splitlines() == [
        "dnd: agreement",
        "seat               raw   utility  reference    reward",
        "a                    7       0.7        0.7  0.597121",
        "b                    6       0.6        0.8  0.351935",
        "pareto_distance         0.000000",
        "joint_share             0.928571",
        "nash_share              0.875000",
    ]


@pytest.mark.parametrize("which", ["--scenario", "--outcome"])
def test_a_dash_reads_standard_input(capsys, tmp_path, monkeypatch, which):
    (tmp_path / "s.json").write_text(json.dumps(SCENARIO))
    (tmp_path / "o.json").write_text(json.dumps(DEAL))
    files = {"--scenario": tmp_path / "s.json", "--outcome": tmp_path / "o.json"}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(files[which].read_bytes())))
    files[which] = "-"
    argv = [word for option, path in files.items() for word in (option, str(path))]
    assert run(["score", "--env", "dnd", *argv, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seats"]["a"]["raw"] == 7


def test_both_cannot_be_standard_input(capsys):
    assert run(["score", "--env", "dnd", "--scenario", "-", "--outcome", "-"]) == 2
    assert "only one of --scenario and --outcome" in capsys.readouterr().err


def test_several_outcomes_of_one_scenario_are_averaged(capsys, tmp_path):
    outcomes = f"{json.dumps(DEAL)}\n" + '{"status": "timeout"}\n'
    code, out, _ = result(capsys, tmp_path, SCENARIO, outcomes)
    assert code == 0
    assert out.splitlines()[:3] == [
        "dnd: mean of 2 (agreement 1, timeout 1)",
        "seat               raw   utility  reference    reward",
        "a                  3.5      0.35        0.7  0.298560",
    ]


def test_an_outcome_names_its_scenario_among_several(capsys, tmp_path):
    scenarios = "".join(json.dumps({**SCENARIO, "id": name}) + "\n" for name in ("x", "y"))
    code, out, _ = result(capsys, tmp_path, scenarios, {**DEAL, "scenario": "y"}, "--json")
    assert json.loads(out)["seats"]["a"]["raw"] == 7
    code, _, err = result(capsys, tmp_path, scenarios, DEAL)
    assert (code, "holds 2 scenarios; name one of them" in err) == (1, True)
    code, _, err = result(capsys, tmp_path, scenarios, {**DEAL, "scenario": "z"})
    assert (code, "has no scenarios with the id 'z'" in err) == (1, True)


@pytest.mark.parametrize(
    ("scenario", "outcome", "message"),
    [
        (SCENARIO, {"status": "agreement", "agreement": {"price": 190}}, "o.json: agreement names 'price'"),
        (SCENARIO, {"status": "won"}, "o.json: status is 'won'"),
        (SCENARIO, [DEAL], "o.json: an outcome is a JSON object"),
        (SCENARIO, "", "o.json: is empty"),
        (SCENARIO, '{"status": NaN}', "o.json: NaN is not a number"),
        (SCENARIO, '{"status": "timeout", "status": "aborted"}', "o.json: key 'status' stands twice"),
        (SCENARIO, json.dumps(DEAL) + "\n{}\n", "o.json:2: status is missing"),
        ({"counts": SCENARIO["counts"]}, DEAL, "s.json: values is missing"),
        ({**SCENARIO, "env": "casino"}, DEAL, "s.json: env is 'casino'"),
        ({**SCENARIO, "env": 3}, DEAL, "s.json: env is 3, expected a text"),
        ([SCENARIO], DEAL, "s.json: a scenario is a JSON object"),
        ("{", DEAL, "s.json: not JSON"),
        ({**SCENARIO, "counts": {"book": 1, "hat": 2, "ball": True}}, DEAL, "counts.ball is True, expected an integer"),
        ({**SCENARIO, "counts": {"book": 2, "hat": 2, "ball": 3}}, DEAL, "everything is worth 11 to a"),
    ],
)
def test_bad_input_is_one_clear_line(capsys, tmp_path, scenario, outcome, message):
    code, out, err = result(capsys, tmp_path, scenario, outcome, "--json")
    assert (code, out) == (1, "")
    assert err.startswith("socialrl: error: ")
    assert message in err
    assert err.count("\n") == 1


def test_an_unknown_environment_is_wrong_usage(capsys, tmp_path):
    code, _, err = result(capsys, tmp_path, SCENARIO, DEAL, env="dnb")
    assert (code, err) == (2, "socialrl: error: unknown environment 'dnb'; did you mean 'dnd'?\n")


def test_missing_files_and_directories_are_said(capsys, tmp_path):
    for path, message in ((tmp_path / "none", "no such file"), (tmp_path, "is a directory")):
        assert run(["score", "--env", "dnd", "--scenario", str(path), "--outcome", "x"]) == 2
        assert message in capsys.readouterr().err


def test_the_help_has_an_example(capsys):
    assert run(["score", "--help"]) == 0
    assert "Example: socialrl score --env dnd --scenario s.json --outcome o.json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("env", "agreement", "message"),
    [
        ("dnd", {"a": {"book": 9, "hat": 0, "ball": 0}}, "book"),
        ("casino", {"a": {"food": 4, "water": 0, "firewood": 0}}, "food"),
        ("craigslist", {"price": "7,500"}, "price is '7,500', expected a number"),
        ("craigslist", {"price": -5}, "price is -5"),
        ("marketplace", {"price": None}, "price is None, expected a number"),
        ("job_interview", {"salary": "20"}, "salary"),
        ("calendar", {"slot": 600}, "has the slot 600, expected an hour"),
        ("werewolf", {"winner": "nobody"}, "has the winner 'nobody', expected villagers"),
    ],
)
def test_an_outcome_that_cannot_be_is_one_clear_line(capsys, tmp_path, env, agreement, message):
    scenario = packaged(env, "test")[0].to_json()
    code, out, err = result(capsys, tmp_path, scenario, {"status": "agreement", "agreement": agreement}, env=env)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"socialrl: error: {tmp_path}/o.json: ")
    assert message in err
