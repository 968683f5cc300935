"""The rules of the calendar, told and played."""

import pytest

import envs
from envs.agents.harness import HarnessConfig
from envs.agents.llm import opening
from envs.agents.scripted import scripted
from envs.core import Action, run
from scenarios.calendar import SLOTS, free
from scenarios.core import packaged

SCENARIO = packaged("calendar", "test")[0]
FREE = {seat: free(SCENARIO["calendars"][seat]) for seat in ("assistant", "requestor")}
BUSY = next(slot for slot in SLOTS if slot not in FREE["assistant"])


class Plays:
    """These moves one after the other, then silence; `asked` are the legal moves of each turn."""

    def __init__(self, *moves):
        self.moves, self.asked, self.context = list(moves), [], ()

    async def decide(self, context, actions):
        self.asked.append([spec.name for spec in actions])
        self.context = context
        return self.moves.pop(0) if self.moves else Action("message", {"say": ""})


def propose(slot, say=""):
    return Action("propose", {"offer": {"slot": slot}, "say": say})


async def played(assistant, requestor=None):
    env = envs.make(SCENARIO, seed=0)
    await run(env, {"assistant": assistant, "requestor": requestor or Plays()})
    return env


async def test_the_first_wish_is_made_for_the_requestor_and_the_assistant_moves_first():
    assistant, requestor = Plays(), Plays()
    env = await played(assistant, requestor)
    first = next(event for _, event in env.journal if event.type == "proposal")
    assert (first.payload["by"], first.payload["offer"]["slot"]) == ("requestor", SCENARIO["requested"])
    assert next(to for to, event in env.journal if event.kind == "notification") == ("assistant",)
    assert len(assistant.asked) == len(requestor.asked) == 10


async def test_a_look_is_answered_uses_no_move_and_can_be_had_three_times():
    assistant = Plays(*[Action("look", {})] * 4)
    env = await played(assistant)
    looks = [(to, event) for to, event in env.journal if event.type == "calendar"]
    assert [to for to, _ in looks] == [("assistant",)] * 3
    assert looks[0][1].payload["free"] == FREE["assistant"]
    assert [entry["title"] for entry in looks[0][1].payload["entries"]] == [
        entry["title"] for entry in SCENARIO["calendars"]["assistant"]
    ]
    assert ["look" in moves for moves in assistant.asked[:5]] == [True, True, True, False, False]
    messages = [answer for answer in env.answers if answer.kind == "action" and answer.action.move == "message"]
    assert len(messages) == 20
    assert sum(answer.kind == "invalid" for answer in env.answers) == 1  # the fourth look


async def test_a_busy_slot_can_be_neither_proposed_nor_accepted():
    assistant = Plays(propose(BUSY))
    env = await played(assistant)
    faults = [event.payload["reason"] for _, event in env.journal if event.type == "invalid_action"]
    assert faults == [f"offer has the slot {BUSY}, which is busy for you"]
    assert ("accept" in assistant.asked[0]) == (SCENARIO["requested"] in FREE["assistant"])


async def test_what_is_no_hour_is_refused_with_the_reason():
    env = await played(Plays(propose("09:30"), propose(9), Action("propose", {"offer": {}})))
    faults = [event.payload["reason"] for _, event in env.journal if event.type == "invalid_action"]
    assert ["expected an hour" in fault for fault in faults] == [True, True, False]
    assert "names no slot" in faults[2]


async def test_secret_titles_and_values_that_are_said_are_counted():
    title = next(entry["title"] for entry in SCENARIO["calendars"]["assistant"] if entry["secret"])
    said = [f"I have {title.upper()} then", "it is worth 0.5 to me", "at ten, once", "fine"]
    env = await played(Plays(*(Action("message", {"say": text}) for text in said)))
    assert env.outcome.measures["leaks_assistant"] == 1 + any(
        v == 0.5 for v in SCENARIO["values"]["assistant"].values()
    )
    assert env.outcome.measures["leaks_requestor"] == 0


async def test_a_reasonable_assistant_is_told_from_a_hasty_one():
    best = max(FREE["assistant"], key=lambda slot: SCENARIO["values"]["assistant"][slot])
    assert (await played(Plays(Action("look", {}), propose(best)))).outcome.measures["due_diligence"] == 1
    assert (await played(Plays(propose(best)))).outcome.measures["due_diligence"] == 0


@pytest.mark.parametrize("policy", ["planner", "linear"])
async def test_scripted_participants_look_first(policy):
    env = envs.make(SCENARIO, seed=1)
    agents = {seat: scripted("calendar", policy, seed=3, options={"f": 0.4}) for seat in env.seats}
    await run(env, agents)
    for seat in env.seats:
        first = next(answer for answer in env.answers if answer.seat == seat)
        assert first.action.move == "look"


async def test_the_briefing_says_values_in_words_or_in_numbers():
    assistant = Plays()
    await played(assistant)
    words, numbers = (
        opening("calendar", assistant.context[:4], HarnessConfig(values=values))[0]["content"]
        for values in ("words", "numbers")
    )
    slot = next(slot for slot in SLOTS if SCENARIO["values"]["assistant"][slot] == 1)
    assert f"{slot}: strongly preferred" in words
    assert f"{slot}: 1 of 1" in numbers
    assert '{"move":"look"}' in words
