"""Werewolf: who is asked what, who sees what, when somebody is out, and when it ends."""

import asyncio
from collections import Counter

import pytest

import envs
from envs.agents.llm import HarnessConfig, LLMAgent, Transcribed
from envs.agents.scripted import names, scripted
from envs.core import Action, Limits, derive_seed, run
from envs.replay import EpisodeLog, replay, transcript
from envs.werewolf import most_named
from scenarios.core import Scenario, packaged

TEST = packaged("werewolf", "test")
NAMES = ("Ada", "Ben", "Cleo", "Dov", "Eva", "Finn", "Gus", "Hal")
PASS = Action("pass", {})


def scenario(*roles):
    seats = [f"p{number}" for number in range(1, len(roles) + 1)]
    return Scenario(
        "s", "werewolf", "test", "here",
        {
            "names": dict(zip(seats, NAMES, strict=False)),
            "personas": dict.fromkeys(seats, "You keep bees."),
            "roles": dict(zip(seats, roles, strict=True)),
        },
    )  # fmt: skip


FIVE = scenario("wolf", "villager", "villager", "villager", "villager")
SEVEN = scenario("wolf", "wolf", "villager", "seer", "villager", "villager", "villager")


class Does:
    """Names these players, phase by phase: {"vote": ["Ben", None], …}, each in turn; passes where nothing is left."""

    MOVES = {"talk": "accuse", "vote": "vote", "whisper": "whisper", "attack": "attack", "look": "look"}  # noqa: RUF012

    def __init__(self, **plan):
        self.plan = {phase: list(players) for phase, players in plan.items()}
        self.asked = []

    async def decide(self, context, actions):
        phase = context[-1].payload["phase"]
        self.asked.append(phase)
        left = self.plan.get(phase, [])
        player = left.pop(0) if left else None
        if player is None:
            return PASS
        fields = {"player": player, **({"say": "This one."} if phase == "whisper" else {})}
        return Action(self.MOVES[phase], fields)


def play(scene, agents, *, moves=10, seed=0):
    env = envs.make(scene, seed=seed, limits=Limits(moves_per_seat=moves))
    asyncio.run(run(env, {seat: agents.get(seat, Does()) for seat in env.seats}))
    return env


def told(env, kind):
    return [dict(event.payload) for _, event in env.journal if event.type == kind]


def everybody(scene, player):
    """All but the player vote for it on the first day."""
    return {seat: Does(vote=[player if name != player else None]) for seat, name in scene["names"].items()}


# ---- votes


@pytest.mark.parametrize(
    ("votes", "out"),
    [
        (["Ada", "Ada", "Ben"], "Ada"),
        (["Ada", "Ben", None], None),  # one each
        (["Ada", "Ada", "Ben", "Ben", "Cleo"], None),  # two each
        (["Ada", None, None, None], "Ada"),  # one is more than none
        ([None, None], None),
    ],
)
def test_who_is_named_most_is_out_and_of_equals_nobody(votes, out):
    assert most_named(votes) == out


def test_a_tie_puts_nobody_out_and_the_day_is_over():
    env = play(FIVE, {"p1": Does(vote=["Ben"]), "p2": Does(vote=["Ada"])}, moves=2)
    assert told(env, "votes") == [{"votes": {"Ada": "Ben", "Ben": "Ada", "Cleo": None, "Dov": None, "Eva": None}}]
    assert told(env, "out") == [{"player": None, "role": None, "how": "vote"}]
    assert env.outcome.status == "timeout"
    assert {got.reward for got in env.outcome.seats.values()} == {0}


def test_nobody_sees_a_vote_before_all_have_voted():
    """Each seat waits for all others to have been asked, then looks at its channel."""
    asked = set()

    class Waits:
        async def decide(self, context, actions):
            if context[-1].payload["phase"] != "vote":
                return PASS
            asked.add(context[0].payload["seat"])
            while len(asked) < 5:
                await asyncio.sleep(0)
            assert all(event.type != "votes" for event in context)
            return Action("vote", {"player": actions[0].fields["properties"]["player"]["enum"][0]})

    env = play(FIVE, {seat: Waits() for seat in FIVE["roles"]}, moves=2)
    assert {answer.kind for answer in env.answers} == {"action"}
    assert told(env, "votes")[0]["votes"] == dict.fromkeys(NAMES[1:5], "Ada") | {"Ada": "Ben"}


def test_the_log_keeps_the_order_of_seats_whoever_votes_first():
    class Slow(Does):
        async def decide(self, context, actions):
            for _ in range(int(context[0].payload["seat"][1]) * -3 + 20):
                await asyncio.sleep(0)
            return await super().decide(context, actions)

    quick = play(FIVE, everybody(FIVE, "Ben"))
    slow = play(FIVE, {seat: Slow(vote=["Ben" if seat != "p2" else None]) for seat in FIVE["roles"]})
    lines = [EpisodeLog.of(env, episode_id="e", agents={}).line(walls=False) for env in (quick, slow)]
    assert lines[0] == lines[1]


# ---- the end


