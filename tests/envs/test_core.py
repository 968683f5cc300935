"""The event core, with a small game whose rules stand here."""

import asyncio
from collections import UserDict

import pytest

from envs.core import Action, ActionSpec, Environment, Limits, Outcome, run
from scenarios.core import Scenario

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
VOTE = ActionSpec("vote", {"type": "object", "properties": {"for": {}}, "required": ["for"]}, "choose somebody")
PASS = ActionSpec("message", {"type": "object", "properties": {"say": {}}, "required": ["say"]}, "say something")


class Vote(Environment):
    """Each of three seats speaks, then all vote at once; a vote for oneself is illegal."""

    seats = ("x", "y", "z")
    order = ("x", "y", "z")

    async def play(self):
        await self.broadcast("secret", {"word": "owl"}, to=self.seats[:1])
        for seat in self.order:
            said = await self.ask(seat, (PASS,), {"topic": "who?"})
            await self.broadcast("message", {"by": seat, "say": said.say})
        votes = await self.ask_all(dict.fromkeys(self.seats, (VOTE, PASS)))
        self.votes = {seat: vote.fields.get("for") for seat, vote in votes.items()}
        await self.broadcast("votes", self.votes)
        return Outcome("timeout")

    def fault(self, seat, action):
        return "nobody votes for himself" if action.fields.get("for") == seat else None


class Paid(Vote):
    """The same for two seats of a scenario that can be scored."""

    seats = ("a", "b")
    order = ("a", "b")


class Says:
    """Answers from a list, then passes; an entry may be an action, an exception, or anything else."""

    def __init__(self, *answers):
        self.answers, self.contexts = list(answers), []

    async def decide(self, context, actions):
        self.contexts.append(list(context))
        answer = self.answers.pop(0) if self.answers else Action("message", {"say": "-"})
        if isinstance(answer, Exception):
            raise answer
        return answer


class Never:
    calls = 0

    async def decide(self, context, actions):
        self.calls += 1
        await asyncio.Event().wait()


def game(kind=Paid, **limits):
    return kind(SCENARIO, seed=1, limits=Limits(**limits))


def told(env, seat, type=None):
    events = env.channels[seat].events
    return [event for event in events if type is None or event.type == type]


async def test_each_seat_is_told_only_what_it_may_know():
    env = game(Vote)
    await run(env, {seat: Says() for seat in "xyz"})
    assert [dict(event.payload) for event in told(env, "x", "secret")] == [{"word": "owl"}]
    assert not told(env, "y", "secret")
    assert not told(env, "z", "secret")
    assert [event.payload["by"] for event in told(env, "z", "message")] == ["x", "y", "z"]


async def test_events_are_numbered_without_gaps_and_share_one_clock():
    env = game()
    await run(env, {"a": Says(), "b": Says()})
    for seat in env.seats:
        assert [event.seq for event in told(env, seat)] == list(range(len(told(env, seat))))
    assert [event.at for _, event in env.journal] == list(range(len(env.journal)))
    both = {seat: [e.at for e in told(env, seat, "message")] for seat in env.seats}
    assert both["a"] == both["b"]
    assert len(env.walls) == len(env.journal)


async def test_nobody_who_votes_sees_a_vote_that_was_cast_before():
    env = game(Vote)
    agents = {seat: Says(Action("message", {"say": "hm"}), Action("vote", {"for": "q"})) for seat in "xyz"}
    await run(env, agents)
    for agent in agents.values():
        assert all(event.type != "votes" for event in agent.contexts[-1])
    assert env.votes == {"x": "q", "y": "q", "z": "q"}
    assert [dict(event.payload) for event in told(env, "y", "votes")] == [{"x": "q", "y": "q", "z": "q"}]


async def test_an_invalid_action_becomes_an_event_of_its_own_seat_and_may_be_tried_again():
    env = game()
    await run(env, {"a": Says(Action("vote", {"for": "b"}), Action("message", {"say": "now"})), "b": Says()})
    (event,) = told(env, "a", "invalid_action")
    assert event.payload["reason"] == "'vote' is not possible now; possible: message"
    assert event.payload["retries_left"] == 2
    assert not told(env, "b", "invalid_action")
    assert told(env, "b", "message")[0].payload["say"] == "now"


