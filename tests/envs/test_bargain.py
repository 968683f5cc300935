"""The rules that all bargains share, where the games themselves do not show them."""

from envs import dnd
from envs.agents.scripted import State, scripted
from envs.core import Action, Limits, run
from scenarios.core import packaged

ALL = packaged("dnd", "test")[0]["counts"]
OPENING = Action("propose", {"offer": ALL, "say": "All of it."})


class Opened(dnd.Environment):
    """A game in which b's first offer is made for it."""

    def opening_order(self):
        return "a", "b"

    def opening(self):
        return "b", OPENING


class Waits:
    def __init__(self):
        self.turns = []

    async def decide(self, context, actions):
        self.turns.append((dict(context[-1].payload), [spec.name for spec in actions]))
        return Action("message", {"say": "no"})


async def opened(a, b, limit=3):
    env = Opened(packaged("dnd", "test")[0], seed=1, limits=Limits(moves_per_seat=limit))
    await run(env, {"a": a, "b": b})
    return env


async def test_an_opening_that_is_made_for_a_seat_stands_from_the_start_and_uses_none_of_its_moves():
    a, b = Waits(), Waits()
    env = await opened(a, b)
    assert [event.type for _, event in env.journal[:4]] == ["briefing", "briefing", "proposal", "turn"]
    assert env.journal[2][1].payload["say"] == "All of it."
    assert a.turns[0][0]["standing"] == {"book": 0, "hat": 0, "ball": 0}
    assert "accept" in a.turns[0][1]
    assert [turn["moves_left"] for turn, _ in b.turns] == [3, 2, 1]
    assert env.outcome.status == "timeout"
    assert all(answer.action.move == "message" for answer in env.answers)


async def test_an_opening_may_be_accepted_at_once():
    env = await opened(scripted("dnd", "first_offer", seed=1), Waits())
    assert env.outcome.agreement["b"] == ALL
    assert len(env.answers) == 1


async def test_scripted_participants_count_an_opening_among_the_offers():
    a, b = (scripted("dnd", "linear", seed=1, options={"f": 0.4}) for _ in range(2))
    env = await opened(a, b, limit=1)
    states: list[State] = [a._state, b._state]
    everything = states[1].deals.best
    assert states[0].received[0] == states[0].deals.index({"book": 0, "hat": 0, "ball": 0})
    assert states[1].made[0] == everything
    assert env.outcome.status in ("agreement", "walk_away")
