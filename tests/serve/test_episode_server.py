"""Episodes over HTTP: secrets, cursors, answers, errors, bounds, and the same games as at home."""

import asyncio

import pytest

import envs
from envs.agents.scripted import opponents, scripted
from envs.core import ActionSpec, Event, Limits, derive_seed
from envs.replay import EpisodeLog, find, plain, replay
from scenarios.core import packaged
from socialrl_cli import episode_server
from socialrl_cli.cast import Cast
from socialrl_cli.episodes import Table
from socialrl_cli.evaluation import Game
from socialrl_cli.store import read_games

LEAVE = {"move": "walk_away", "say": ""}


def event_of(row):
    actions = tuple(ActionSpec(a["move"], a["fields"], a["description"]) for a in row.get("actions", ()))
    return Event(row["seq"], row["kind"], row["type"], row["payload"], row["at"], row.get("notification_id"), actions)


def line(env):
    return EpisodeLog.of(env, episode_id="e", agents={}).line(walls=False)


async def play(api, seat, agent):
    """Plays a seat to the end with a scripted policy that knows nothing but what the server says."""
    known, page = [], {"cursor": 0, "closed": False}
    while not page["closed"]:
        page = await api.events(seat, page["cursor"])
        known += page["events"]
        if known[-1]["kind"] == "notification":
            action = await agent.decide([event_of(row) for row in known], event_of(known[-1]).actions)
            ack = await api.act(seat, known[-1]["notification_id"], plain({"move": action.move, **action.fields}))
            assert ack["status"] == "accepted"
    return known


@pytest.mark.parametrize("env", envs.ENVIRONMENTS)
async def test_an_episode_over_http_is_that_of_local_play_to_the_byte(env, api, tmp_path):
    seats, usual = envs.module(env).SEATS, f"scripted:{opponents(env)[0]}"
    game = Game("local", packaged(env, "test")[2], seats[0], usual, usual, seed=5)
    local = Table(game, Cast(tmp_path), Limits(decide_timeout_s=30.0))
    await local.play()
    async with api() as client:
        who = {seat: "remote" if seat == seats[0] else usual for seat in local.env.seats}
        episode = await client.open(env=env, index=2, seed=5, seats=who)
        agent = scripted(env, opponents(env)[0], seed=derive_seed(5, "seat", seats[0]))
        known = await play(client, episode.seats[seats[0]], agent)
        status, outcome = await client.call(
            "GET", episode.seats[seats[0]].path + "/outcome", secret=episode.seats[seats[0]].secret
        )
        assert status == 200
        log = find(tmp_path / "run", episode.id)
        table = client.host.find(episode.id).table
    assert [event["type"] for event in known] == [event.type for event in local.env.channels[seats[0]].events]
    assert line(table.env) == line(local.env)
    assert outcome["score"] == local.env.outcome.seats[seats[0]].to_json()
    assert log.outcome == local.env.outcome.to_json() | {"agreement": outcome["agreement"]}
    assert await replay(log) == []


async def test_two_remote_seats_play_each_other_and_the_episode_is_recorded_like_any_other(api, tmp_path):
    async with api() as client:
        episode = await client.open(seats={"a": "remote", "b": "remote"})
        agents = {seat: scripted("dnd", "conceder", seed=i) for i, seat in enumerate("ab")}
        await asyncio.gather(*(play(client, episode.seats[seat], agents[seat]) for seat in "ab"))
        status, found = await client.call("GET", episode.path, secret=episode.secret)
    assert status == 200
    assert found["ended"]
    assert found["outcome"]["status"] == "agreement"
    assert set(found["outcome"]["seats"]) == {"a", "b"}
    (game,) = read_games(tmp_path / "run")
    assert (game.episode_id, game.policy, game.opponent, game.status) == (episode.id, "remote", "remote", "finished")
    assert find(tmp_path / "run", episode.id).agents == {"a": "remote", "b": "remote"}


