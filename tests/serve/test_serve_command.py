"""`socialrl serve` as a program, and the remote agent of the README that plays against it."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from envs.replay import find
from socialrl_cli.main import run
from socialrl_cli.store import read_games

AGENT = Path(__file__).with_name("remote_agent.py")
README = Path(__file__).parents[2] / "README.md"
OPENING = {"env": "dnd", "seats": {"a": "remote", "b": "remote"}}


def started(folder, *more):
    words = ["serve", "--port", "0", "--run", str(folder), "--json", *more]
    child = subprocess.Popen(
        [sys.executable, "-m", "socialrl_cli.main", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    printed = ""
    while not printed.endswith("}\n"):
        line = child.stdout.readline()
        assert line, child.communicate()
        printed += line
    return child, json.loads(printed)["url"]


def stopped(child):
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=20)
    assert (child.returncode, out) == (0, ""), err
    return err


def call(url, body=None, secret=""):
    head = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data, head), timeout=20) as answer:
        return json.load(answer)


def test_a_program_of_forty_lines_plays_an_episode_that_is_recorded(tmp_path):
    child, url = started(tmp_path / "run")
    done = subprocess.run(
        [sys.executable, "-I", AGENT, url], capture_output=True, text=True, timeout=30, cwd=tmp_path, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    outcome = json.loads(done.stdout)
    assert outcome["status"] == "agreement"
    assert outcome["score"]["utility"] >= 0.5
    assert "1 episodes in" in stopped(child)
    (game,) = read_games(tmp_path / "run")
    assert (game.policy, game.opponent, game.reward) == ("remote", "scripted:linear", outcome["score"]["reward"])
    assert find(tmp_path / "run", game.episode_id).agents == {"a": "remote", "b": "scripted:linear"}


def test_the_remote_agent_is_what_the_readme_shows_in_at_most_forty_lines():
    text = AGENT.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 40
    assert f"```python\n{text}```\n" in README.read_text(encoding="utf-8")
    named = {line.split()[1] for line in text.splitlines() if line.startswith(("import ", "from "))}
    assert {name.split(".")[0] for name in named} <= sys.stdlib_module_names


def test_ctrl_c_aborts_and_records_what_is_open_and_a_resume_goes_on(tmp_path):
    child, url = started(tmp_path / "run")
    first = call(f"{url}/v1/episodes", OPENING)["episode_id"]
    stopped(child)
    child, url = started(tmp_path / "run", "--resume", "--token", "sesame")
    with pytest.raises(HTTPError, match="401"):
        call(f"{url}/v1/episodes", OPENING)
    second = call(f"{url}/v1/episodes", OPENING, "sesame")["episode_id"]
    with pytest.raises(HTTPError, match="410"):
        call(f"{url}/v1/episodes/{first}")
    stopped(child)
    games = read_games(tmp_path / "run")
    assert [game.episode_id for game in games] == [first, second]
    assert {(game.outcome, game.error) for game in games} == {("aborted", "the server was stopped")}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--host", "0.0.0.0"], 2, "without a token"),
        (["--participant", "human"], 2, "a person takes a seat in socialrl play"),
        (["--participant", "remote"], 2, "participant 'remote'"),
        (["--participant", "model:./no/such"], 2, "no/such"),
        (["--participant", "robot"], 2, "unknown kind 'robot'"),
        (["--set", "limits.decide_timeout_s=none"], 2, "expected a deadline"),
        (["--set", "limits.moves=3"], 2, "limits.moves"),
        (["--port", "70000"], 2, "'--port'"),
        (["--max-open", "0"], 2, "'--max-open'"),
        (["--resume"], 2, "there is no run to resume"),
    ],
)
def test_wrong_use_is_one_line_and_leaves_no_folder(words, code, message, tmp_path, capfd):
    assert run(["serve", "--run", str(tmp_path / "run"), *words]) == code
    err = capfd.readouterr().err.strip().splitlines()
    assert len(err) == 1
    assert message in err[0]
    assert not (tmp_path / "run").exists()


def test_a_port_in_use_leaves_no_folder(tmp_path, capfd):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert run(["serve", "--port", port, "--run", str(tmp_path / "run")]) == 1
    assert capfd.readouterr().err == (
        f"socialrl: error: 127.0.0.1:{port}: cannot listen (the port is in use); choose another --port\n"
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("who", ["remote", "human"])
@pytest.mark.parametrize(
    "words", [["rollout", "--policy"], ["eval", "--policy", "scripted:linear", "--opponent"], ["eval", "--policy"]]
)
def test_who_cannot_sit_down_here_is_told_where(who, words, tmp_path, capfd):
    assert run([*words, who, "--run", str(tmp_path / "run")]) == 2
    (line,) = capfd.readouterr().err.strip().splitlines()
    assert {"remote": "in socialrl serve", "human": "in socialrl play"}[who] in line
    assert not (tmp_path / "run").exists()