async def test_after_all_retries_the_inert_action_is_taken():
    env = game(retries=2)
    env_agents = {"a": Says(*[Action("fly")] * 3, Action("vote", {"for": "b"})), "b": Says()}
    await run(env, env_agents)
    assert [event.payload["retries_left"] for event in told(env, "a", "invalid_action")] == [2, 1, 0]
    assert told(env, "b", "message")[0].payload == {"by": "a", "say": ""}
    assert env.votes["a"] == "b"


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (Action("vote", {}), "vote needs the field 'for'"),
        (Action("vote", {"for": "b", "why": 1}), "vote has no field 'why'; it has for"),
        (Action("vote", {"for": "a"}), "nobody votes for himself"),
        (Action("message", {"say": 3}), "say is a int, expected a text"),
        (Action("message", {"say": "x" * 1001}), "say has 1001 characters, at most 1000 are allowed"),
        (Action("message", {"say": "\ud800"}), "say holds characters that are not text"),
        (Action(7), "a int is not possible now; possible: vote, message"),
        (Action.unreadable("blah", "no JSON object"), "no JSON object"),
        ("accept", "expected an action, got str"),
        (None, "expected an action, got NoneType"),
        (Action("vote", [1]), "expected an action, got fields of another kind"),
    ],
)
async def test_an_answer_that_is_no_legal_action_is_refused_with_its_reason(action, reason):
    env = game()
    await run(env, {"a": Says(Action("message", {"say": ""}), action), "b": Says()})
    assert [event.payload["reason"] for event in told(env, "a", "invalid_action")] == [reason]


async def test_an_action_is_accepted_once_and_an_old_notification_is_stale():
    env = game()
    playing = asyncio.create_task(env.conduct())
    await asyncio.sleep(0)
    first = env.channels["a"].open.notification_id
    hello = Action("message", {"say": "hello"})
    assert env.submit("b", "b1", hello).status == "stale"  # it is not b's turn
    assert env.submit("a", first, hello).status == "accepted"
    assert env.submit("a", first, hello) == ("stale", "a1 is not open; nothing is asked of a now")
    await asyncio.sleep(0)
    assert env.submit("b", env.channels["b"].open.notification_id, hello).status == "accepted"
    await asyncio.sleep(0)
    assert env.submit("a", first, hello) == ("stale", "a1 is not open; a2 is")
    assert env.submit("a", "a2", Action("vote", {"for": "a"})).status == "invalid"
    assert env.submit("a", "a2", hello).status == "stale"  # the seat has been asked again, under a new name
    for seat in env.seats:
        assert env.submit(seat, env.channels[seat].open.notification_id, hello).status == "accepted"
    await playing
    assert env.submit("a", "a3", hello).status == "closed"
    assert [event.payload["say"] for event in told(env, "b", "message")] == ["hello", "hello"]


async def test_an_agent_that_names_an_old_notification_uses_up_its_tries():
    class Old:
        async def decide(self, context, actions):
            return Action("message", {"say": "late"}, notification_id="a0")

    env = game(retries=1)
    await run(env, {"a": Old(), "b": Says()})
    reasons = [event.payload["reason"] for event in told(env, "a", "invalid_action")]
    assert reasons == [f"a0 is not open; answer a{number}" for number in (1, 2, 3, 4)]
    assert told(env, "b", "message")[0].payload["say"] == ""


async def test_an_agent_that_answers_by_submitting_as_well_is_heard_once():
    env = game()

    class Twice:
        async def decide(self, context, actions):
            env.submit("a", context[-1].notification_id, Action("message", {"say": "one"}))
            return Action("message", {"say": "two"})

    await run(env, {"a": Twice(), "b": Says()})
    assert [e.payload["say"] for e in told(env, "b", "message") if e.payload["by"] == "a"] == ["one"]
    assert not told(env, "a", "invalid_action")


async def test_an_agent_that_raises_is_an_event_and_plays_on():
    env = game()
    await run(env, {"a": Says(ValueError("lost my notes"), Action("vote", {"for": "b"})), "b": Says()})
    assert [event.payload["reason"] for event in told(env, "a", "error")] == ["ValueError: lost my notes"]
    assert not told(env, "b", "error")
    assert env.votes["a"] == "b"


