"""`socialrl eval`: its games over environments, its document, its thresholds and exit codes."""

import io
import json
import math
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from rich.console import Console

import envs
from scenarios import ENVIRONMENTS, NEGOTIATIONS
from scenarios.errors import ThresholdMissed, UsageError
from socialrl_cli import main
from socialrl_cli.evals import EvalConfig, check, compare, games_of, report, run_eval
from socialrl_cli.evaluation import GameResult
from socialrl_cli.report.tables import environment_table
from socialrl_cli.runs import Run
from socialrl_cli.thresholds import enforce, junit, thresholds

EVAL = ["eval", "--policy", "scripted:linear", "--scenarios", "1", "--trials", "1"]


def line(capsys):
    return capsys.readouterr().err.strip().splitlines()[-1]


def result(env="dnd", repeat=0, reward=0.5, policy="p", scenario="s", status="finished"):
    return GameResult(env, scenario, "o", "a", 0, repeat, policy, reward, reward, "agreement", status, 4, 0, "e")


# ---- what is played


def test_all_means_every_negotiation_and_stands_alone():
    assert EvalConfig(envs=("all",)).all_envs() == NEGOTIATIONS
    assert set(NEGOTIATIONS) <= set(ENVIRONMENTS)
    assert EvalConfig(envs=("dnd", "dnd")).all_envs() == ("dnd",)
    with pytest.raises(ValueError, match="alone"):
        EvalConfig(envs=("all", "dnd"))
    with pytest.raises(ValueError, match="envs, got none"):
        EvalConfig(envs=())


def test_a_party_stands_alone_and_has_opponents_and_baselines_of_its_own():
    config = EvalConfig(policy="scripted:sleuth", envs=("werewolf",))
    assert config.opponents == ("scripted:sleuth", "scripted:crowd")
    assert config.baselines == ("scripted:random", "scripted:silent")
    check(config)
    assert "werewolf" not in EvalConfig(envs=("all",)).all_envs()
    assert EvalConfig(envs=("dnd",)).opponents == ("scripted:linear", "scripted:boulware", "scripted:tit_for_tat")
    assert EvalConfig(envs=("dnd",), opponents=("scripted:leaky",)).opponents == ("scripted:leaky",)
    with pytest.raises(ValueError, match="got 'werewolf' among others, expected it alone"):
        EvalConfig(envs=("dnd", "werewolf"))
    with pytest.raises(UsageError, match="unknown scripted participant 'linear'"):
        check(EvalConfig(policy="scripted:linear", envs=("werewolf",)))


def test_a_team_that_thinks_beats_one_that_passes(tmp_path):
    config = EvalConfig(
        policy="scripted:sleuth", envs=("werewolf",), seats="team", trials=1, opponents=("scripted:sleuth",),
        baselines=("scripted:silent",), scenarios=40,
    )  # fmt: skip
    with Run.open(tmp_path / "run") as run:
        policies = run_eval(config, run)["policies"]
    assert policies["scripted:sleuth"]["mean"] > 0.4
    assert policies["scripted:silent"]["mean"] < 0.1


def test_the_usual_protocol_is_150_games_an_environment():
    games = games_of(EvalConfig(policy="p", envs=("all",)), "p")
    for env in NEGOTIATIONS:
        own = [game for game in games if game.scenario.env == env]
        assert len(own) == 10 * 3 * 5
        assert {game.seat for game in own} == set(envs.module(env).EVALUATED)
    assert len({game.seed for game in games}) == len({game.episode_id for game in games}) == len(games)


def test_both_seats_are_those_that_can_be_trained():
    for env in NEGOTIATIONS:
        games = games_of(EvalConfig(policy="p", envs=(env,), seats="both", scenarios=2, trials=1), "p")
        assert {game.seat for game in games} == set(envs.module(env).TRAINABLE)
        assert len(games) == 2 * 3 * len(envs.module(env).TRAINABLE)


def test_order_and_concurrency_change_no_game(tmp_path):
    config = EvalConfig(policy="scripted:random", envs=("all",), scenarios=3, trials=2, repeats=2, baselines=("none",))
    other = replace(
        config, envs=tuple(reversed(NEGOTIATIONS)), opponents=tuple(reversed(config.opponents)),
        play=replace(config.play, concurrency=1),
    )  # fmt: skip
    with Run.open(tmp_path / "a") as run:
        one = run_eval(config, run)
    with Run.open(tmp_path / "b") as run:
        two = run_eval(other, run)
    lines = [sorted((tmp_path / run / "eval" / "games.jsonl").read_text().splitlines()) for run in "ab"]
    assert lines[0] == lines[1]
    assert one["score"] == pytest.approx(two["score"], abs=1e-12)
    assert compare(tmp_path / "a", tmp_path / "b")["difference"]["mean"] == 0


