"""Scripted players of werewolf: what they follow, whom they spare, and that nobody gives itself away."""

import asyncio
import random
import re
from collections import Counter

import pytest

import envs
from envs.agents.phrases_werewolf import WEREWOLF
from envs.agents.scripted import baselines, names, opponents, scripted
from envs.agents.werewolf import Known, by_danger, by_evidence, by_the_crowd
from envs.core import derive_seed, run
from scenarios.core import packaged
from scenarios.errors import UsageError

TEST = packaged("werewolf", "test")
PLAYERS = names("werewolf")


def play(number, villagers, wolves, seed=0):
    env = envs.make(TEST[number % 100], seed=seed)
    agents = {
        seat: scripted("werewolf", wolves if role == "wolf" else villagers, seed=derive_seed(seed, seat))
        for seat, role in TEST[number % 100]["roles"].items()
    }
    asyncio.run(run(env, agents))
    return env


def wins(villagers, wolves, games=100):
    """The share of games that the villagers win."""
    ends = [play(number, villagers, wolves, seed=number).outcome for number in range(games)]
    return sum(end.agreement == {"winner": "villagers"} for end in ends) / games


def known(**facts):
    turn = {"players": ("Me", "Ada", "Ben", "Cleo")}
    return Known("Me", "villager", **{"wolves": (), "rng": random.Random(0), "turn": turn, **facts})


def test_the_crowd_counts_each_accuser_once_and_only_today():
    heard = known(accused=[[("Ben", "Cleo"), ("Me", "Cleo")], [("Ben", "Ada"), ("Ben", "Ada"), ("Cleo", "Ada")]])
    assert [by_the_crowd(heard, player) for player in ("Ada", "Ben", "Cleo")] == [2, 0, 0]


def test_a_sleuth_suspects_by_what_has_come_out():
    # Ada voted for Dov, who was no wolf: + 0.5. Ben voted for Eva, a wolf: - 1, and accused her: - 0.5
    heard = known(
        shown={"Dov": "villager", "Eva": "wolf"},
        ballots=[{"Ada": "Dov", "Ben": "Eva", "Cleo": None}],
        accused=[[("Ben", "Eva")], []],
    )
    assert [by_evidence(heard, player) for player in ("Ada", "Ben", "Cleo")] == [0.5, -1.5, 0]
    # Ben, who was right once, accuses Cleo: 0.5 + 1; Ada, who never was, accuses Ben: 0.5
    heard.accused[-1] += [("Ben", "Cleo"), ("Ada", "Ben")]
    assert [by_evidence(heard, player) for player in ("Ada", "Ben", "Cleo")] == [0.5, -1, 1.5]
    # Finn, killed by night, had accused Ada: + 0.5
    heard.killed.append("Finn")
    heard.accused[0].append(("Finn", "Ada"))
    assert by_evidence(heard, "Ada") == 1


def test_a_seer_knows_better_than_any_evidence():
    heard = known(seen={"Ada": False, "Ben": True}, accused=[[("Cleo", "Ada"), ("Ben", "Ada")]])
    assert by_evidence(heard, "Ada") < by_evidence(heard, "Cleo") < by_evidence(heard, "Ben")


def test_a_wolf_fears_those_who_accused_or_voted_for_wolves():
    heard = known(wolves=("Dov",), accused=[[("Ada", "Dov"), ("Ben", "Cleo")]], ballots=[{"Ada": "Me", "Ben": "Cleo"}])
    assert [by_danger(heard, player) for player in ("Ada", "Ben")] == [1.5, 0]


def test_a_seer_accuses_a_wolf_it_has_seen():
    caught = 0
    for number in range(100):
        env = play(number, "sleuth", "sleuth", seed=number)
        for at, event in enumerate(event for _, event in env.journal):
            if event.type != "seen" or not event.payload["wolf"]:
                continue
            accused = [later.payload["player"] for _, later in env.journal[at:]
                       if later.type == "accuse" and later.payload["by"] == event.payload["by"]]  # fmt: skip
            assert accused[:1] in ([], [event.payload["player"]])  # none: the seer was killed in the same night
            caught += bool(accused)
    assert caught > 10


@pytest.mark.parametrize("policy", ["sleuth", "crowd"])
def test_wolves_spare_each_other_by_day_and_agree_by_night(policy):
    nights = 0
    for number in range(60):
        env = play(number, "sleuth", policy, seed=number)
        wolves = {env.names[seat] for seat, role in env.roles.items() if role == "wolf"}
        for _, event in env.journal:
            payload = event.payload
            if event.type == "accuse" and payload["name"] in wolves:
                assert payload["player"] not in wolves
            if event.type == "votes":
                assert not wolves & {whom for who, whom in payload["votes"].items() if who in wolves}
            if event.type == "attacks":
                nights += 1
                assert len(set(payload["votes"].values())) == 1
                assert None not in payload["votes"].values()
    assert nights > 60


def test_no_policy_gives_its_role_away():
    """Wolves and villagers draw on the same sentences in public, and no sentence speaks of its speaker's role."""
    said = {"wolf": Counter(), "villager": Counter(), "seer": Counter()}
    for number in range(100):
        env = play(number, *(("sleuth", "crowd", "random")[(number + i) % 3] for i in (0, 1)), seed=number)
        for _, event in env.journal:
            if event.type in ("message", "accuse") and event.payload["say"]:
                player = event.payload.get("player", "nobody")
                said[env.roles[event.payload["by"]]][event.payload["say"].replace(player, "{player}")] += 1
    public = {text for moment in ("ask", "accuse", "join", "defend") for text in WEREWOLF[moment]}
    assert set(said["wolf"]) <= public
    assert len(set(said["wolf"])) > 25
    assert not [text for text in public if re.search(r"\b(I am|I'm|we are) (a |the |an )?(wol|seer|villager)", text)]


@pytest.mark.parametrize("moment", WEREWOLF)
def test_every_moment_has_eight_short_phrases(moment):
    phrases = WEREWOLF[moment]
    assert len(set(phrases)) >= 8
    assert {"{player}" in text for text in phrases} == {moment in ("accuse", "join", "plan", "follow")}
    assert all(len(text.split()) <= 8 for text in phrases)


def test_thinking_wins_more_than_following_and_both_more_than_passing():
    # means over the wolves sleuth, crowd and random; 100 games each
    thinking, following, guessing, passing = (
        sum(wins(villagers, wolves) for wolves in ("sleuth", "crowd", "random")) / 3
        for villagers in ("sleuth", "crowd", "random", "silent")
    )
    assert min(thinking, following) > guessing + 0.1
    assert guessing > passing + 0.05
    assert passing < 0.02
    assert wins("sleuth", "sleuth") > wins("crowd", "sleuth")


def test_the_names_of_a_party_are_its_own():
    assert {"sleuth", "crowd", "random", "silent"} == set(PLAYERS)
    assert set(opponents("werewolf")) | set(baselines("werewolf")) <= set(PLAYERS)
    with pytest.raises(UsageError, match=r"unknown scripted participant 'linear'; known: crowd, random"):
        scripted("werewolf", "linear", seed=0)
    with pytest.raises(UsageError, match="scripted:sleuth has no option 'f'; it has none"):
        scripted("werewolf", "sleuth", seed=0, options={"f": "0.2"})
    with pytest.raises(UsageError, match="unknown scripted participant 'sleuth'"):
        scripted("dnd", "sleuth", seed=0)
