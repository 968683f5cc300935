"""`socialrl play` as a person uses it: by lines on standard input, in a terminal, and left with Ctrl-C."""

import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

import envs
from envs.replay import find, replay
from scenarios import ENVIRONMENTS
from scenarios.core import packaged
from socialrl_cli.main import run
from socialrl_cli.playing import verdict
from socialrl_cli.store import read_games

GAME = ["--seed", "1", "--index", "0", "--opponent", "scripted:first_offer"]
OFFER = "propose\n0\n0\n0\nAll yours\n"  # first_offer takes it


def program(*words):
    return [sys.executable, "-m", "socialrl_cli.main", "play", *words]


def played(folder, text, *words):
    done = subprocess.run(
        program("--run", str(folder), *words), input=text, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_a_game_by_lines_on_standard_input(tmp_path):
    code, out, err = played(tmp_path / "run", OFFER, *GAME)
    assert (code, err) == (0, "")
    scenario = packaged("dnd", "test")[0]
    (game,) = read_games(tmp_path / "run")
    assert out.startswith(f"dnd: you are a, opposite sits scripted:first_offer; scenario {scenario.id}, seed 1\n")
    assert "You negotiate with another party" in out
    assert "book (a whole number, at least 0, at most" in out
    assert "The other side accepts your offer." in out
    assert "agreement by b: " in out
    assert "Your utility of 0.00 is below the reference of " in out
    assert "b knew: " in out
    assert f"socialrl replay {tmp_path / 'run'} {game.episode_id}" in out
    assert (game.policy, game.opponent, game.outcome, game.reward) == ("human", "scripted:first_offer", "agreement", 0)
    assert find(tmp_path / "run", game.episode_id).agents == {"a": "human", "b": "scripted:first_offer"}


def test_as_json_the_end_is_one_document_and_the_talk_goes_elsewhere(tmp_path):
    code, out, err = played(tmp_path / "run", OFFER, *GAME, "--json")
    assert code == 0
    document = json.loads(out)
    assert document["outcome"]["status"] == "agreement"
    assert document["seats"] == {"a": "human", "b": "scripted:first_offer"}
    assert document["outcome"]["seats"]["b"]["utility"] == 1
    assert "your move: propose" in err


def test_games_are_kept_beside_earlier_ones(tmp_path):
    for _ in range(2):
        assert played(tmp_path / "run", OFFER, *GAME)[0] == 0
    assert len(read_games(tmp_path / "run")) == 2


def test_standard_input_that_ends_leaves_an_aborted_episode(tmp_path):
    code, _, err = played(tmp_path / "run", "message\n", *GAME)
    (game,) = read_games(tmp_path / "run")
    assert code == 1
    assert err == (
        "socialrl: error: the person has left: standard input has ended; the episode is kept as aborted: "
        f"socialrl replay {tmp_path / 'run'} {game.episode_id}\n"
    )
    assert (game.status, game.outcome, game.reward) == ("failed", "aborted", 0)


async def test_an_aborted_episode_can_be_replayed(tmp_path):
    played(tmp_path / "run", "", *GAME)
    (game,) = read_games(tmp_path / "run")
    assert await replay(find(tmp_path / "run", game.episode_id)) == []


def test_a_file_may_be_standard_input(tmp_path):
    (tmp_path / "moves.txt").write_text(OFFER)
    with open(tmp_path / "moves.txt") as moves:
        done = subprocess.run(
            program("--run", str(tmp_path / "run"), *GAME), stdin=moves, capture_output=True, timeout=60, check=False
        )
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_input_that_has_nothing_to_say_ends_the_game(tmp_path):
    done = subprocess.run(
        program("--run", str(tmp_path / "run"), *GAME),
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert b"the person has left: standard input has ended" in done.stderr
    (game,) = read_games(tmp_path / "run")
    assert (game.outcome, game.decisions) == ("aborted", 0)


def until(master, words, seen=b""):
    """Read a terminal until it has shown the words."""
    ends = time.monotonic() + 30
    while words not in seen:
        assert time.monotonic() < ends, seen
        seen += os.read(master, 65536)
    return seen


@pytest.fixture
def terminal(tmp_path):
    """The program in a terminal: its master side and the process."""
    master, slave = pty.openpty()
    child = subprocess.Popen(
        program("--run", str(tmp_path / "run"), *GAME),
        stdin=slave, stdout=slave, stderr=slave, env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        start_new_session=True, preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(slave)
    yield master, child
    os.close(master)
    child.kill()
    child.wait()


def test_a_game_in_a_terminal(terminal, tmp_path):
    master, child = terminal
    until(master, b"your move: ")
    os.write(master, b"5\n")  # only three moves while there is no offer
    until(master, b"write its number or its name")
    os.write(master, b"prop\n")
    for label, value in (("book", "0"), ("hat", "0"), ("ball", "0"), ("say", "")):
        until(master, label.encode() + b" (")
        os.write(master, value.encode() + b"\n")
    until(master, b"socialrl replay")
    assert child.wait(20) == 0
    assert read_games(tmp_path / "run")[0].outcome == "agreement"


def test_ctrl_c_leaves_a_recorded_aborted_episode(terminal, tmp_path):
    master, child = terminal
    until(master, b"your move: ")
    os.write(master, b"message\n")
    until(master, b"say (")
    os.write(master, b"\x03")
    until(master, b"socialrl: interrupted")
    assert child.wait(20) == 130
    (game,) = read_games(tmp_path / "run")
    assert (game.status, game.outcome, game.error) == ("failed", "aborted", "interrupted")
    assert find(tmp_path / "run", game.episode_id).outcome["status"] == "aborted"


def test_a_signal_from_a_scheduler_counts_as_ctrl_c(terminal, tmp_path):
    master, child = terminal
    until(master, b"your move: ")
    child.send_signal(signal.SIGTERM)
    until(master, b"socialrl: interrupted")
    assert child.wait(20) == 130
    assert len(read_games(tmp_path / "run")) == 1


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_every_environment_is_played_from_every_seat(env, tmp_path, monkeypatch, capsys):
    import io

    for seat in envs.module(env).SEATS:
        monkeypatch.setattr(sys, "stdin", io.StringIO("message\nhello\n" * 40))
        words = ["play", "--env", env, "--seat", seat, "--index", "3", "--run", str(tmp_path / "run"), "--json"]
        assert run(words) in (0, 1), capsys.readouterr().err
    games = read_games(tmp_path / "run")
    assert {game.seat for game in games} == set(envs.module(env).SEATS)
    assert all(game.invalid == 0 for game in games)


def test_a_deal_is_judged_by_the_reference_where_there_is_one():
    score = {"utility": 0.7, "reference": 0.6, "reward": 0.65}
    assert verdict(score).startswith("Your utility of 0.70 is above the reference of 0.60")
    assert "below" in verdict({**score, "utility": 0.5})
    assert "exactly" in verdict({**score, "utility": 0.6})
    assert verdict({**score, "reference": None, "reward": 0.38}) == "You got 38% of what could be had."


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--env", "dndd"], 2, "did you mean 'dnd'?"),
        (["--seat", "c"], 2, "--seat c: dnd has a, b"),
        (["--opponent", "scripted:lineer"], 2, "did you mean 'linear'?"),
        (["--opponent", "human"], 2, "a person takes a seat in socialrl play"),
        (["--opponent", "remote"], 2, "a remote program takes a seat in socialrl serve"),
        (["--index", "100"], 2, "--index 100: expected 0 to 99"),
        (["--index", "-1"], 2, "--index -1: expected 0 to 99"),
        (["--split", "tset"], 2, "tset"),
        (["--scenario", "dnd-9"], 2, "no file, and no packaged scenario of dnd"),
        (["--scenario", "bad.json"], 1, "bad.json: env is missing"),
        (["--set", "limits.moves=3"], 2, "limits.moves"),
    ],
)
def test_wrong_use_is_one_line_and_writes_nothing(words, code, message, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text('{"id": "x", "split": "test", "source": "me"}')
    assert run(["play", *words]) == code
    (line,) = capfd.readouterr().err.strip().splitlines()
    assert message in line
    assert not (tmp_path / "runs").exists()


def test_a_scenario_may_be_named_or_given_as_a_file(tmp_path):
    scenario = packaged("dnd", "val")[3]
    (tmp_path / "s.json").write_text(json.dumps(scenario.to_json(), indent=2))
    for given in (scenario.id, str(tmp_path / "s.json")):
        code, out, _ = played(tmp_path / "run", OFFER, *GAME, "--scenario", given, "--json")
        assert code == 0
        assert json.loads(out)["scenario_id"] == scenario.id