async def test_an_agent_that_never_answers_is_cut_off_and_asked_again_next_time():
    env, silent = game(decide_timeout_s=0.02), Never()
    await run(env, {"a": silent, "b": Says()})
    assert silent.calls == 2
    assert [event.payload["reason"] for event in told(env, "a", "timeout")] == ["no answer within 0.02 s"] * 2
    assert told(env, "a", "turn")[0].deadline == 0.02
    assert env.outcome.status == "timeout"
    assert not env.overdue
    assert not env.deciding


async def test_a_late_answer_changes_nothing():
    class Late:
        """Will not be interrupted, and answers when the deadline has passed."""

        async def decide(self, context, actions):
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                return Action("message", {"say": "at last"})

    env = game(decide_timeout_s=0.02)
    await run(env, {"a": Late(), "b": Says()})
    assert len(told(env, "a", "timeout")) == 2
    assert all(event.payload["say"] != "at last" for event in told(env, "b", "message"))


async def test_an_agent_that_cannot_be_stopped_does_not_stop_the_episode(monkeypatch):
    monkeypatch.setattr("envs.running.STUBBORN_S", 0.01)
    free = asyncio.Event()

    class Stubborn:
        async def decide(self, context, actions):
            while not free.is_set():
                try:
                    await free.wait()
                except asyncio.CancelledError:
                    continue

    env = game(decide_timeout_s=0.01)
    outcome = await asyncio.wait_for(run(env, {"a": Stubborn(), "b": Says()}), 5)
    assert outcome.status == "timeout"
    assert len(told(env, "a", "timeout")) == 2
    free.set()
    await asyncio.sleep(0)


async def test_an_empty_seat_is_absent_and_costs_no_time():
    env = game(decide_timeout_s=60)
    await asyncio.wait_for(run(env, {"b": Says()}), 5)
    assert len(told(env, "a", "absent")) == 2
    assert told(env, "b", "message")[0].payload["say"] == ""


async def test_an_agent_that_need_not_wait_is_called_in_the_moment_of_asking():
    class Quick:
        def __init__(self):
            self.tasks = set()

        def choose(self, context, actions):
            self.tasks.add(asyncio.current_task())
            assert context[-1].kind == "notification"
            return Action("message", {"say": "quick"})

        async def decide(self, context, actions):
            raise AssertionError("choose is there")

    env, quick = game(), Quick()
    await run(env, {"a": quick, "b": Says()})
    assert quick.tasks == {asyncio.current_task()}
    assert told(env, "b", "message")[0].payload["say"] == "quick"


async def test_a_quick_agent_that_raises_or_answers_nonsense_is_treated_like_any_other():
    answers = [RuntimeError("oh"), None, 5, Action("fly")]

    class Bad:
        def choose(self, context, actions):
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    env = game()
    await run(env, {"a": Bad(), "b": Says()})
    assert [answer.kind for answer in env.answers if answer.seat == "a"] == ["error", "invalid", "invalid", "invalid"]


async def test_a_channel_is_read_from_a_cursor_until_the_episode_ends():
    env = game()
    seen, tail = [], []

    async def watch(cursor, into):
        async for event in env.channels["b"].read(cursor):
            into.append(event.seq)

    readers = [asyncio.create_task(watch(0, seen)), asyncio.create_task(watch(2, tail))]
    await run(env, {"a": Says(), "b": Says()})
    await asyncio.gather(*readers)
    assert seen == [event.seq for event in env.channels["b"].events]
    assert tail == seen[2:]
    assert env.channels["b"].events[-1].type == "outcome"
    assert [event.seq async for event in env.channels["b"].read()] == seen  # and again, when all is over


async def test_a_reader_that_is_cancelled_does_not_disturb_the_others():
    env = game()
    others = []

    async def watch():
        async for event in env.channels["b"].read():
            others.append(event)

    gone = asyncio.create_task(watch())
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    stays = asyncio.create_task(watch())
    await run(env, {"a": Says(), "b": Says()})
    await stays
    assert others == env.channels["b"].events


async def test_cancelling_a_run_aborts_the_episode():
    env = game()
    playing = asyncio.create_task(run(env, {"a": Never(), "b": Says()}))
    await asyncio.sleep(0.01)
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert env.outcome.status == "aborted"
    assert env.outcome.error == "cancelled"
    assert {got.reward for got in env.outcome.seats.values()} == {0.0}
    assert all(channel.closed for channel in env.channels.values())