def test_the_villagers_win_when_the_last_wolf_is_out_the_dead_among_them():
    agents = everybody(FIVE, "Ada")
    env = play(FIVE, agents)
    assert env.outcome.agreement == {"winner": "villagers"}
    assert {seat: got.reward for seat, got in env.outcome.seats.items()} == {
        "p1": 0,
        "p2": 1,
        "p3": 1,
        "p4": 1,
        "p5": 1,
    }
    assert env.outcome.measures == {"wolves_won": 0, "days": 1, "votes_on_wolves": 1}


def test_the_wolves_win_when_they_are_as_many_as_the_others():
    # five with a wolf: day 1 Ben is out (4), night Cleo (3), day 2 a tie, night Dov: 1 wolf, 1 villager
    agents = everybody(FIVE, "Ben") | {"p1": Does(vote=["Ben"], attack=["Cleo", "Dov"])}
    env = play(FIVE, agents)
    assert [(row["player"], row["how"]) for row in told(env, "out")] == [
        ("Ben", "vote"),
        ("Cleo", "night"),
        (None, "vote"),
        ("Dov", "night"),
    ]
    assert env.outcome.agreement == {"winner": "wolves"}
    assert {seat for seat, got in env.outcome.seats.items() if got.reward} == {"p1"}
    assert env.journal[-2][1].type == "out"
    assert env.outcome.measures["votes_on_wolves"] == 0


def test_a_day_takes_two_moves_and_when_they_are_used_up_nobody_has_won():
    for moves, talks, votes in ((1, 1, 0), (2, 1, 1), (3, 2, 1), (10, 5, 5)):
        env = play(FIVE, {}, moves=moves)
        assert (len(told(env, "message")) / 5, len(told(env, "votes"))) == (talks, votes)
        assert env.outcome.status == "timeout"


# ---- the dead


def test_who_is_out_is_asked_nothing_more_and_still_sees_what_all_see():
    agents = everybody(SEVEN, "Cleo")
    env = play(SEVEN, agents)
    assert agents["p3"].asked == ["talk", "vote"]
    gone = next(event.at for _, event in env.journal if event.type == "out")
    later = [event for to, event in env.journal if event.at > gone and len(to) == len(env.seats)]
    assert [event.at for event in env.channels["p3"].events if event.at > gone] == [event.at for event in later]
    assert {"day", "message", "votes", "out", "outcome"} <= {event.type for event in later}


def test_nobody_can_name_itself_the_dead_or_by_night_a_fellow_wolf():
    env = envs.make(SEVEN, seed=0)
    env.living.remove("p5")
    for seat, move, player in (
        ("p1", "vote", "Ada"),
        ("p1", "vote", "Eva"),
        ("p1", "attack", "Ben"),
        ("p3", "vote", 7),
    ):
        assert "expected one of" in env.fault(seat, Action(move, {"player": player}))
    assert env.fault("p1", Action("vote", {"player": "Ben"})) is None
    assert env.fault("p1", Action("attack", {"player": "Cleo"})) is None


# ---- the night


def test_only_wolves_see_what_wolves_say_and_whom_they_name():
    agents = {"p1": Does(whisper=["Eva", "Eva"], attack=["Eva"]), "p2": Does(whisper=[None, "Eva"], attack=["Eva"])}
    env = play(SEVEN, agents | {"p4": Does(look=["Ada"])}, moves=4)
    secret = [(to, event) for to, event in env.journal if event.type in ("whisper", "attacks")]
    assert [event.type for _, event in secret] == ["whisper", "whisper", "whisper", "attacks"]
    assert {to for to, _ in secret} == {("p1", "p2")}
    assert {to for to, event in env.journal if event.type == "seen"} == {("p4",)}
    assert told(env, "seen") == [{"by": "p4", "name": "Dov", "player": "Ada", "wolf": True}]
    assert told(env, "out")[1] == {"player": "Eva", "role": "villager", "how": "night"}


def test_nobody_is_attacked_in_the_first_night_and_wolves_that_disagree_kill_nobody():
    agents = {"p1": Does(attack=["Eva"]), "p2": Does(attack=["Finn"])}
    env = play(SEVEN, agents, moves=4)
    assert [row["how"] for row in told(env, "out")] == ["vote", "night", "vote"]
    assert {row["player"] for row in told(env, "out")} == {None}


def test_a_wolf_alone_whispers_to_nobody():
    wolf = Does()
    play(FIVE, {"p1": wolf}, moves=4)
    assert Counter(wolf.asked) == {"talk": 2, "vote": 2, "attack": 1}


def test_who_is_a_wolf_reaches_no_villagers_channel():
    """The wolves change places, the public moves stay: the villagers' channels are the same to the byte."""
    other = scenario("villager", "villager", "wolf", "seer", "wolf", "villager", "villager")
    public = {seat: {"talk": ["Finn"], "vote": ["Gus"]} for seat in SEVEN["roles"] if seat != "p6"}
    heard = []
    for scene in (SEVEN, other):
        wolves = [seat for seat, role in scene["roles"].items() if role == "wolf"]
        secret = {seat: {"whisper": ["Finn"], "attack": ["Finn"]} for seat in wolves}
        agents = {seat: Does(**plan, **secret.get(seat, {})) for seat, plan in public.items()}
        env = play(scene, agents, moves=3)
        assert told(env, "out")[-1]["player"] == "Finn"
        heard.append({seat: env.channels[seat].events for seat in ("p4", "p6", "p7")})
    assert heard[0] == heard[1]


