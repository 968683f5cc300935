"""What is the campers' own: points by priority, the outside option, private reasons."""

import pytest

import envs
from envs.agents.casino import deals
from envs.casino import brief, tell
from envs.core import Action, run
from scenarios.core import Scenario

REASONS = {
    "a": {"food": "Twins eat.", "water": "Hot days.", "firewood": "Cold <b>nights</b>."},
    "b": {"food": "Dogs eat.", "water": "Dry cough.", "firewood": "Fog."},
}
SCENARIO = Scenario(
    "s1",
    "casino",
    "test",
    "here",
    {
        "priorities": {"a": ["water", "food", "firewood"], "b": ["food", "firewood", "water"]},
        "personas": {"a": "a mother of twins", "b": "a hunter"},
        "reasons": REASONS,
    },
)
FIRST_A = next(seed for seed in range(9) if envs.make(SCENARIO, seed=seed).order == ("a", "b"))


class Moves:
    def __init__(self, *moves):
        self.moves, self.asked = list(moves), []

    async def decide(self, context, actions):
        self.asked.append(context[-1])
        return self.moves.pop(0)


def offer(food, water, firewood):
    return Action("propose", {"offer": {"food": food, "water": water, "firewood": firewood}, "say": "So?"})


async def game(a, b):
    env = envs.make(SCENARIO, seed=FIRST_A)
    agents = {"a": Moves(*a), "b": Moves(*b)}
    await run(env, agents)
    return env, agents


async def test_points_follow_each_seats_priorities():
    env, agents = await game([offer(1, 3, 0)], [Action("accept")])
    # a: 1·4 + 3·5 = 19; b: 2·5 + 0·3 + 3·4 = 22
    assert [got.raw for got in env.outcome.seats.values()] == [19, 22]
    assert agents["b"].asked[0].payload["worth"] == 22
    assert env.outcome.agreement == {
        "a": {"food": 1, "water": 3, "firewood": 0},
        "b": {"food": 2, "water": 0, "firewood": 3},
    }


async def test_walking_away_pays_both_their_outside_option():
    env, _ = await game([offer(3, 3, 3)], [Action("walk_away")])
    assert [got.raw for got in env.outcome.seats.values()] == [5, 5]
    assert all(0 < got.reward < 0.1 for got in env.outcome.seats.values())


async def test_each_seat_is_briefed_on_itself_alone():
    env, _ = await game([Action("walk_away")], [])
    facts = {seat: dict(env.channels[seat].events[0].payload) for seat in "ab"}
    assert facts["a"]["priorities"] == ("water", "food", "firewood")
    assert facts["a"]["persona"] == "a mother of twins"
    assert facts["b"]["reasons"] == REASONS["b"]
    assert "Dogs" not in str(facts["a"])
    assert "hunter" not in str(facts["a"])


async def test_the_brief_tells_the_rules_the_points_and_the_reasons():
    env, _ = await game([Action("walk_away")], [])
    event = env.channels["a"].events[0]
    full = brief(event, "full")
    assert "You are a camper (a mother of twins)." in full
    assert "You want water most: a package is worth 5 points to you. Hot days." in full
    assert "You want firewood least: a package is worth 3 points to you. Cold ‹b›nights‹/b›." in full
    assert "both get 5 points" in full
    assert brief(event, "compact") == "Camp. count*my value: food 3*4 water 3*5 firewood 3*3"
    assert brief(event, "people").split("\n    ") == [
        "a mother of twins: water worth 5, food worth 4, firewood worth 3",
        "water: Hot days.",
        "food: Twins eat.",
        "firewood: Cold ‹b›nights‹/b›.",
    ]
    assert '"offer":{"food":1,"water":1,"firewood":1}' in envs.module("casino").answers(event)


async def test_a_standing_offer_is_told_with_its_points():
    _, agents = await game([offer(1, 3, 0)], [Action("accept")])
    turn = agents["b"].asked[0]
    assert "If you accept, you get food 2, water 0, firewood 3, worth 22 of 36 points to you." in tell(
        turn, "b", "full"
    )
    assert tell(turn, "b", "compact") == "for me food 2 water 0 firewood 3 =22\n1/10"


def test_a_scenario_without_personas_can_be_played():
    bare = Scenario("s", "casino", "test", "here", {"priorities": SCENARIO["priorities"]})
    facts = envs.make(bare, seed=0).facts("a")
    assert (facts["persona"], dict(facts["reasons"])) == ("", {})


@pytest.mark.parametrize("seat", ["a", "b"])
def test_the_deals_know_the_outside_option_and_all_six_orders_of_the_other(seat):
    space = deals(dict(envs.make(SCENARIO, seed=0).facts(seat)))
    assert space.outside == pytest.approx(5 / 36)
    assert len(space.mine) == 64
    assert len(space.theirs) == 6
    assert space.offers[space.best] == {"food": 3, "water": 3, "firewood": 3}
