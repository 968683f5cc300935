"""Episodes on disk: written, found, told, and played again."""

import asyncio
import json
from dataclasses import replace

import pytest

import envs
from envs.agents.scripted import scripted
from envs.core import Action, run
from envs.replay import EpisodeLog, append, find, replay, transcript
from scenarios.core import Scenario, packaged
from scenarios.errors import DataError, UsageError
from socialrl_cli import main

SCENARIO = Scenario(
    "s1",
    "dnd",
    "test",
    "here",
    {
        "counts": {"book": 1, "hat": 2, "ball": 3},
        "values": {"a": {"book": 1, "hat": 3, "ball": 1}, "b": {"book": 2, "hat": 1, "ball": 2}},
    },
)
AGENTS = {"a": "scripted:linear", "b": "model:tiny"}


class Plays:
    def __init__(self, *moves):
        self.moves = list(moves)

    async def decide(self, context, actions):
        move = self.moves.pop(0)
        if isinstance(move, Exception):
            raise move
        return move


async def episode(name="e-1", seed=1):
    env = envs.make(SCENARIO, seed=seed)
    offer = Action("propose", {"offer": {"book": 0, "hat": 0, "ball": 1}, "say": "Take it."})
    await run(env, {"a": scripted("dnd", "linear", seed=seed), "b": Plays(ValueError("oh"), "junk", offer, offer)})
    return EpisodeLog.of(env, episode_id=name, agents=AGENTS, meta={"trial": 3})


@pytest.fixture
async def folder(tmp_path):
    (tmp_path / "events").mkdir()
    append(tmp_path / "events" / "a.jsonl", [await episode("e-1"), await episode("e-20")])
    append(tmp_path / "events" / "b.jsonl", [await episode("e-21")])
    return tmp_path


async def test_a_line_is_read_back_as_it_was_written():
    log = await episode()
    assert EpisodeLog.from_line(log.line()) == log
    assert log.line().count("\n") == 1
    assert json.loads(log.line())["meta"] == {"trial": 3}
    assert replace(log, walls=[]) == EpisodeLog.from_line(log.line(walls=False))
    assert len(log.walls) == len(log.events)


async def test_every_answer_is_played_again_to_the_same_outcome():
    log = await episode()
    assert {row["kind"] for row in log.answers} == {"action", "invalid", "error"}
    assert await replay(log) == []


async def test_a_log_that_the_rules_would_not_give_is_told_apart():
    log = await episode()
    better = json.loads(log.line())
    better["outcome"]["seats"]["a"]["reward"] = 1.0
    assert "outcome" in (await replay(EpisodeLog.from_line(json.dumps(better))))[0]
    shorter = json.loads(log.line())
    shorter["answers"] = shorter["answers"][:3]
    assert any("events in the log" in text for text in await replay(EpisodeLog.from_line(json.dumps(shorter))))
    forged = json.loads(log.line())
    (first, *_) = [row for row in forged["answers"] if row["kind"] == "action"]
    first["action"]["offer"] = {"book": 0, "hat": 0, "ball": 0}
    assert "event" in (await replay(EpisodeLog.from_line(json.dumps(forged))))[0]


async def test_a_seats_view_holds_its_own_channel_alone():
    log = await episode()
    assert [event.payload["seat"] for event in log.told("a") if event.type == "briefing"] == ["a"]
    assert {event.type for event in log.told("b")} >= {"error", "invalid_action"}
    assert not {event.type for event in log.told("a")} & {"error", "invalid_action"}
    text = transcript(log, "a")
    assert "1 book worth 1, 2 hat worth 3, 3 ball worth 1" in text
    assert "worth 2" not in text
    assert "b: raw" not in text


async def test_a_transcript_reads_as_a_conversation():
    text = transcript(await episode()).split("\n")
    assert text[0] == "dnd · scenario s1 · episode e-1"
    assert text[1].startswith("a (scripted:linear")
    assert text[2].startswith("b (model:tiny")
    assert "  (error: ValueError: oh)" in text
    assert "  (invalid answer: expected an action, got str — ‹str›)" in text
    assert any("b offers the other side book 1 hat 2 ball 2" in line for line in text)
    assert text[-3].startswith("=> agreement by a")
    assert text[-2].startswith("a: raw 9, utility 0.90, reference 0.70, reward 0.890")


async def test_an_episode_is_found_by_its_id_or_its_beginning(folder):
    assert find(folder, "e-20").episode_id == "e-20"
    assert find(folder, "e-1").episode_id == "e-1"
    with pytest.raises(UsageError, match="2 episodes begin with 'e-2': e-20, e-21"):
        find(folder, "e-2")
    with pytest.raises(UsageError, match=r"no episode 'x'; there are e.g. e-1, e-20, e-21"):
        find(folder, "x")
    with pytest.raises(UsageError, match="no run with episodes"):
        find(folder / "events", "e-1")


async def test_a_torn_line_hurts_no_other(folder):
    path = folder / "events" / "b.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    append(path, [await episode("e-30")])
    assert find(folder, "e-30").episode_id == "e-30"
    with pytest.raises(UsageError, match="no episode 'e-21'"):
        find(folder, "e-21")


def test_what_is_no_episode_is_refused():
    for line in ("", "{}", "[1]", '{"episode_id": 1'):
        with pytest.raises(DataError, match="not the log of an episode"):
            EpisodeLog.from_line(line)


async def test_an_unknown_seat_is_named():
    with pytest.raises(UsageError, match="no seat 'c' in dnd, expected a or b"):
        transcript(await episode(), "c")


def test_the_command_shows_one_episode(folder, capsys):
    assert main.run(["replay", str(folder), "e-20"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("dnd · scenario s1 · episode e-20\n")
    assert shown.err == ""
    assert main.run(["replay", str(folder), "e-20", "--seat", "b", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["episode_id"] == "e-20"
    assert set(document["outcome"]["seats"]) == {"b"}
    assert [event["seq"] for event in document["events"]] == list(range(len(document["events"])))


@pytest.mark.parametrize(("words", "code"), [(["e-2"], 2), (["e-1", "--seat", "z"], 2)])
def test_the_command_names_what_it_cannot_find(folder, capsys, words, code):
    assert main.run(["replay", str(folder), *words]) == code
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


async def test_the_command_warns_when_the_rules_give_another_outcome(folder, capsys):
    log = await episode("odd")
    log.outcome["seats"]["a"]["reward"] = 0.5
    append(folder / "events" / "a.jsonl", [log])
    assert await asyncio.to_thread(main.run, ["replay", str(folder), "odd"]) == 0
    assert "warning: outcome" in capsys.readouterr().err


async def test_what_a_seat_may_look_up_reads_as_hours():
    scenario = packaged("calendar", "test")[0]
    env = envs.make(scenario, seed=1)
    await run(env, {seat: scripted("calendar", "linear", seed=1) for seat in env.seats})
    told = transcript(EpisodeLog.of(env, episode_id="e-1", agents={}, meta={}), "assistant")
    start, end, title = (scenario["calendars"]["assistant"][0][key] for key in ("start", "end", "title"))
    assert f"    may look up: {start} to {end}, title {title}" in told
