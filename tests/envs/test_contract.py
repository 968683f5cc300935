"""What every environment promises. A new one joins by adding its name to CONTRACT."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import envs
from envs.agents.llm import HarnessConfig, LLMAgent
from envs.agents.scripted import names, opponents, scripted
from envs.core import Action, Limits, derive_seed, run
from envs.replay import EpisodeLog, replay, transcript
from envs.telling import one_line
from scenarios import ENVIRONMENTS, PARTIES
from scenarios.core import Scenario, check, packaged
from scenarios.money import written

CONTRACT = ("dnd", "casino", "craigslist", "job_interview", "calendar", "marketplace", "werewolf")

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 12) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


class Fuzz:
    """Anything at all, now and then a legal move; drawn from its own seed."""

    def __init__(self, env, seed, junk):
        self.rng, self.junk = random.Random(seed), junk
        self.legal = scripted(env, "random", seed=seed)

    async def decide(self, context, actions):
        move = await self.legal.decide(context, actions)
        kind = self.rng.randrange(12)
        junk = self.rng.choice(self.junk)
        if kind < 3:
            return Action(self.rng.choice(actions).name, {self.rng.choice(("offer", "player")): junk})
        if kind < 5:
            return Action(self.rng.choice(actions).name, junk)
        if kind == 5:
            return Action(junk, {"say": junk})
        if kind == 6:
            return junk
        if kind == 7:
            raise RuntimeError(str(junk))
        if kind == 8:
            return Action(move.move, move.fields, notification_id="a1")
        return move


class Never:
    calls = 0

    async def decide(self, context, actions):
        self.calls += 1
        await asyncio.Event().wait()


def babbler(env, seed):
    """A model that writes nonsense."""
    rng = random.Random(seed)
    words = [
        "{",
        "}",
        '"move"',
        ":",
        '"propose"',
        '"accept"',
        "{}",
        "[1]",
        "hello",
        '{"move":"fly"}',
        "\ud800",
        "9" * 20,
    ]

    async def chat(request):
        text = " ".join(rng.choice(words) for _ in range(rng.randrange(9)))
        return {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}

    return LLMAgent(chat, env=env, config=HarnessConfig(), seed=seed)


def usual(env):
    """A policy that plays to win."""
    return opponents(env)[0]


def stubborn(env):
    """A policy that brings no game to an end."""
    return "silent" if env in PARTIES else "demand_all"


def make(name, number=0, *, seed=0, **limits):
    scenarios = packaged(name, "test")
    return envs.make(scenarios[number % len(scenarios)], seed=seed, limits=Limits(**limits))


async def play(env, *policies, seed=0):
    """Play scripted policies, one for each seat (the last one in all that are left)."""
    policies = [policies[min(i, len(policies) - 1)] for i in range(len(env.seats))]
    agents = {
        seat: scripted(env.scenario.env, policy, seed=derive_seed(seed, seat))
        for seat, policy in zip(env.seats, policies, strict=True)
    }
    await run(env, agents)
    return env


def line(env):
    return EpisodeLog.of(env, episode_id="e", agents={}).line(walls=False)


def sound(env):
    """What holds after any episode."""
    seen = [event for to, event in env.journal if event.kind == "observation" and set(to) == set(env.seats)]
    *before, outcome = [event for event in seen if "by" in event.payload]
    assert outcome.type == "outcome"
    assert env.journal[-1][1].type == "outcome"
    assert all(event.type not in ("accept", "walk_away") for event in before[:-1]), "nothing follows an accept"
    limit = env.limits.moves_per_seat
    asked = next((event.at for _, event in env.journal if event.kind == "notification"), 0)
    for seat in env.seats:  # an opening that is made for a seat, or what it does in secret, uses none of its moves
        assert sum(event.payload["by"] == seat for event in before if event.at > asked) <= limit
        channel = env.channels[seat]
        assert channel.closed
        assert channel.open is None
        assert [event.seq for event in channel.events] == list(range(len(channel.events)))
    assert set(env.outcome.seats) == set(env.seats)
    for got in env.outcome.seats.values():
        assert 0 <= got.reward <= 1
        assert 0 <= got.utility <= 1
    if env.outcome.status in ("timeout", "aborted"):
        assert {got.reward for got in env.outcome.seats.values()} == {0}
    json.loads(line(env))


@pytest.mark.parametrize("name", CONTRACT)
def test_every_environment_is_under_contract(name):
    assert CONTRACT == tuple(envs.ENVIRONMENTS) == ENVIRONMENTS
    module = envs.module(name)
    assert module.EVALUATED
    assert set(module.EVALUATED) <= set(module.TRAINABLE) <= set(module.SEATS)
    assert set(module.SEATS) == set(module.Environment.seats) == set(module.PRIVATE)


@pytest.mark.parametrize("name", CONTRACT)
async def test_the_same_seed_gives_the_same_episode_byte_for_byte(name):
    for i, policy in enumerate(names(name)):
        first, second = [await play(make(name, i, seed=i), policy, usual(name), seed=i) for _ in range(2)]
        assert line(first) == line(second)
        sound(first)
    assert len({line(await play(make(name, 0, seed=i), usual(name), seed=i)) for i in range(5)}) == 5


@pytest.mark.parametrize("name", CONTRACT)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), junk=st.lists(JSON, min_size=3, max_size=6))
def test_no_answer_whatsoever_breaks_an_episode(name, seed, junk):
    env = make(name, seed, seed=seed, moves_per_seat=6)
    agents = {seat: Fuzz(name, derive_seed(seed, seat), junk) for seat in env.seats}
    asyncio.run(run(env, agents))
    sound(env)
    log = EpisodeLog.of(env, episode_id="e", agents={})
    assert EpisodeLog.from_line(log.line()) == log
    assert asyncio.run(replay(log)) == []
    transcript(log)


@pytest.mark.parametrize("name", CONTRACT)
async def test_every_pair_of_policies_is_played_to_an_end_and_replays_to_the_same_outcome(name):
    for i, one in enumerate(names(name)):
        for j, two in enumerate(names(name)):
            env = await play(make(name, 11 * i + j, seed=i + j), one, two, seed=j)
            sound(env)
            assert all(answer.kind == "action" for answer in env.answers), "scripted participants make no mistakes"
            if (i + j) % 5 == 0:
                log = EpisodeLog.of(env, episode_id="e", agents={})
                assert await replay(EpisodeLog.from_line(log.line())) == []


@pytest.mark.parametrize("name", CONTRACT)
@pytest.mark.parametrize("hostile", ["never", "absent", "babbles"])
async def test_an_episode_with_a_hostile_seat_ends_within_its_limit(name, hostile):
    for seat in envs.module(name).SEATS:
        env = make(name, 3, seed=5, moves_per_seat=3, decide_timeout_s=0.01 if hostile == "never" else 60)
        agents = {other: scripted(name, stubborn(name), seed=1) for other in env.seats if other != seat}
        if hostile != "absent":
            agents[seat] = Never() if hostile == "never" else babbler(name, 3)
        outcome = await asyncio.wait_for(run(env, agents), 10)
        assert outcome.status == "timeout"
        assert getattr(agents.get(seat), "calls", 3) >= 3, "it is asked at each of its moves"
        sound(env)
        assert await replay(EpisodeLog.of(env, episode_id="e", agents={})) == []
        kinds = {answer.kind for answer in env.answers if answer.seat == seat}
        assert kinds == {{"never": "timeout", "babbles": "invalid"}.get(hostile, hostile)}


@pytest.mark.parametrize("name", CONTRACT)
async def test_an_illegal_move_is_an_event_and_changes_nothing(name):
    """Two episodes of the same moves; in one of them every move is preceded by two illegal ones."""

    class Clumsy:
        def __init__(self, seed):
            self.agent, self.tries = scripted(name, usual(name), seed=seed), 0

        async def decide(self, context, actions):
            self.tries += 1
            if self.tries % 3:
                wrong = Action("propose", {"offer": "everything"}), Action("vote", {"player": "everybody"})
                return wrong[name in PARTIES] if self.tries % 3 == 1 else Action("fly")
            context = [event for event in context if event.type != "invalid_action"]
            return await self.agent.decide(context, actions)

    def facts(env):
        return [(to, event.type, dict(event.payload)) for to, event in env.journal if event.type not in dropped]

    dropped = {"invalid_action", "turn"}
    clean, clumsy = make(name, 4, seed=2), make(name, 4, seed=2)
    await run(clean, {seat: scripted(name, usual(name), seed=derive_seed(seat)) for seat in clean.seats})
    await run(clumsy, {seat: Clumsy(derive_seed(seat)) for seat in clumsy.seats})
    assert facts(clean) == facts(clumsy)
    assert clean.outcome == clumsy.outcome
    invalid = [(to, event) for to, event in clumsy.journal if event.type == "invalid_action"]
    assert len(invalid) == 2 * sum(answer.kind == "action" for answer in clumsy.answers)
    assert all(len(to) == 1 for to, _ in invalid)


class Echo:
    """Makes the moves that were made before, whatever it sees."""

    def __init__(self, answers):
        self.answers = list(answers)

    async def decide(self, context, actions):
        return Action(*self.answers.pop(0)[:2])


@pytest.mark.parametrize("name", CONTRACT)
async def test_no_private_fact_of_a_seat_reaches_another_seats_channel(name):
    """With the same moves, a channel is the same to the byte whatever the other seat's private facts are."""
    private = [(seat, path) for seat, paths in envs.module(name).PRIVATE.items() for path in paths]
    scenarios = packaged(name, "test")
    tried = Counter()
    for number, scenario in enumerate(scenarios[:60]):
        for seat, path in private:
            if seat not in envs.seats(scenario) or tried[seat, path] == 12:
                continue
            env = await play(make(name, number, seed=number), usual(name), seed=number)
            for donor in scenarios:
                other = with_private(scenario, donor, path)
                if other is None:
                    continue
                again = envs.make(other, seed=number)
                moves = {s: Echo(a.action for a in env.answers if a.seat == s) for s in env.seats}
                await run(again, moves)
                if any(answer.kind != "action" for answer in again.answers):
                    continue  # what was legal with the one's facts is not with the other's
                tried[seat, path] += 1
                for watcher in env.seats:
                    if watcher != seat:
                        assert env.channels[watcher].events == again.channels[watcher].events
                break
    assert all(tried[seat, path] > 10 for seat, path in private)


