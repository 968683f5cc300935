"""The commands that own a run directory: configuration, resume, thresholds, the quickstart's folder."""

import json
import resource
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from scenarios.errors import RunError, UsageError
from socialrl_cli import buffer, main
from socialrl_cli.evals import EvalConfig
from socialrl_cli.quickstart import Quickstart

PLAY = ["rollout", "--policy", "scripted:linear", "--opponent", "scripted:conceder"]


def test_a_finished_run_is_not_begun_again(tmp_path, capsys, monkeypatch):
    folder = str(tmp_path / "r")
    assert main.run([*PLAY, "-n", "2", "--run", folder, "--json"]) == 0
    before = json.loads(capsys.readouterr().out)
    monkeypatch.setattr("socialrl_cli.rollouts.run_rollout", None)
    assert main.run(["rollout", "--run", folder, "--resume", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == before
    assert "finished already, nothing is left to do" in err


def test_a_model_whose_server_is_down_leaves_no_folder(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    who = f"openai:M@http://127.0.0.1:{port}/v1"
    assert main.run(["rollout", "--policy", who, "-n", "1", "--run", str(tmp_path / "r")]) == 1
    assert f"http://127.0.0.1:{port}/v1 cannot be reached" in line(capsys)
    assert not list(tmp_path.iterdir())


def test_a_disk_that_takes_no_more_is_said_and_resumed_from(tmp_path, capsys):
    folder = tmp_path / "r"
    command = [sys.executable, "-m", "socialrl_cli.main", *PLAY, "-n", "200", "--run", str(folder)]
    limited = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )  # fmt: skip
    assert limited.returncode == 1
    last = limited.stderr.splitlines()[-1]
    assert f"error: {folder}" in last
    assert "could not be written" in last
    assert "File too large" in last
    assert main.run(["rollout", "--run", str(folder), "--resume", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["left"], document["episodes"]) == (0, 200)


def no_games(*_):
    """In place of the scripted policies' evaluation."""
    return {}


def line(capsys):
    return capsys.readouterr().err.strip().splitlines()[-1]


def test_a_bare_key_belongs_to_the_algorithm(capsys):
    assert main.run(["train", "ppo", "quickstart", "--set", "steps=20", "--set", "seed=3", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "steps = 20" in text
    assert text.startswith("seed = 3")
    assert main.run(["train", "ppo", "quickstart", "--set", "stepz=20", "--dry-run"]) == 2
    assert "ppo.stepz" in line(capsys)


def test_a_run_is_resumed_with_its_own_configuration(tmp_path, capsys):
    folder = str(tmp_path / "r")
    assert main.run([*PLAY, "-n", "4", "--run", folder, "--json"]) == 0
    before = json.loads(capsys.readouterr().out)
    assert main.run(["rollout", "--run", folder, "--resume", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == before


def test_a_resume_that_would_change_the_games_is_refused(tmp_path, capsys):
    folder = str(tmp_path / "r")
    assert main.run([*PLAY, "-n", "2", "--run", folder, "--json"]) == 0
    assert main.run(["rollout", "--run", folder, "--resume", "--seed", "5"]) == 1
    assert "seed is 0 in this run and would become 5" in line(capsys)
    assert main.run(["rollout", "--run", folder, "--resume", "--set", "play.concurrency=2", "--json"]) == 0
    assert main.run([*PLAY, "--run", folder]) == 1
    assert "--resume continues it, --clean starts it over" in line(capsys)


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["rollout"], "nobody to watch"),
        (["rollout", "quickstart-sft"], "is a recipe for another command: socialrl train sft quickstart-sft"),
        (["train", "sft", "quickstart"], "is a recipe for another command: socialrl train ppo quickstart"),
        (["eval", "--policy", "scripted:linear", "--seats", "two"], "error: --seats two: "),
        (["rollout", "--policy", "scripted:lineer"], "linear"),
        (["rollout", "--policy", "scripted:linear", "--env", "dndd"], "dnd"),
        (["rollout", "--policy", "scripted:linear", "--split", "tset"], "tset"),
        (["rollout", "--policy", "scripted:linear", "--set", "play.concurency=3"], "play.concurrency"),
        (["rollout", "--policy", "scripted:linear", "--set", "play.concurrency=many"], "play.concurrency"),
        (["rollout", "--policy", "model:./no/such"], "no/such"),
        (["rollout", "--policy", "scripted:linear", "--engine", "vllm"], "vllm"),
        (["train", "ppo"], "no model to train"),
        (["train", "sft", "--model", "tiny"], "no data"),
        (["train", "ppo", "no-such-recipe"], "no-such-recipe"),
    ],
)
def test_a_mistake_is_one_line_that_names_it_and_writes_nothing(argv, named, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main.run(argv) == 2
    shown = capsys.readouterr().err.strip().splitlines()
    assert named in shown[-1]
    assert sum("error:" in text for text in shown) == 1
    assert not list(tmp_path.iterdir())


def test_a_quickstart_goes_on_only_in_its_own_folder_and_with_its_own_seed(tmp_path):
    done = []
    work = Quickstart.at(tmp_path / "q", 1)
    work.phase("build", lambda: done.append("build"))
    again = Quickstart.at(tmp_path / "q", 1)
    again.phase("build", lambda: done.append("twice"))
    assert done == ["build"]
    with pytest.raises(RunError, match="seed 1"):
        Quickstart.at(tmp_path / "q", 2)
    with pytest.raises(RunError, match="not finished"):
        again.result()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(RunError, match="holds no quickstart"):
        Quickstart.at(tmp_path / "other", 0)
    with pytest.raises(UsageError, match="no quickstart has been begun"):
        Quickstart.at(tmp_path / "never", 0, begun=True)
    assert not (tmp_path / "never").exists()


def test_the_seconds_of_an_interrupted_phase_count(tmp_path, monkeypatch):
    clock = iter([0.0, 5.0, 100.0, 103.0])
    monkeypatch.setattr("socialrl_cli.quickstart.time.monotonic", lambda: next(clock))

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Quickstart.at(tmp_path / "q", 0).phase("ppo", interrupted)
    work = Quickstart.at(tmp_path / "q", 0)
    work.phase("ppo", lambda: None)
    assert work.seconds == {"ppo": 8.0}


def test_the_result_of_a_quickstart_is_json_that_any_reader_takes(tmp_path, monkeypatch):
    def refused(name):
        raise ValueError(name)

    monkeypatch.setattr(Quickstart, "summarise", lambda *_: {"trained": {"mean": 0.5, "sd": float("nan")}})
    monkeypatch.setattr(Quickstart, "models", lambda _: {})
    monkeypatch.setattr(Quickstart, "eval_config", lambda _: EvalConfig(policy="scripted:linear"))
    monkeypatch.setattr("socialrl_cli.quickstart._play_scripted", no_games)
    monkeypatch.setattr("socialrl_cli.quickstart.ProcessPoolExecutor", lambda *_, **__: ThreadPoolExecutor(1))
    work = Quickstart.at(tmp_path / "q", 0)
    work.phase("evaluate", work.evaluate)
    assert work.result()["trained"]["mean"] == 0.5
    written = (tmp_path / "q" / "summary.json").read_text(encoding="utf-8")
    assert json.loads(written, parse_constant=refused)["trained"] == {"mean": 0.5, "sd": None}


def test_a_rollout_of_several_environments_shares_its_episodes_among_them(tmp_path, capsys):
    folder = str(tmp_path / "run")
    envs = ["--env", "dnd", "--env", "calendar"]
    assert main.run([*PLAY, *envs, "--split", "test", "-n", "5", "--run", folder, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["envs"] == ["dnd", "calendar"]
    assert {env: found["games"] for env, found in document["environments"].items()} == {"dnd": 3, "calendar": 2}
    rows = buffer.read(tmp_path / "run" / "buffer")
    assert set(rows["env"].to_pylist()) == {"dnd", "calendar"}
    with open(next((tmp_path / "run" / "events").glob("*.jsonl")), encoding="utf-8") as file:
        assert len({json.loads(line)["episode_id"] for line in file}) == 5