async def test_a_seats_secret_opens_nothing_else(api):
    async with api() as client:
        one = await client.open(seats={"a": "remote", "b": "remote"})
        two = await client.open(seats={"a": "remote", "b": "remote"})
        secrets = [one.secret, two.secret, *(seat.secret for e in (one, two) for seat in e.seats.values())]
        assert len(set(secrets)) == 6
        body = {"notification_id": "a1", "action": LEAVE}
        for episode in (one, two):
            for seat in episode.seats.values():
                for other in (*(secret for secret in secrets if secret != seat.secret), "", "nonsense", "é"):
                    for method, path, sent in (
                        ("GET", "/events", None),
                        ("GET", "/outcome", None),
                        ("POST", "/actions", body),
                    ):
                        status, error = await client.call(
                            method, seat.path + path, sent, other.encode().decode("latin-1")
                        )
                        assert status == 401
                        assert "secret of seat" in error["error"]["message"]
                        assert client.headers["WWW-Authenticate"] == "Bearer"
                for method in ("GET", "DELETE"):
                    assert (await client.call(method, episode.path, secret=seat.secret))[0] == 401
        assert all(not host.table.env.answers for host in client.host.open.values())


async def test_opening_an_episode_takes_the_token_where_there_is_one(api):
    async with api(token="sesame") as client:
        for given in ("", "nope"):
            status, error = await client.call("POST", "/v1/episodes", client.opening, given)
            assert status == 401
            assert "takes the server's token" in error["error"]["message"]
        status, found = await client.call("POST", "/v1/episodes", client.opening, "sesame")
        assert status == 201
        assert (await client.call("GET", f"/v1/episodes/{found['episode_id']}", secret="sesame"))[0] == 401


