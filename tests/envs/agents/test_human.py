"""A person's part without a terminal: what is told, asked and answered."""

import asyncio

import pytest

import envs
from envs.agents.human import GONE, Human
from envs.agents.scripted import opponents, scripted
from envs.core import Limits, run
from scenarios.core import packaged


class Typist:
    """Types the given lines; remembers all that was shown and asked."""

    def __init__(self, *lines):
        self.lines, self.seen, self.asked = list(lines), [], []

    def show(self, text, kind):
        self.seen.append((kind, text))

    async def ask(self, question):
        self.asked.append(question)
        if not self.lines:
            raise EOFError
        return self.lines.pop(0)

    def of(self, kind):
        return [text for found, text in self.seen if found == kind]


async def play(*lines, opponent="linear", number=0, **limits):
    typist = Typist(*lines)
    env = envs.make(packaged("dnd", "test")[number], seed=1, limits=Limits(**limits))
    human = Human("dnd", typist, env.abort)
    await run(env, {"a": human, "b": scripted("dnd", opponent, seed=2)})
    human.hear(env.channels["a"].events)
    return typist, env


async def test_a_person_is_told_who_they_are_what_was_said_and_what_they_may_do():
    typist, env = await play("walk", "")
    briefing = env.channels["a"].events[0]
    assert typist.of("rules") == [envs.module("dnd").brief(briefing, "full")]
    (turn,) = typist.of("turn")
    assert "Your move 1 of 10" in turn
    assert "walk_away  end without agreement" in typist.of("hint")[0]
    assert typist.asked == ["your move: ", "say (what you say to the other side, may stay empty): "]
    assert (env.outcome.status, env.outcome.by) == ("walk_away", "a")


async def test_a_form_is_asked_again_until_it_fits():
    typist, env = await play("propose", "nan", "-1", "1", "one", "0", "Take the rest", "5", "Bye")
    first = next(answer.action for answer in env.answers if answer.seat == "a")
    assert (first.move, dict(first.fields["offer"])) == ("propose", {"book": 1, "hat": 1, "ball": 0})
    assert first.fields["say"] == "Take the rest"
    assert [text.partition(",")[0] for text in typist.of("fault")] == [
        '"nan" is not one clear number',
        "'-1' is out of bounds",
    ]
    assert {answer.kind for answer in env.answers} == {"action"}


async def test_an_empty_line_leads_back_to_the_moves():
    typist, env = await play("propose", "1", "", "message", "", "walk away", "so long")
    (answer,) = (answer for answer in env.answers if answer.seat == "a")
    assert (answer.action.move, answer.action.say) == ("walk_away", "so long")
    assert typist.asked.count("your move: ") == 3


async def test_a_move_that_is_not_there_is_asked_for_again():
    typist, _ = await play("7", "fly", "", "walk_away", "")
    assert len(typist.of("fault")) == 3
    assert all("write its number or its name" in text for text in typist.of("fault"))


async def test_what_comes_last_is_heard_too():
    typist, env = await play("propose", "0", "0", "0", "All yours", opponent="first_offer")
    assert env.outcome.status == "agreement"
    assert typist.of("told")[-1].startswith("The other side accepts your offer.")


async def test_who_leaves_ends_the_episode():
    _, env = await play("message")
    assert (env.outcome.status, env.outcome.error) == ("aborted", GONE)


async def test_a_deadline_passes_for_people_as_well():
    class Slow(Typist):
        async def ask(self, question):
            self.asked.append(question)
            await asyncio.Event().wait()

    typist = Slow()
    env = envs.make(packaged("dnd", "test")[0], seed=1, limits=Limits(decide_timeout_s=0.01, moves_per_seat=2))
    human = Human("dnd", typist, env.abort)
    await run(env, {"a": human, "b": scripted("dnd", "demand_all", seed=2)})
    human.hear(env.channels["a"].events)
    assert env.outcome.status == "timeout"
    assert typist.asked == ["your move: "] * 2
    assert typist.of("fault") == ["You gave no answer; an empty message was sent for you."] * 2


@pytest.mark.parametrize("env", envs.ENVIRONMENTS)
async def test_every_environment_can_be_told_to_a_person(env):
    game = envs.make(packaged(env, "test")[0], seed=1)
    typists = {seat: Typist() for seat in game.seats}
    people = {seat: Human(env, typist, game.abort) for seat, typist in typists.items()}
    await run(game, {seat: scripted(env, opponents(env)[0], seed=i) for i, seat in enumerate(game.seats)})
    for seat, human in people.items():
        human.hear(game.channels[seat].events)
        assert len(typists[seat].of("rules")) == 1
        assert typists[seat].of("turn")
        assert typists[seat].of("told")
