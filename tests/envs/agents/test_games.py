"""The scripted participants in every negotiation: they close, they keep their numbers, and the planner leads."""

import asyncio
import statistics
from dataclasses import replace

import pytest

import envs
from envs.agents.scripted import names, scripted
from envs.core import Action, derive_seed, run
from rewards.leakage import numbers_in
from scenarios import NEGOTIATIONS
from scenarios.core import packaged

GAMES = 1000  # over all negotiations together
OPPONENTS = ("linear", "boulware", "tit_for_tat")


def play(env, number, policies, *, seed=0, **options):
    """`policies` in the order of the seats."""
    game = envs.make(packaged(env, "test")[number % 100], seed=seed)
    agents = {
        seat: scripted(env, policy, seed=derive_seed(seed, seat), options=options)
        for seat, policy in zip(game.seats, policies, strict=True)
    }
    asyncio.run(run(game, agents))
    return game


def said(game, seat):
    return [event.payload["say"] for _, event in game.journal if "say" in event.payload and event.payload["by"] == seat]


@pytest.mark.parametrize("env", NEGOTIATIONS)
def test_two_conceders_without_a_floor_close_every_game(env):
    for number in range(100):
        assert play(env, number, ("conceder", "conceder"), seed=number, f=0).outcome.status == "agreement"


@pytest.mark.parametrize("env", NEGOTIATIONS)
def test_in_a_thousand_games_nobody_but_leaky_says_a_number(env):
    policies, games = names(), GAMES // len(NEGOTIATIONS) + 1
    told = dict.fromkeys(policies, 0)
    for number in range(games):
        pair = (policies[number % len(policies)], policies[number // len(policies) % len(policies)])
        game = play(env, number, pair, seed=number)
        for seat, policy in zip(game.seats, pair, strict=True):
            told[policy] += sum(bool(numbers_in(text)) for text in said(game, seat))
    assert {policy for policy, count in told.items() if count} == {"leaky"}


@pytest.mark.parametrize("env", NEGOTIATIONS)
def test_leaks_are_measured_in_every_negotiation(env):
    leaks = {"leaky": 0.0, "linear": 0.0}
    for number in range(30):
        game = play(env, number, ("leaky", "linear"), seed=number)
        for seat, policy in zip(game.seats, ("leaky", "linear"), strict=True):
            leaks[policy] += game.outcome.measures.get(f"leaks_{seat}", 0)
    assert leaks["leaky"] > 10
    assert leaks["linear"] == 0


@pytest.mark.parametrize(
    ("env", "values", "says", "leaks"),
    [
        ("dnd", {"book": 6, "hat": 1, "ball": 1}, "A book is worth six to me", 1),
        ("dnd", {"book": 6, "hat": 1, "ball": 1}, "I take 1 book and 2 hats", 0),  # counts, though 1 is a value
        ("casino", ["food", "water", "firewood"], "Food is worth 5 to me", 1),
        ("casino", ["food", "water", "firewood"], "I need all 3 of them", 0),
    ],
)
def test_counts_of_items_are_no_leak(env, values, says, leaks):
    fields = {"dnd": {"counts": {"book": 1, "hat": 2, "ball": 2}}, "casino": {}}[env]
    own = {"dnd": "values", "casino": "priorities"}[env]
    scenario = replace(packaged(env, "test")[0], fields={**fields, own: {"a": values, "b": values}})
    game = envs.make(scenario, seed=0)
    agents = {seat: Says(says) if seat == "a" else scripted(env, "linear", seed=0) for seat in game.seats}
    asyncio.run(run(game, agents))
    assert game.outcome.measures["leaks_a"] == leaks


class Says:
    """Says one thing and leaves."""

    def __init__(self, say):
        self.moves = [Action("message", {"say": say}), Action("walk_away")]

    async def decide(self, context, actions):
        return self.moves.pop(0)


@pytest.mark.parametrize("env", NEGOTIATIONS)
def test_what_is_said_varies(env):
    texts = []
    for number in range(40):
        game = play(env, number, ("linear", "boulware"), seed=number)
        texts += [text for seat in game.seats for text in said(game, seat)]
    assert len(set(texts)) > 40
    assert max(map(texts.count, set(texts))) < len(texts) / 10


@pytest.mark.parametrize("env", ["casino", "job_interview"])
def test_the_planner_is_above_every_other_policy_and_demanding_all_is_far_below(env):
    """On every fourth test scenario here; the whole comparison is in the log."""
    seats = envs.module(env).SEATS
    rewards = {}
    for policy in ("planner", "hardliner", "boulware", "linear", "conceder", "tit_for_tat", "demand_all"):
        for i, seat in enumerate(seats):
            pairs = [(policy, other) if i == 0 else (other, policy) for other in OPPONENTS]
            rewards[policy, seat] = [
                play(env, number, pair, seed=derive_seed(number, *seats)).outcome.seats[seat].reward
                for number in range(0, 100, 4)
                for pair in pairs
            ]
    for (policy, seat), scores in rewards.items():
        if policy != "planner":
            gains = [p - s for p, s in zip(rewards["planner", seat], scores, strict=True)]
            error = statistics.stdev(gains) / len(gains) ** 0.5
            assert statistics.mean(gains) - 1.96 * error > (0.5 if policy == "demand_all" else 0), (policy, seat)


class Spoils:
    """As linear, but for something else in its first offer's first field."""

    def __init__(self, env, thing):
        self.plays, self.thing, self.spoilt = scripted(env, "linear", seed=1), thing, None

    async def decide(self, context, actions):
        move = await self.plays.decide(context, actions)
        if self.spoilt is None and move.move == "propose":
            offer = dict(move.fields["offer"])
            self.spoilt = {**offer, next(iter(offer)): self.thing}
            return Action("propose", {"offer": self.spoilt})
        return move


@pytest.mark.parametrize(
    "thing", ["7,500", "$7.5k", "-5", -5, "1e9", 1e12, float("nan"), float("inf"), None, True, [], {}]
)
@pytest.mark.parametrize("env", NEGOTIATIONS)
def test_an_offer_that_is_none_is_an_event_for_its_author_and_the_game_goes_on(env, thing):
    game = envs.make(packaged(env, "test")[0], seed=1)
    seat, other = game.seats
    spoils = Spoils(env, thing)
    asyncio.run(run(game, {seat: spoils, other: scripted(env, "conceder", seed=2, options={"f": 0})}))
    assert spoils.spoilt is not None
    (event,) = [event for event in game.channels[seat].events if event.type == "invalid_action"]
    assert event.payload["reason"]
    assert "\n" not in event.payload["reason"]
    assert not any(event.type == "invalid_action" for event in game.channels[other].events)
    assert game.outcome.status == "agreement"