def test_baselines_all_and_none_stand_alone():
    assert len(EvalConfig(baselines=("all",)).all_baselines()) == 10
    assert EvalConfig(baselines=("none",)).all_baselines() == ()
    with pytest.raises(ValueError, match="alone"):
        EvalConfig(baselines=("all", "scripted:linear"))


# ---- what it amounts to


def test_the_score_is_the_plain_mean_over_environments_with_the_sd_over_repeats():
    """dnd .2 and .4, casino .6 and .6 (twice as many games): repeats .4 and .5, mean .45, sd .1/√2."""
    games = [result("dnd", 0, 0.2), result("dnd", 1, 0.4)]
    games += [result("casino", repeat, 0.6, scenario=name) for repeat in (0, 1) for name in "st"]
    document = report(EvalConfig(policy="p", envs=("dnd", "casino")), {"p": games, "q": games[:2] + games[2:]})
    assert document["score"] == pytest.approx(0.45)
    assert document["sd"] == pytest.approx(0.1 / math.sqrt(2))
    assert document["environments"]["dnd"]["score"] == pytest.approx(0.3)
    assert document["environments"]["dnd"]["sd"] == pytest.approx(0.2 / math.sqrt(2))
    assert document["environments"]["casino"]["sd"] == 0
    assert document["environments"]["casino"]["differences"]["q"]["games"] == 4

    table = environment_table(document)
    cells = {column.header: list(column.cells) for column in table.columns}
    assert cells["policy"] == ["p", "q"]
    assert cells["dnd"][0] == "0.300 ±.141"
    assert cells["casino"][0] == "0.600 ±.000"
    assert cells["mean"][0] == "0.450 ±.071"


def test_the_figures_of_six_environments_are_whole_whatever_the_policy_is_called():
    rows = [result(env, repeat, 0.1 * repeat) for env in NEGOTIATIONS for repeat in (4, 5)]
    name = "run:runs/" + "x" * 60
    config = EvalConfig(policy="scripted:planner", envs=("all",))
    file = io.StringIO()
    Console(file=file, width=120).print(environment_table(report(config, {"scripted:planner": rows, name: rows})))
    assert file.getvalue().count("0.450 ±.071") == 2 * (len(NEGOTIATIONS) + 1)
    assert " planner " in file.getvalue()
    assert "…" not in file.getvalue()


def test_two_evaluations_are_compared_in_each_environment(tmp_path):
    for name, gain in (("a", 0.0), ("b", 0.1)):
        folder = tmp_path / name / "eval"
        folder.mkdir(parents=True)
        rows = [result("dnd", reward=0.2 + gain), result("casino", reward=0.2 + 2 * gain)]
        text = "".join(json.dumps({field: getattr(row, field) for field in row.__slots__}) + "\n" for row in rows)
        (folder / "games.jsonl").write_text(text)
        (folder / "summary.json").write_text('{"policy": "p"}')
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found["environments"]["dnd"]["mean"] == pytest.approx(0.1)
    assert found["environments"]["casino"]["mean"] == pytest.approx(0.2)
    assert found["scenarios"] == {"wins": 2, "losses": 0, "ties": 0}  # one scenario id in two environments


# ---- whether it is enough


def test_a_bare_threshold_is_for_the_score():
    assert thresholds(["0.5"], ["dnd"]) == {"dnd": 0.5}
    assert thresholds(["0.5", "casino=0.25"], ["dnd", "casino"]) == {"mean": 0.5, "casino": 0.25}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("high", "write a number"),
        ("nan", "write a number"),
        ("1.5", "from 0 to 1"),
        ("dnd=", "write a number"),
        ("dmd=0.5", "did you mean 'dnd'"),
        ("mean=0.5", "not evaluated here"),
    ],
)
def test_a_threshold_that_means_nothing_is_refused(text, message):
    with pytest.raises(UsageError, match=message):
        thresholds([text], ["dnd", "casino"])
    with pytest.raises(UsageError, match="twice"):
        thresholds(["0.5", "dnd=0.4"], ["dnd"])


DOCUMENT = {"policy": "p", "score": 0.4, "environments": {"dnd": {"score": 0.3}, "casino": {"score": 0.5}}}


def test_every_missed_threshold_is_named():
    enforce(DOCUMENT, {"dnd": 0.3, "mean": 0.4})
    with pytest.raises(ThresholdMissed) as caught:
        enforce(DOCUMENT, {"dnd": 0.31, "casino": 0.5, "mean": 0.41})
    assert str(caught.value) == "dnd: p scored 0.3000, under 0.31; mean: p scored 0.4000, under 0.41"
    with pytest.raises(ThresholdMissed, match="nan, under 0"):
        enforce({**DOCUMENT, "environments": {"dnd": {"score": math.nan}}}, {"dnd": 0})