async def test_an_episode_that_takes_too_long_is_aborted_and_not_raised():
    env = game(episode_timeout_s=0.02, decide_timeout_s=None)
    outcome = await run(env, {"a": Never(), "b": Says()})
    assert (outcome.status, outcome.error) == ("aborted", "not finished within 0.02 s")
    assert asyncio.current_task().cancelling() == 0


async def test_an_abort_from_outside_ends_the_episode():
    env = game()
    playing = asyncio.create_task(run(env, {"a": Never(), "b": Says()}))
    await asyncio.sleep(0)
    env.abort("no more budget")
    assert (await playing).error == "no more budget"


async def test_a_mistake_in_the_rules_is_raised_not_blamed_on_an_agent():
    class Broken(Paid):
        def fault(self, seat, action):
            raise KeyError("rules")

    for agent in (Says(), type("Quick", (), {"choose": lambda self, c, a: Action("message", {"say": ""})})()):
        env = game(Broken)
        with pytest.raises(KeyError, match="rules"):
            await run(env, {"a": agent, "b": Says()})
        assert env.outcome.status == "aborted"
        assert not told(env, "a", "error")


async def test_an_environment_is_used_once():
    env = game()
    await run(env, {})
    with pytest.raises(RuntimeError, match="used once"):
        await run(env, {})


async def test_nobody_sits_where_there_is_no_seat():
    with pytest.raises(ValueError, match="no seat"):
        await run(game(), {"c": Says()})


async def test_an_agent_cannot_change_what_others_read():
    class Vandal:
        async def decide(self, context, actions):
            for event in context:
                with pytest.raises(TypeError):
                    event.payload["say"] = "forged"
            return self.action

        action = Action("message", {"say": "mine"})

    vandal = Vandal()
    env = game()
    await run(env, {"a": vandal, "b": Says()})
    vandal.action.fields["say"] = "changed afterwards"
    assert env.answers[0].action.say == "mine"
    assert told(env, "b", "message")[0].payload["say"] == "mine"


async def test_an_agent_whose_own_work_was_cancelled_has_failed_and_is_asked_again():
    class Cancelled:
        calls = 0

        async def decide(self, context, actions):
            self.calls += 1
            work = asyncio.create_task(asyncio.sleep(9))
            asyncio.get_running_loop().call_soon(work.cancel)
            await work

    env, agent = game(), Cancelled()
    await asyncio.wait_for(run(env, {"a": agent, "b": Says()}), 5)
    assert agent.calls == 2
    assert [event.payload["reason"] for event in told(env, "a", "error")] == ["CancelledError"] * 2


async def test_an_agent_may_abort_its_episode_and_its_answer_then_counts_no_more():
    env = game()

    class Gives:
        async def decide(self, context, actions):
            env.abort("the engine is gone")
            return Action("message", {"say": "hello"})

    class GivesAtOnce(Gives):
        def choose(self, context, actions):
            env.abort("the engine is gone")
            return Action("message", {"say": "hello"})

    for kind in (Gives, GivesAtOnce):
        env = game()
        outcome = await run(env, {"a": kind(), "b": Says()})
        assert (outcome.status, outcome.error) == ("aborted", "the engine is gone")
        assert env.answers == []
        assert not told(env, "b", "message")


async def test_a_garbage_object_that_raises_when_it_is_looked_at_is_only_garbage():
    class Trap:
        def __getattr__(self, name):
            raise RuntimeError("do not look")

    class Odd(UserDict):
        def __getitem__(self, key):
            raise RuntimeError("do not look")

    env = game(retries=3)
    answers = [Trap(), Action("message", Odd(say="x")), Action("message", {"say": "ok"}, notification_id=Trap())]
    await run(env, {"a": Says(*answers), "b": Says()})
    assert sum(answer.kind == "invalid" for answer in env.answers) == 2
    assert told(env, "b", "message")[0].payload["say"] == "ok"


async def test_an_episode_that_cannot_be_scored_still_closes_its_channels():
    env = game()
    env.scenario = Scenario("s1", "dnd", "test", "here", {})
    with pytest.raises(KeyError):
        await asyncio.wait_for(run(env, {"a": Says(), "b": Says()}), 5)
    assert all(channel.closed for channel in env.channels.values())


@pytest.mark.parametrize("limit", [{"moves_per_seat": 0}, {"retries": -1}, {"decide_timeout_s": 0}])
def test_limits_are_positive(limit):
    with pytest.raises(ValueError, match="positive"):
        Limits(**limit)