# ---- models


@pytest.mark.parametrize("form", ["json", "tools"])
@pytest.mark.parametrize("prompt", ["full", "compact"])
def test_a_model_can_make_every_move_in_every_form_and_hears_what_a_player_hears(form, prompt):
    """The same game twice: scripted and written down, then by models that write the same moves."""
    config, made = HarnessConfig(format=form, prompt=prompt), Counter()

    class Model:
        def __init__(self, replies):
            self.replies = list(replies)

        async def chat(self, request):
            return {"choices": [{"message": self.replies.pop(0), "finish_reason": "stop"}]}

    for number in (2, 3, 7):
        first = envs.make(TEST[number], seed=number)
        seats = {
            seat: Transcribed(
                scripted("werewolf", names("werewolf")[i % 4], seed=derive_seed(number, seat)),
                env="werewolf",
                config=config,
            )
            for i, seat in enumerate(first.seats)
        }
        asyncio.run(run(first, seats))
        again = envs.make(TEST[number], seed=number)
        replies = {
            seat: [message for message in taken.messages if message["role"] == "assistant"]
            for seat, taken in seats.items()
            if taken._talk._exchanges
        }
        models = {
            seat: LLMAgent(Model(said).chat, env="werewolf", config=config, seed=1) for seat, said in replies.items()
        }
        asyncio.run(run(again, models))
        assert again.outcome == first.outcome
        assert all(answer.kind == "action" for answer in again.answers)
        assert {seat: agent.messages for seat, agent in models.items()} == {
            seat: seats[seat].messages for seat in models
        }
        made += Counter(answer.action.move for answer in again.answers)
    assert set(made) == {"message", "accuse", "vote", "whisper", "attack", "look", "pass"}


def test_a_model_that_cannot_be_read_is_told_so_and_passes():
    heard = []

    async def chat(request):
        heard.append(request["messages"][-1]["content"])
        return {"choices": [{"message": {"content": '{"move":"vote","player":"Zoe"}'}, "finish_reason": "stop"}]}

    model = LLMAgent(chat, env="werewolf", config=HarnessConfig(), seed=1)
    env = play(FIVE, everybody(FIVE, "Ben") | {"p2": model})
    assert {answer.kind for answer in env.answers if answer.seat == "p2"} == {"invalid"}
    assert told(env, "votes")[0]["votes"]["Ben"] is None
    assert any("player is 'Zoe', expected one of Ada, Cleo, Dov, Eva" in text for text in heard)
    assert any("You passed." in text for text in heard)


def test_a_prompt_tells_the_role_to_its_player_alone():
    rules = envs.module("werewolf")
    env = play(SEVEN, {})
    for seat, channel in env.channels.items():
        for prompt in ("full", "compact"):
            text = rules.brief(channel.events[0], prompt)
            assert ("Ben" in text.replace("Ada, Ben, Cleo", "")) == (seat in ("p1", "p2"))
        full = rules.brief(channel.events[0], "full")
        assert ("You are the seer" in full) == (seat == "p4")
        assert ("You are a wolf, and so is" in full) == (seat in ("p1", "p2"))
        shown = rules.answers(channel.events[0])
        assert ('"whisper"' in shown) == ('"attack"' in shown) == (seat in ("p1", "p2"))
        assert ('"look"' in shown) == (seat == "p4")


def test_a_replay_tells_the_game_with_what_each_seat_knew():
    agents = {seat: scripted("werewolf", "sleuth", seed=i) for i, seat in enumerate(SEVEN["roles"])}
    env = envs.make(SEVEN, seed=3)
    asyncio.run(run(env, agents))
    log = EpisodeLog.of(env, episode_id="e", agents=dict.fromkeys(env.seats, "scripted:sleuth"))
    assert asyncio.run(replay(log)) == []
    text = transcript(log)
    assert "p1 (scripted:sleuth): Ada, wolf with Ben" in text
    assert "p4 (scripted:sleuth): Dov, seer" in text
    assert "whispers to the wolves" in text
    assert "Dov looks at" in text
    own = transcript(log, "p3")
    assert "p3 (scripted:sleuth): Cleo, villager" in own
    for secret in ("whispers", "looks at", "The wolves attack", "wolf with", "p4 ("):
        assert secret not in own


@pytest.mark.parametrize("thing", ["nobody", "-5", -5, "1e9", float("nan"), True, [], {}])
def test_a_vote_for_nothing_is_an_event_for_its_author_and_the_game_goes_on(thing):
    game = play(FIVE, {"p2": Does(vote=[thing])})
    invalid = {seat: [e for e in game.channels[seat].events if e.type == "invalid_action"] for seat in game.seats}
    assert [seat for seat, events in invalid.items() if events] == ["p2"]
    assert "\n" not in invalid["p2"][0].payload["reason"]
    assert game.outcome.status != "aborted"