async def test_a_participant_that_was_named_at_the_start_may_be_seated(api, tmp_path, monkeypatch):
    (tmp_path / "walkers.py").write_text(
        "from envs.core import Action\n"
        "class Walker:\n"
        "    def __init__(self, env, seat, seed): pass\n"
        "    async def decide(self, context, actions): return Action('walk_away')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    async with api(participants=("python:walkers:Walker",)) as client:
        episode = await client.open(seats={"a": "python:walkers:Walker", "b": "remote"}, seed=3)
        seat = episode.seats["b"]
        page = await client.events(seat)
        while not page["closed"]:
            page = await client.events(seat, page["cursor"])
        _, outcome = await client.call("GET", seat.path + "/outcome", secret=seat.secret)
    assert (outcome["status"], outcome["by"]) == ("walk_away", "a")


async def test_a_client_that_drops_comes_back_with_its_cursor(api):
    async with api() as client:
        seat = (await client.open(seats={"a": "remote", "b": "remote"})).seats["b"]
        first = await client.events(seat)
        await asyncio.wait([asyncio.ensure_future(client.events(seat, first["cursor"], 0.01))])
        hanging = asyncio.ensure_future(client.events(seat, first["cursor"], 30))
        await asyncio.sleep(0.05)
        hanging.cancel()
        again = await client.events(seat, 0)
        assert again["events"][: len(first["events"])] == first["events"]
        assert (await client.events(seat, again["cursor"], 0))["events"] == []


async def test_an_action_is_answered_whatever_becomes_of_it(api):
    async with api() as client:
        seat = (await client.open()).seats["a"]
        await client.events(seat)
        hello = {"move": "message", "say": "hello"}
        assert await client.act(seat, "a1", {"move": "fly"}) == {
            "status": "invalid", "repeated": False,
            "reason": "'fly' is not possible now; possible: message, propose, walk_away",
        }  # fmt: skip
        assert (await client.act(seat, "a2", hello))["status"] == "accepted"
        assert await client.act(seat, "a2", hello) == {"status": "accepted", "reason": None, "repeated": True}
        assert (await client.act(seat, "a1", hello))["status"] == "stale"
        assert (await client.act(seat, "a3", LEAVE))["status"] == "accepted"
        assert (await client.act(seat, "a4", LEAVE)) == {
            "status": "closed", "reason": "the episode has ended", "repeated": False,
        }  # fmt: skip


async def test_the_outcome_is_there_when_the_episode_has_ended(api):
    async with api() as client:
        episode = await client.open()
        seat = episode.seats["a"]
        status, error = await client.call("GET", seat.path + "/outcome", secret=seat.secret)
        assert (status, error["error"]["message"]) == (409, "the episode has not ended")
        status, found = await client.call("DELETE", episode.path, secret=episode.secret)
        assert (status, found["outcome"]["status"]) == (200, "aborted")
        assert found["outcome"]["error"] == "ended by whoever opened it"
        status, own = await client.call("GET", seat.path + "/outcome", secret=seat.secret)
        assert (status, own["status"], own["score"]["reward"]) == (200, "aborted", 0)
        assert (await client.call("DELETE", episode.path, secret=episode.secret))[0] == 200
        assert episode.id in client.store.finished


async def test_deadlines_pass_without_anybody(api):
    async with api(limits=Limits(decide_timeout_s=0.01, moves_per_seat=2)) as client:
        seat = (await client.open(seats={"a": "remote", "b": "remote"})).seats["a"]
        page = {"cursor": 0, "closed": False}
        kinds = []
        while not page["closed"]:
            page = await client.events(seat, page["cursor"])
            kinds += [event["type"] for event in page["events"]]
        assert kinds.count("timeout") == 2
        assert kinds[-1] == "outcome"


async def test_no_more_episodes_are_open_than_may_be(api):
    async with api(max_open=2, keep=2) as client:
        first, second = await client.open(), await client.open()
        status, error = await client.call("POST", "/v1/episodes", client.opening)
        assert status == 429
        assert error["error"]["message"] == "2 episodes are open and no more may be; try again when one has ended"
        assert client.headers["Retry-After"] == "10"
        for episode in (first, second):
            await client.call("DELETE", episode.path, secret=episode.secret)
        third = await client.open()
        await client.call("DELETE", third.path, secret=third.secret)
        status, error = await client.call("GET", first.path, secret=first.secret)
        assert status == 410
        assert "has ended and is not kept here any more" in error["error"]["message"]
        assert (await client.call("GET", second.path, secret=second.secret))[0] == 200


async def test_opening_twice_with_one_key_opens_one_episode(api):
    async with api() as client:
        opened = [
            await client.call("POST", "/v1/episodes", client.opening, **{"Idempotency-Key": "k1"}) for _ in range(2)
        ]
        assert opened[0] == opened[1]
        assert len(client.host.open) == 1
        status, error = await client.call(
            "POST", "/v1/episodes", {**client.opening, "seed": 4}, **{"Idempotency-Key": "k1"}
        )
        assert (status, error["error"]["message"]) == (400, "Idempotency-Key: it was sent before with another request")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env": "dndd"}, "unknown environment 'dndd'; did you mean 'dnd'?"),
        ({"env": None}, "env is None, expected the name of an environment"),
        ({"envs": "dnd"}, "'envs' is not a field here; did you mean 'env'?"),
        ({"seats": {"a": "remote"}}, "seats.b is None, expected a participant"),
        ({"seats": {"a": "remote", "b": "remote", "c": "remote"}}, "seats has 'c', and dnd has a, b"),
        ({"seats": "remote"}, "seats is 'remote', expected who takes each of a, b"),
        ({"seats": {"a": "remote", "b": "scripted:lineer"}}, "did you mean 'linear'?"),
        ({"seats": {"a": "remote", "b": "robot"}}, "participant 'robot': unknown kind 'robot'"),
        ({"seats": {"a": "remote", "b": "human"}}, "a person takes a seat in socialrl play"),
        ({"seats": {"a": "remote", "b": "model:tiny"}}, "only if serve was started with --participant model:tiny"),
        (
            {"seats": {"a": "remote", "b": "python:os:system"}},
            "only if serve was started with --participant python:os:",
        ),
        ({"split": "/etc/passwd"}, "unknown split '/etc/passwd'; known: test, train, val"),
        ({"split": ["test"]}, "unknown split ['test']"),
        ({"index": 100}, "index is 100, expected 0 to 99"),
        ({"index": -1}, "index is -1, expected 0 to 99"),
        ({"index": True}, "index is True"),
        ({"seed": 1.5}, "seed is 1.5, expected an integer"),
        ({"seed": 2**63}, "expected an integer from 0 to 2**63 - 1"),
        ({"scenario": {"id": "x"}}, "env is missing"),
        ({"scenario": {"id": "x"}, "index": 1}, "give one of them"),
        ({"limits": {"retries": 99}}, "limits.retries is 99, at most 2 here"),
        ({"limits": {"decide_timeout_s": None}}, "limits.decide_timeout_s is None, at most 30 here"),
        ({"limits": {"moves": 3}}, "unknown key 'moves'"),
        ({"limits": {"moves_per_seat": 0}}, "limits must be positive"),
        ({"limits": {"moves_per_seat": "3"}}, "moves_per_seat"),
        ({"limits": 3}, "limits is 3, expected an object"),
    ],
)
async def test_an_opening_that_means_nothing_is_one_line_and_opens_nothing(changes, message, api):
    async with api() as client:
        status, error = await client.call("POST", "/v1/episodes", {**client.opening, **changes})
        assert status == 400
        assert message in error["error"]["message"]
        assert "\n" not in error["error"]["message"]
        assert not client.host.open