@pytest.mark.parametrize("name", CONTRACT)
async def test_a_replay_tells_a_seat_all_its_private_facts(name):
    for number in range(6):
        env = await play(make(name, number, seed=number), usual(name), seed=number)
        log = EpisodeLog.of(env, episode_id="e", agents={})
        for seat in env.seats:
            text = transcript(log, seat)
            for path in envs.module(name).PRIVATE[seat]:
                value = env.scenario.fields
                for key in path:
                    value = value.get(key, {})
                for fact in facts(value):
                    assert any(form in text for form in forms(fact)), (seat, path, fact)


def facts(value):
    """The words and numbers in a part of a scenario, keys too; a flag stands for its key alone.

    "start" and "end" are told as "08:00 to 09:00", without their names.
    """
    if isinstance(value, Mapping):
        keys = [key for key, part in value.items() if part is not False]
        return [
            *(key for key in keys if key not in ("start", "end")),
            *(fact for key in keys if value[key] is not True for fact in facts(value[key])),
        ]
    if isinstance(value, list | tuple):
        return [fact for part in value for fact in facts(part)]
    return [value]


def forms(fact):
    """How a fact may stand in a text: a number in digits, or a part of 1 in hundredths."""
    if isinstance(fact, str):
        return (one_line(fact),)
    return (f"{fact:g}", written(fact), f"{100 * fact:.3g}") if fact > 0 else (f"{fact:g}",)


def with_private(scenario, donor, path):
    """The scenario with another one's private facts at the path, when that is a legal and different one."""
    fields = json.loads(json.dumps(dict(scenario.fields)))
    spot, given = fields, donor.fields
    for key in path[:-1]:
        spot, given = spot[key], given[key]
    if path[-1] not in given or spot[path[-1]] == given[path[-1]]:
        return None
    spot[path[-1]] = given[path[-1]]
    variant = Scenario(scenario.id, scenario.env, scenario.split, scenario.source, fields)
    return None if check(variant) else variant
