"""A seat over the wire: the same episode, nothing missed, nothing repeated, every action answered."""

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import envs
from envs.agents.remote import Remote
from envs.agents.scripted import opponents, scripted
from envs.core import ActionSpec, Event, Limits, derive_seed, run
from envs.replay import EpisodeLog, plain
from envs.transport import Port, action_of, event_json
from scenarios.core import packaged
from scenarios.errors import DataError

LEFT = {"move": "walk_away", "say": ""}


def table(env="dnd", remote="a", *, number=0, seed=0, **limits):
    """An environment, its port for a remote seat, and the task that plays it against `linear`."""
    game = envs.make(packaged(env, "test")[number], seed=seed, limits=Limits(**limits))
    agents = {seat: Remote() if seat == remote else policy(env, seat, seed) for seat in game.seats}
    return game, Port(game, remote), asyncio.ensure_future(run(game, agents))


def policy(env, seat, seed):
    return scripted(env, opponents(env)[0], seed=derive_seed(seed, seat))


def event_of(row):
    """An event from its JSON, as a scripted participant reads it."""
    actions = tuple(ActionSpec(a["move"], a["fields"], a["description"]) for a in row.get("actions", ()))
    head = (row["seq"], row["kind"], row["type"], row["payload"], row["at"])
    return Event(*head, row.get("notification_id"), actions, row.get("deadline_s"))


async def play(port, agent, *, forget=()):
    """A client that plays a seat through its port alone, everything as JSON text; it loses its memory at `forget`."""
    known, cursor, closed, calls = [], 0, False, 0
    while not closed:
        page = json.loads(json.dumps(await port.events(cursor, 5)))
        known, cursor, closed = known + page["events"], page["cursor"], page["closed"]
        calls += 1
        if calls in forget:
            known, cursor, closed = [], 0, False
            continue
        last = known[-1]
        if last["kind"] == "notification":
            action = await agent.decide([event_of(row) for row in known], event_of(last).actions)
            body = {"notification_id": last["notification_id"], "action": {"move": action.move, **action.fields}}
            port.act(json.loads(json.dumps(plain(body))))
    return known


def line(env):
    return EpisodeLog.of(env, episode_id="e", agents={}).line(walls=False)


@pytest.mark.parametrize("env", envs.ENVIRONMENTS)
async def test_remote_and_local_play_of_a_seed_are_the_same_episode(env):
    for number, seat in enumerate(envs.module(env).SEATS):
        local = envs.make(packaged(env, "test")[number], seed=number)
        await run(local, {name: policy(env, name, number) for name in local.seats})
        remote, port, task = table(env, seat, number=number, seed=number)
        known = await play(port, policy(env, seat, number))
        await task
        assert line(remote) == line(local)
        assert known == [json.loads(json.dumps(event_json(event))) for event in local.channels[seat].events]


async def test_a_client_that_loses_its_memory_reads_it_again_and_goes_on():
    local, port, task = table(number=3)
    await play(port, policy("dnd", "a", 0))
    await task
    remote, port, task = table(number=3)
    await play(port, policy("dnd", "a", 0), forget=(2, 4))
    await task
    assert line(remote) == line(local)


@settings(max_examples=40, deadline=None)
@given(rng=st.randoms(use_true_random=False), number=st.integers(0, 20))
def test_no_retry_loss_or_late_answer_of_a_client_changes_the_episode(rng, number):
    """A client that reads from anywhere, sends everything again and answers what was answered long ago."""

    class Clumsy:
        def __init__(self, port, agent):
            self.port, self.agent, self.sent = port, agent, []

        async def decide(self, context, actions):
            for body in rng.sample(self.sent, min(len(self.sent), rng.randrange(4))):
                assert self.port.act(body)["repeated"]
                other = {**body, "action": {"move": "message", "say": str(rng.random())}}
                assert self.port.act(other)["status"] == "stale"
            start = rng.randrange(len(context))
            assert (await self.port.events(start))["events"][0]["seq"] == start
            action = await self.agent.decide(context, actions)
            body = plain({"move": action.move, **action.fields})
            self.sent.append({"notification_id": context[-1].notification_id, "action": body})
            return action

    async def both():
        local, port, task = table(number=number, seed=number)
        await play(port, policy("dnd", "a", 0))
        await task
        remote, port, task = table(number=number, seed=number)
        await play(port, Clumsy(port, policy("dnd", "a", 0)))
        await task
        assert line(remote) == line(local)

    asyncio.run(both())


async def test_pages_from_any_cursor_are_parts_of_one_sequence():
    _, port, task = table()
    every = await play(port, policy("dnd", "a", 0))
    await task
    for cursor in range(len(every) + 1):
        page = await port.events(cursor, 5)
        assert json.loads(json.dumps(page["events"])) == every[cursor:]
        assert (page["cursor"], page["closed"]) == (len(every), True)
    with pytest.raises(DataError, match=f"expected 0 to {len(every)}"):
        await port.events(len(every) + 1)
    with pytest.raises(DataError, match="cursor is -1"):
        await port.events(-1)