@pytest.mark.parametrize(
    ("data", "content_type", "status", "message"),
    [
        (b"{", "application/json", 400, "the body is not JSON: "),
        (b"", "application/json", 400, "the body is not JSON: "),
        (b'{"env": NaN}', "application/json", 400, "NaN is not a number that can be used"),
        (b'{"env": 1e999}', "application/json", 400, "is too large a number"),
        (b'{"env": "dnd", "env": "dnd"}', "application/json", 400, "stands twice"),
        (b'"\xff"', "application/json", 400, "the body is not UTF-8 (byte 2)"),
        (b"[]", "application/json", 400, "the body is [], expected an object"),
        (b"[" * 100_000, "application/json", 400, "nested too deeply"),
        (b"{}", "text/plain", 415, "the content type is text/plain, expected application/json"),
        (b" " * 300_000, "application/json", 413, "Request Entity Too Large"),
    ],
)
async def test_a_body_that_is_no_json_is_refused(data, content_type, status, message, api):
    async with api() as client:
        got, error = await client.call("POST", "/v1/episodes", data, **{"Content-Type": content_type})
        assert got == status
        assert message in error["error"]["message"]
        episode = await client.open()
        seat = episode.seats["a"]
        got, error = await client.call(
            "POST", seat.path + "/actions", data, seat.secret, **{"Content-Type": content_type}
        )
        assert got == status
        assert not client.host.find(episode.id).table.env.answers


async def test_a_nest_of_any_depth_is_answered(api):
    async with api() as client:
        seat = (await client.open()).seats["a"]
        for depth in range(800, 1000):
            data = (
                b'{"notification_id": "a1", "action": {"move": "fly", "offer": ' + b"[" * depth + b"]" * depth + b"}}"
            )
            status, found = await client.call("POST", seat.path + "/actions", data, seat.secret)
            assert (status, found.get("status")) in ((200, "invalid"), (200, "stale"), (400, None))
            status, _ = await client.call("POST", "/v1/episodes", data, **{"Idempotency-Key": "k"})
            assert status == 400


