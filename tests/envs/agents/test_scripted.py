"""The scripted participants: their curves, their floors, their words, and that no trick moves them."""

import asyncio
import re
import statistics
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import envs
from envs.agents.beliefs import Table
from envs.agents.deals import FLOORS
from envs.agents.dnd import conceivable, deals
from envs.agents.phrases import PHRASES
from envs.agents.scripted import POLICIES, Scripted, names, scripted
from envs.core import Action, Limits, derive_seed, run
from scenarios.core import Scenario, packaged
from scenarios.errors import UsageError

TEST = packaged("dnd", "test")
COUNTS = {"book": 1, "hat": 2, "ball": 3}
SCENARIO = Scenario(
    "s1",
    "dnd",
    "test",
    "here",
    {"counts": COUNTS, "values": {"a": {"book": 1, "hat": 3, "ball": 1}, "b": {"book": 2, "hat": 1, "ball": 2}}},
)
NUMBER_WORDS = {"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "none"}


class Plays:
    """Makes these moves, then the last one again and again."""

    def __init__(self, *moves):
        self.moves = list(moves)

    async def decide(self, context, actions):
        return self.moves.pop(0) if len(self.moves) > 1 else self.moves[0]


def takes(book, hat, ball):
    return Action("propose", {"offer": {"book": book, "hat": hat, "ball": ball}})


SILENCE = Action("message", {"say": ""})
LONG = Limits(moves_per_seat=60)


def play(scenario, policies, *, seed=0, limits=None):
    """`policies` names a policy (and its options) or gives an agent for each seat."""
    env = envs.make(scenario, seed=seed, limits=limits)
    agents = {}
    for seat, policy in policies.items():
        name, options = policy if isinstance(policy, tuple) else (policy, {})
        agents[seat] = (
            scripted("dnd", name, seed=derive_seed(seed, seat), options=options) if name in POLICIES else name
        )
    asyncio.run(run(env, agents))
    return env


def moves_of(env, seat):
    return [answer.action for answer in env.answers if answer.seat == seat]


def offers_of(env, seat, scenario=SCENARIO):
    """What a seat asked for itself, in its own points."""
    values = scenario["values"][seat]
    return [
        sum(values[item] * units for item, units in move.fields["offer"].items())
        for move in moves_of(env, seat)
        if move.move == "propose"
    ]


def game_with(opponent, seat="a", seed=0, policy="linear", **options):
    env = play(SCENARIO, {seat: (policy, options), "b" if seat == "a" else "a": opponent}, seed=seed)
    return env


@pytest.mark.parametrize(
    ("policy", "points"),
    [
        # f = .4, t = 0, 1/9 … 8/9, 1; a(t) = .4 + .6·(1 - t^e); own points are whole, so a(t)·10 is rounded up
        ("linear", [10, 10, 9, 8, 8, 7, 6, 6, 5, 4]),  # 10, 9.33, 8.67, 8, 7.33, 6.67, 6, 5.33, 4.67, 4
        ("boulware", [10, 10, 10, 10, 10, 10, 9, 8, 7, 4]),  # 10, 10.0, 9.99, 9.93, 9.77, 9.43, 8.81, 7.80, 6.25, 4
        ("conceder", [10, 7, 6, 6, 6, 5, 5, 5, 5, 4]),  # 10, 6.54, 5.88, 5.44, 5.10, 4.82, 4.58, 4.37, 4.17, 4
        ("hardliner", [10, 10, 10, 10, 10, 10, 10, 9, 8, 6]),  # f = .6: 10, …, 9.21, 8.54, 7.50, 6
    ],
)
def test_a_curve_asks_for_the_least_deal_that_is_worth_its_aspiration(policy, points):
    seed = next(s for s in range(9) if envs.make(SCENARIO, seed=s).order[0] == "a")
    options = {} if policy == "hardliner" else {"f": "0.4"}
    env = game_with(Plays(SILENCE), policy=policy, seed=seed, **options)
    assert offers_of(env, "a") == points


def test_of_equal_deals_the_one_that_leaves_the_most_units_is_offered():
    # 7 of a's points: (1,2,0) leaves 3 balls, (0,2,1) leaves 1 book and 2 balls, (1,1,3) leaves 1 hat
    space = deals({"counts": COUNTS, "values": SCENARIO["values"]["a"]})
    assert [space.offers[i] for i in space.least(0.7)] == [
        {"book": 0, "hat": 2, "ball": 1},
        {"book": 1, "hat": 2, "ball": 0},
    ]
    assert [space.mine[i] for i in space.least(0.7)] == [0.7, 0.7]
    assert space.offers[space.best] == COUNTS
    assert space.offers[space.least(0.0)[0]] == {"book": 0, "hat": 0, "ball": 0}


def test_an_offer_worth_the_aspiration_is_accepted_and_one_below_it_is_not():
    # linear with f = .4 wants 7.33 points at its fifth move and 6.67 at its sixth; (1,0,0) leaves it 2·3 + 3 = 9
    env = game_with(Plays(*[SILENCE] * 4, takes(0, 1, 0), takes(0, 1, 0)), seed=1, f=0.4)
    accepted = [i for i, move in enumerate(moves_of(env, "a")) if move.move == "accept"]
    assert env.outcome.seats["a"].raw == 7
    assert accepted == [5]


@given(
    number=st.integers(0, 99),
    seed=st.integers(0, 10**6),
    names=st.tuples(*[st.sampled_from(["boulware", "linear", "conceder", "hardliner", "tit_for_tat", "planner"])] * 2),
)
@settings(max_examples=60, deadline=None)
def test_no_agreement_goes_under_a_floor(number, seed, names):
    env = play(TEST[number], {"a": (names[0], {"f": 0.45}), "b": (names[1], {"f": 0.45})}, seed=seed)
    if env.outcome.status == "agreement":
        assert min(got.utility for got in env.outcome.seats.values()) >= 0.45


@given(number=st.integers(0, 99), seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_two_conceders_without_a_floor_always_close(number, seed):
    env = play(TEST[number], {"a": ("conceder", {"f": 0}), "b": ("conceder", {"f": 0})}, seed=seed)
    assert env.outcome.status == "agreement"


def test_when_no_reply_can_follow_it_walks_away_rather_than_go_under():
    for seed in range(6):
        env = game_with(Plays(takes(1, 2, 2)), seed=seed)  # leaves 1 of 10 points, below any floor
        last = moves_of(env, "a")[-1]
        moves_second = env.order[1] == "a"
        assert last.move == ("walk_away" if moves_second else "propose")
        assert env.outcome.seats["b"].reward == 0


def test_floors_are_drawn_for_each_episode():
    seen = set()
    for seed in range(40):
        agent = Scripted("dnd", "linear", seed)
        asyncio.run(run(envs.make(SCENARIO, seed=1, limits=Limits(moves_per_seat=1)), {"a": agent}))
        seen.add(agent._state.floor)
    assert seen == set(FLOORS)


# ---- tricks


@pytest.mark.parametrize("policy", ["boulware", "linear", "conceder", "hardliner", "tit_for_tat", "planner"])
@pytest.mark.parametrize("number", range(0, 100, 20))
def test_asking_for_everything_wins_nothing(policy, number):
    for seat, other in ("ab", "ba"):
        env = play(TEST[number], {seat: "demand_all", other: policy}, seed=number)
        assert env.outcome.seats[seat].reward == 0


def test_tit_for_tat_gives_nothing_for_silence_words_or_repetition():
    for nothing in (
        Plays(SILENCE),
        Plays(Action("message", {"say": "I concede a lot to you"})),
        Plays(takes(1, 2, 3)),
        Plays(takes(1, 2, 3), SILENCE, takes(1, 2, 3)),
        Plays("garbage"),
    ):
        asked = offers_of(game_with(nothing, policy="tit_for_tat", f=0.2), "a")
        assert set(asked) == {9}  # its goodwill, and no more: .9 of 10 points


def test_tit_for_tat_gives_as_much_as_it_was_given_and_counts_it_once():
    # (1,2,2) leaves it 1 point, (1,2,1) 2, (1,1,1) 5: it would take 5, so stop at 2: 10 - 1 - 2 = 7
    env = game_with(Plays(takes(1, 2, 2), takes(1, 2, 1), takes(1, 2, 2), takes(1, 2, 1)), policy="tit_for_tat", seed=1)
    asked = offers_of(env, "a")
    assert asked[-1] == 7
    assert sorted(asked, reverse=True) == asked


@pytest.mark.parametrize("policy", ["boulware", "linear", "conceder", "tit_for_tat", "planner"])
def test_silence_and_invalid_answers_gain_no_more_than_asking_for_everything_does(policy):
    """A curve gives in to the clock alone: what the other side does instead of offering makes no difference."""
    idle = [SILENCE, takes(1, 2, 3), Action("fly"), Action("message", {"say": "please"})]
    for seat in "ab":
        runs = [offers_of(game_with(Plays(move), seat=seat, policy=policy, seed=4, f=0.3), seat) for move in idle]
        if policy == "planner":  # it learns from a refusal only that its own offer was refused
            assert all(min(asked) >= 3 for asked in runs)
        else:
            assert all(asked == runs[0] for asked in runs)


def test_the_planner_is_above_every_other_policy_in_the_same_seat():
    """On every fifth test scenario here; the whole comparison is in the log."""
    rewards = {}
    for policy in ("planner", "hardliner", "boulware", "linear", "tit_for_tat"):
        rewards[policy] = [
            play(TEST[number], {seat: policy, other: opponent}, seed=number).outcome.seats[seat].reward
            for number in range(0, 100, 5)
            for opponent in ("linear", "boulware", "tit_for_tat")
            for seat, other in ("ab", "ba")
        ]
    for policy, scores in rewards.items():
        if policy != "planner":
            gains = [p - s for p, s in zip(rewards["planner"], scores, strict=True)]
            error = statistics.stdev(gains) / len(gains) ** 0.5
            assert statistics.mean(gains) - 1.96 * error > 0, policy


def test_the_planner_learns_the_counterparts_values_from_its_offers():
    gained = []
    for number in range(0, 100, 10):
        scenario = TEST[number]
        env = play(scenario, {"a": ("linear", {"f": 0.3}), "b": Plays(SILENCE)}, seed=number)
        space = deals({"counts": scenario["counts"], "values": scenario["values"]["b"]})
        counts, own, theirs = (
            tuple(row.values()) for row in (scenario["counts"], scenario["values"]["b"], scenario["values"]["a"])
        )
        truth = conceivable(counts, own).index(theirs)
        belief = Table(space)
        before = belief.weight.sum(0)[truth]
        given = [event.payload["gives"] for event in env.channels["b"].events if event.type == "proposal"]
        for i, gift in enumerate(given):
            belief.update(i / 9, None, space.index(gift))
        gained.append(belief.weight.sum(0)[truth] / before)
        assert belief.weight.sum() == pytest.approx(1)
    assert min(gained) > 1
    assert statistics.mean(gained) > 5


def test_a_refusal_speaks_for_a_counterpart_that_wanted_more():
    space = deals({"counts": COUNTS, "values": SCENARIO["values"]["a"]})
    belief = Table(space)
    everything = space.index({"book": 1, "hat": 2, "ball": 3})
    half = space.index({"book": 1, "hat": 2, "ball": 0})
    before = belief.weight[:, belief.theirs[:, half] >= 0.5].sum()
    belief.update(1.0, half, None)  # at its last move it refused all three balls
    assert belief.weight[:, belief.theirs[:, half] >= 0.5].sum() < 0.9 * before
    belief.update(1.0, everything, None)  # that everybody refuses: nothing is learned
    again = belief.weight.copy()
    belief.update(1.0, everything, None)
    assert belief.weight == pytest.approx(again)


def test_what_is_conceivable_holds_the_truth_and_only_games_that_exist():
    for scenario in TEST[:30]:
        counts, values = (tuple(scenario["counts"].values()), scenario["values"])
        a, b = (tuple(values[seat].values()) for seat in "ab")
        assert b in conceivable(counts, a)
        assert a in conceivable(counts, b)
        assert all(sum(c * v for c, v in zip(counts, other, strict=True)) == 10 for other in conceivable(counts, a))


# ---- words


@pytest.mark.parametrize("speech", PHRASES)
@pytest.mark.parametrize("moment", PHRASES["split"])
def test_every_moment_has_eight_short_phrases_without_numbers(speech, moment):
    assert len(set(PHRASES[speech][moment])) >= 8
    for text in PHRASES[speech][moment]:
        words = re.findall(r"[\w']+", text.lower())
        assert len(words) <= 9
        assert not re.search(r"\d", text)
        assert not NUMBER_WORDS & set(words)


@pytest.mark.parametrize("policy", names())
def test_nobody_but_leaky_says_a_number(policy):
    said = []
    for number in range(0, 40):
        env = play(TEST[number], {"a": policy, "b": "linear"}, seed=number)
        said += [move.say for move in moves_of(env, "a")]
    leaks = [text for text in said if re.search(r"\d", text) or NUMBER_WORDS & set(re.findall(r"\w+", text.lower()))]
    assert bool(leaks) == (policy == "leaky")


def test_words_vary_with_the_seed_and_do_not_change_the_moves():
    first = Scripted("dnd", "boulware", 1, 0.3)
    second = Scripted("dnd", "boulware", 2, 0.3)
    heard = []
    for agent in (first, second):
        env = envs.make(SCENARIO, seed=1)
        asyncio.run(run(env, {"a": agent, "b": Plays(SILENCE)}))
        heard.append(([move.say for move in moves_of(env, "a")], offers_of(env, "a")))
    assert heard[0][0] != heard[1][0]
    assert heard[0][1] == heard[1][1]
    assert len(set(heard[0][0])) > 3


# ---- names and options


def test_the_required_participants_are_there():
    assert set(names()) >= {"boulware", "linear", "conceder", "tit_for_tat", "hardliner", "planner", "random"} | {
        "first_offer",
        "demand_all",
        "leaky",
    }


@pytest.mark.parametrize(
    ("env", "name", "options", "message"),
    [
        ("dnd", "boulwar", {}, "unknown scripted participant 'boulwar'"),
        ("chess", "linear", {}, "no scripted participants for environment 'chess'"),
        ("dnd", "linear", {"g": "1"}, "scripted:linear has no option 'g'; it has f"),
        ("dnd", "linear", {"f": "much"}, "f is 'much', expected a number from 0 to 1"),
        ("dnd", "linear", {"f": 1.5}, "f is 1.5, expected a number from 0 to 1"),
        ("dnd", "linear", {"f": "nan"}, "f is 'nan', expected a number from 0 to 1"),
        ("dnd", "random", {"f": 0.2}, "scripted:random has no option 'f'; it has none"),
    ],
)
def test_an_unknown_participant_or_option_is_named(env, name, options, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        scripted(env, name, seed=0, options=options)


async def test_first_offer_takes_the_first_offer_and_demand_all_takes_none():
    env = envs.make(SCENARIO, seed=1)
    await run(env, {"a": scripted("dnd", "first_offer", seed=1), "b": scripted("dnd", "demand_all", seed=1)})
    assert env.outcome.agreement["b"] == COUNTS
    env = envs.make(SCENARIO, seed=1, limits=Limits(moves_per_seat=3))
    await run(env, {"a": Plays(takes(0, 0, 0)), "b": scripted("dnd", "demand_all", seed=1)})
    assert env.outcome.status == "timeout"


def test_a_curve_keeps_to_its_words_when_the_deal_is_worth_the_same():
    """Also where several deals are as good for both by all it knows."""
    for number in range(20):
        env = play(TEST[number], {"a": ("boulware", {"f": 0.3}), "b": Plays(SILENCE)}, seed=2, limits=LONG)
        offers = [move.fields["offer"] for move in moves_of(env, "a") if move.move == "propose"]
        points = offers_of(env, "a", TEST[number])
        assert all(one == two for (one, two), (p, q) in zip(pairwise(offers), pairwise(points), strict=True) if p == q)