def test_junit_has_a_case_an_environment_and_one_for_the_mean_where_it_was_asked_for():
    suite = ElementTree.fromstring(junit(DOCUMENT, {"dnd": 0.31})).find("testsuite")
    assert suite.attrib == {"name": "socialrl eval", "tests": "2", "failures": "1"}
    assert [case.get("name") for case in suite] == ["dnd", "casino"]
    assert suite[0].find("failure").get("message") == "dnd: p scored 0.3000, under 0.31"
    assert suite[1].find("failure") is None
    assert suite[1].find("system-out").text == "score 0.5000, no threshold"
    suite = ElementTree.fromstring(junit(DOCUMENT, {"mean": 0.4})).find("testsuite")
    assert [case.get("name") for case in suite] == ["dnd", "casino", "mean"]
    assert suite.get("failures") == "0"


# ---- the command


def test_a_missed_threshold_is_exit_code_3_after_the_result(tmp_path, capsys):
    argv = ["eval", "--policy", "scripted:demand_all", "--scenarios", "1", "--trials", "1", "--json"]
    file = tmp_path / "eval.xml"
    assert main.run([*argv, "--fail-under", "0.1", "--junit", str(file)]) == 3
    shown = capsys.readouterr()
    assert json.loads(shown.out)["score"] == 0.0
    assert "scored 0.0000, under 0.1" in shown.err
    assert ElementTree.parse(file).find("testsuite").get("failures") == "1"
    assert main.run([*argv, "--fail-under", "dnd=0"]) == 0


def test_the_table_of_all_environments_has_a_column_each_and_their_mean(capsys):
    argv = [*EVAL, "--env", "all", "--repeats", "2"]
    assert main.run([*argv, "--by-opponent"]) == 0
    out = capsys.readouterr().out
    assert main.run([*argv, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    for env in NEGOTIATIONS:
        assert env in out
        assert f"{document['environments'][env]['score']:.3f}" in out
    assert f"{document['score']:.3f}" in out
    assert "tit_for_tat" in out


def test_an_evaluation_is_resumed_with_its_own_configuration(tmp_path, capsys):
    folder = str(tmp_path / "r")
    assert main.run([*EVAL, "--run", folder, "--json"]) == 0
    before = json.loads(capsys.readouterr().out)
    assert main.run(["eval", "--run", folder, "--resume", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == before
    assert main.run(["eval", "--run", folder, "--resume", "--trials", "2"]) == 1
    assert "trials is 1 in this run and would become 2" in line(capsys)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--scenarios", "1000"], "1000 scenarios wanted, dnd test has 100"),
        (["--fail-under", "casinos=0.5"], "casinos"),
        (["--env", "dndd"], "did you mean 'dnd'"),
        (["--env", "all", "--env", "dnd"], "expected it alone"),
        (["--opponent", "scripted:lineer"], "did you mean 'linear'"),
        (["--seats", "one"], "alternate, both or team"),
        (["--junit", "no/such/folder/eval.xml"], "its folder does not exist"),
        (["--junit", "."], "is a folder"),
    ],
)
def test_a_mistake_is_one_line_that_names_it_and_plays_nothing(words, named, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main.run([*EVAL, *words]) == 2
    err = capsys.readouterr().err.strip().splitlines()
    assert len(err) == 1
    assert named in err[0]
    assert not list(tmp_path.iterdir())


def test_cross_play_sets_every_policy_against_every_policy(capsys):
    names = ["scripted:planner", "scripted:linear", "scripted:demand_all"]
    command = ["eval", "cross-play", *names, "--scenarios", "4", "--json"]
    assert main.run(command) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["policies"] == names
    matrix = document["environments"]["dnd"]
    assert list(matrix) == names
    assert all(list(row["by_opponent"]) == names for row in matrix.values())
    assert all(cell["games"] == 8 for row in matrix.values() for cell in row["by_opponent"].values())  # both seats
    assert matrix["scripted:demand_all"]["by_opponent"]["scripted:demand_all"]["mean"] == 0
    assert main.run(["eval", "cross-play", "scripted:planner", "scripted:planner"]) == 2
    assert "scripted:planner alone" in capsys.readouterr().err


def test_the_summary_is_json_that_every_reader_takes(tmp_path):
    config = EvalConfig(policy="scripted:random", envs=("dnd",), scenarios=2, trials=1, baselines=("none",))
    with Run.open(tmp_path / "run", "") as run:
        assert math.isnan(run_eval(config, run)["sd"])  # of one repeat

    def refuse(constant):
        raise AssertionError(constant)

    text = (tmp_path / "run" / "eval" / "summary.json").read_text()
    assert json.loads(text, parse_constant=refuse)["sd"] is None