async def test_who_gives_up_waiting_leaves_nothing_behind():
    env, port, task = table()
    await asyncio.sleep(0)
    channel = env.channels["a"]
    end = len(channel.events)
    for _ in range(3):
        assert await port.events(end, 0.001) == {"events": [], "cursor": end, "closed": False}
    assert channel._readers == []
    waiting = asyncio.ensure_future(port.events(end, 5))
    await asyncio.sleep(0)
    env.abort("enough")
    page = await waiting
    assert page["events"][0]["type"] == "outcome"
    assert page["closed"]
    await task


async def test_an_action_counts_once_however_often_it_is_sent():
    env, port, task = table(number=1)
    await asyncio.sleep(0)
    body = {"notification_id": "a1", "action": {"move": "message", "say": "Good day"}}
    assert port.act(body) == {"status": "accepted", "reason": None, "repeated": False}
    assert port.act(body) == {"status": "accepted", "reason": None, "repeated": True}
    while env.channels["a"].open is None:
        await asyncio.sleep(0)
    assert port.act(body)["repeated"]
    other = {**body, "action": {"move": "message", "say": "Good evening"}}
    answer = port.act(other)
    assert answer == {"status": "stale", "reason": "a1 has been answered; a2 is open", "repeated": False}
    assert port.act({**body, "notification_id": "a9"})["reason"] == "a9 has never been asked; a2 is open"
    assert port.act({"notification_id": "a2", "action": LEFT})["status"] == "accepted"
    outcome = await task
    assert outcome.status == "walk_away"
    assert port.act({"notification_id": "a3", "action": LEFT})["status"] == "closed"
    assert port.act(body) == {"status": "accepted", "reason": None, "repeated": True}
    assert [answer.action.move for answer in env.answers if answer.seat == "a"] == ["message", "walk_away"]


async def test_a_repeated_invalid_action_uses_up_one_try():
    env, port, task = table(retries=1)
    await asyncio.sleep(0)
    bad = {"notification_id": "a1", "action": {"move": "fly"}}
    for repeated in (False, True, True):
        answer = port.act(bad)
        assert (answer["status"], answer["repeated"]) == ("invalid", repeated)
        assert "'fly' is not possible now" in answer["reason"]
    assert env.channels["a"].open.notification_id == "a2"
    answer = port.act({**bad, "action": LEFT})
    assert answer["reason"] == "a1 has been answered, not validly; a2 is open"
    assert port.act({"notification_id": "a2", "action": LEFT})["status"] == "accepted"
    await task


async def test_a_late_action_is_told_that_it_is_late_and_the_game_went_on():
    env, port, task = table(decide_timeout_s=0.02, moves_per_seat=2, number=1)
    page = {"cursor": 0, "events": []}
    while not any(event["type"] == "timeout" for event in page["events"]):
        page = await port.events(page["cursor"], 5)
    answer = port.act({"notification_id": "a1", "action": LEFT})
    assert answer["status"] == "stale"
    assert answer["reason"].startswith("a1 was not answered in time;")
    outcome = await task
    assert {answer.kind for answer in env.answers if answer.seat == "a"} == {"timeout"}
    assert outcome.status in ("timeout", "walk_away")


async def test_an_outcome_is_the_seats_own():
    _, port, task = table()
    assert port.outcome() is None
    await play(port, policy("dnd", "a", 0))
    outcome = await task
    found = port.outcome()
    assert found["seat"] == "a"
    assert found["score"] == outcome.seats["a"].to_json()
    assert set(found) == {"status", "agreement", "by", "error", "seat", "score"}


async def test_rules_that_fail_end_the_episode_and_not_the_client(monkeypatch):
    env, port, task = table()
    await asyncio.sleep(0)
    monkeypatch.setattr(env, "fault", lambda seat, action: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        port.act({"notification_id": "a1", "action": LEFT})
    outcome = await task
    assert (outcome.status, outcome.error) == ("aborted", "ZeroDivisionError: division by zero")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (None, "the body is None"),
        ([], r"the body is \[\]"),
        ({}, "notification_id is None"),
        ({"notification_id": 1, "action": LEFT}, "notification_id is 1"),
        ({"notification_id": "a1"}, "action is None"),
        ({"notification_id": "a1", "action": "accept"}, "action is 'accept'"),
        ({"notification_id": "a1", "action": {"say": "hello"}}, 'expected an object with a "move"'),
        ({"notification_id": "a1", "action": {"move": 3}}, 'expected an object with a "move"'),
        ({"notification_id": "a1", "action": LEFT, "seat": "b"}, "'seat' is not a field here"),
    ],
)
def test_what_is_no_action_at_all_is_refused_and_uses_up_no_try(body, message):
    with pytest.raises(DataError, match=message):
        action_of(body)
