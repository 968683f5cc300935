"""Beliefs and predictions about a counterpart: when they are right, and what really came."""

import pytest

import envs
from envs.agents.scripted import scripted
from envs.core import run
from envs.events import Event
from envs.minds import came, compared, foreseen, right
from scenarios.core import packaged

VALUES = {"book": 2, "hat": 1, "ball": 2}


@pytest.mark.parametrize(
    ("stated", "truth", "within", "is_right"),
    [
        ({"book": 2, "hat": 1, "ball": 2}, VALUES, 0.0, True),
        ({"book": 2, "hat": 1, "ball": 2, "sure": True}, VALUES, 0.0, True),
        ({"book": 2, "hat": 1, "ball": 3}, VALUES, 0.0, False),
        ({"book": 2, "hat": 1}, VALUES, 0.0, False),
        ({"price": 105}, {"price": 100}, 0.05, True),  # 5 of 100
        ({"price": 95.0}, {"price": 100}, 0.05, True),
        ({"price": 105.1}, {"price": 100}, 0.05, False),
        ({"price": 101}, {"price": 100}, 0.0, False),
        (["food", "water"], ["food", "water"], 0.0, True),
        (["water", "food"], ["food", "water"], 0.0, False),
        (["food"], ["food", "water"], 0.0, False),
        ("10:00", "10:00", 0.05, True),
        (True, 1, 0.05, False),
        (None, VALUES, 0.0, False),
        ("book", VALUES, 0.0, False),
    ],
)
def test_a_belief_is_right_when_it_is_the_truth_and_a_number_when_it_is_near(stated, truth, within, is_right):
    assert right(stated, truth, within) is is_right


def told(seq, type, by, gives=None):
    return Event(seq, "observation", type, {"by": by, "say": "", **({} if gives is None else {"gives": gives})}, seq)


CHANNEL = [
    told(0, "message", "b"),
    told(1, "proposal", "b", 4),
    told(2, "proposal", "a", 9),  # one's own
    told(3, "proposal", "b", 5),
    told(4, "reject", "b"),
    told(5, "proposal", "b", 5),
    told(6, "proposal", "b", 2),
]


@pytest.mark.parametrize(
    ("after", "move"),
    [
        (-1, {"reply": "message"}),
        (0, {"reply": "propose"}),  # the first offer: there is none to compare it with
        (1, {"reply": "propose", "offer": "better"}),
        (3, {"reply": "reject"}),
        (4, {"reply": "propose", "offer": "equal"}),
        (5, {"reply": "propose", "offer": "worse"}),
        (6, None),
    ],
)
def test_what_came_next_is_named_as_a_prediction_names_it(after, move):
    assert came(CHANNEL, "a", after, float) == move


@pytest.mark.parametrize(
    ("predicted", "is_right"),
    [
        ({"reply": "propose", "offer": "better"}, True),
        ({"reply": "propose", "offer": "worse"}, False),
        ({"reply": "propose"}, False),
        ({"reply": "accept"}, False),
        (None, False),
        ("propose", False),
    ],
)
def test_a_predicted_offer_must_be_right_about_its_worth_too(predicted, is_right):
    assert foreseen(predicted, {"reply": "propose", "offer": "better"}) is is_right


def test_where_nothing_can_be_compared_the_name_of_the_move_is_enough():
    assert foreseen({"reply": "propose", "offer": "worse"}, {"reply": "propose"})
    assert foreseen({"reply": "accept", "offer": "worse"}, {"reply": "accept"})


def test_offers_compare_by_what_they_are_worth():
    assert [compared(x, 5) for x in (6, 5, 4)] == ["better", "equal", "worse"]


@pytest.mark.parametrize("name", [name for name in envs.ENVIRONMENTS if hasattr(envs.module(name), "MIND")])
async def test_each_game_knows_the_counterparts_private_state_and_what_offers_are_worth(name):
    mind, seen = envs.module(name).MIND, 0
    for number, scenario in enumerate(packaged(name, "val")[:20]):
        env = envs.make(scenario, seed=number)
        await run(env, {seat: scripted(name, "linear", seed=number) for seat in env.seats})
        for seat in env.seats:
            truth = mind.truth(scenario, seat)
            if truth is not None:
                assert right(truth, truth, mind.within)
                if mind.schema["type"] == "object":
                    assert set(truth) == set(mind.schema["properties"]) == set(mind.schema["required"])
            for event in env.channels[seat].events:
                if event.type == "proposal" and event.payload["by"] != seat:
                    assert isinstance(mind.worth(scenario, seat, event.payload["gives"]), (int, float))
                    seen += 1
    assert seen > 0


def test_dnd_knows_the_other_seats_values():
    scenario = packaged("dnd", "test")[0]
    mind = envs.module("dnd").MIND
    assert mind.truth(scenario, "a") == scenario["values"]["b"]
    mine = scenario["values"]["a"]
    assert mind.worth(scenario, "a", {"book": 1, "hat": 0, "ball": 2}) == mine["book"] + 2 * mine["ball"]