async def test_a_body_that_does_not_arrive_is_not_waited_for(api, monkeypatch):
    monkeypatch.setattr(episode_server, "BODY_S", 0.05)

    async def slowly():
        yield b'{"env": '
        await asyncio.Event().wait()

    async with api() as client:
        head = {"Content-Type": "application/json"}
        async with client.client.post("/v1/episodes", data=slowly(), headers=head) as answer:
            assert answer.status == 408
            assert (await answer.json())["error"]["message"] == "the body did not arrive within 0.05 s"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("cursor=99", "cursor is 99, expected 0 to "),
        ("cursor=-1", "cursor is '-1', expected a whole number"),
        ("cursor=1.0", "expected a whole number"),
        ("cursor=", "expected a whole number"),
        ("wait_s=nan", "wait_s is 'nan', expected seconds from 0 to 60"),
        ("wait_s=61", "expected seconds from 0 to 60"),
        ("wait_s=soon", "expected seconds from 0 to 60"),
    ],
)
async def test_a_cursor_beyond_the_end_and_a_wait_without_end_are_refused(query, message, api):
    async with api() as client:
        seat = (await client.open()).seats["a"]
        status, error = await client.call("GET", f"{seat.path}/events?{query}", secret=seat.secret)
        assert status == 400
        assert message in error["error"]["message"]


async def test_what_is_not_there_is_said_to_be_not_there(api):
    async with api() as client:
        episode = await client.open()
        for method, path, status, message in (
            ("GET", "/v1/episodes/nope", 404, "no episode 'nope' here"),
            ("GET", episode.path + "/seats/c/events", 404, "'c' is no remote seat of this episode; a is"),
            ("GET", episode.path + "/seats/b/events", 404, "'b' is no remote seat of this episode; a is"),
            ("GET", "/v1", 404, "GET /v1: Not Found"),
            ("PUT", "/v1/episodes", 405, "PUT /v1/episodes: Method Not Allowed"),
        ):
            got, error = await client.call(method, path, secret=episode.secret)
            assert (got, error["error"]["message"]) == (status, message)


async def test_closing_aborts_and_records_what_is_open_and_answers_who_waits(api, tmp_path):
    async with api() as client:
        seat = (await client.open(seats={"a": "remote", "b": "remote"})).seats["a"]
        cursor = (await client.events(seat))["cursor"]
        waits = [asyncio.ensure_future(client.events(seat, cursor, 30)) for _ in range(2)]
        await asyncio.sleep(0.05)
        await client.host.close()
        for wait in waits:
            assert (await wait)["events"]
        assert (await client.events(seat, 0))["closed"]
        status, error = await client.call(
            "POST", "/v1/episodes", {"env": "dnd", "seats": {"a": "remote", "b": "remote"}}
        )
        assert (status, error["error"]["message"]) == (429, "the server is stopping")
    (game,) = read_games(tmp_path / "run")
    assert (game.status, game.outcome, game.error) == ("failed", "aborted", "the server was stopped")


async def test_an_episode_that_cannot_be_recorded_stops_the_server(api, monkeypatch):
    async with api() as client:
        episode = await client.open()
        monkeypatch.setattr(
            client.store, "_log", lambda line: (_ for _ in ()).throw(OSError(28, "No space left on device"))
        )
        await client.call("DELETE", episode.path, secret=episode.secret)
        await asyncio.wait_for(client.host.failed.wait(), 5)
        assert "No space left on device" in str(client.host.failure)
        assert (await client.call("GET", "/health"))[0] == 500


async def test_rules_that_fail_end_their_episode_alone(api, monkeypatch, capsys):
    async with api() as client:
        bad, good = await client.open(), await client.open()
        await client.events(bad.seats["a"])
        monkeypatch.setattr(client.host.find(bad.id).table.env, "fault", lambda seat, action: 1 / 0)
        body = {"notification_id": "a1", "action": LEAVE}
        status, error = await client.call("POST", bad.seats["a"].path + "/actions", body, bad.seats["a"].secret)
        assert status == 500
        assert "ZeroDivisionError" in error["error"]["message"]
        assert (await client.events(bad.seats["a"], 0))["closed"]
        assert (await client.act(good.seats["a"], "a1", LEAVE))["status"] == "accepted"
