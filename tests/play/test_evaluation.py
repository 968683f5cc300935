"""Plans, summaries and paired differences."""

import math

import pytest

from scenarios.core import packaged
from scenarios.errors import DataError, UsageError
from socialrl_cli.evaluation import GameResult, difference, plan, read_results, summary, write_results

SEATS = ("a", "b")


def result(policy="scripted:linear", scenario="s1", opponent="scripted:boulware", reward=0.5, **changes):
    fields = {
        "env": "dnd", "scenario_id": scenario, "opponent": opponent, "seat": "a", "trial": 0, "repeat": 0,
        "policy": policy, "reward": reward, "utility": reward, "outcome": "agreement", "status": "finished",
        "decisions": 4, "invalid": 1, "episode_id": f"{policy}-{scenario}-{opponent}",
    }  # fmt: skip
    return GameResult(**{**fields, **changes})


def test_the_protocol_has_a_game_for_each_scenario_opponent_and_trial():
    games = plan(packaged("dnd", "test")[:10], "p", ["x", "y", "z"], seats=SEATS, trials=5)
    assert len(games) == 150
    assert len({game.episode_id for game in games}) == 150
    assert {game.seat for game in games} == set(SEATS)


def test_both_seats_double_the_games():
    assert len(plan(packaged("dnd", "test")[:10], "p", ["x"], seats=SEATS, both_seats=True)) == 20


def test_a_policy_takes_all_seats_of_a_team_and_the_teams_take_turns():
    scenarios = packaged("werewolf", "test")[:8]
    held = {}
    for game in plan(scenarios, "p", ["x"], seats=("p1",), team=True, trials=2):
        roles = game.scenario["roles"]
        mine = {seat for seat in roles if game.who(seat) == "p"}
        assert {game.who(seat) for seat in set(roles) - mine} == {"x"}
        assert mine in ({s for s in roles if roles[s] == "wolf"}, {s for s in roles if roles[s] != "wolf"})
        held.setdefault(game.scenario.id, set()).add(roles[game.seat] == "wolf")
    assert all(sides == {True, False} for sides in held.values())
    assert len(held) == 8
    with pytest.raises(UsageError, match="dnd has none"):
        plan(packaged("dnd", "test")[:1], "p", ["x"], seats=SEATS, team=True)


def test_a_seat_of_a_large_table_alternates_over_those_that_are_there():
    games = plan(packaged("werewolf", "test")[:40], "p", ["x"], seats=[f"p{n}" for n in range(1, 9)])
    assert all(game.seat in game.scenario["roles"] for game in games)
    assert {game.seat for game in games} == {f"p{n}" for n in range(1, 9)}
    assert all([game.who(seat) for seat in game.scenario["roles"]].count("p") == 1 for game in games)


def test_a_game_has_the_same_seed_whoever_plays_it_and_in_any_order():
    few = plan(packaged("dnd", "test")[:3], "p", ["x", "y"], seats=SEATS, both_seats=True, seed=7)
    other = plan(packaged("dnd", "test")[:3][::-1], "q", ["y", "x"], seats=SEATS, both_seats=True, seed=7)
    seeds = {(g.scenario.id, g.opponent, g.seat): g.seed for g in few}
    assert seeds == {(g.scenario.id, g.opponent, g.seat): g.seed for g in other}
    assert len(set(seeds.values())) == len(few)
    assert not {g.episode_id for g in few} & {g.episode_id for g in other}


def test_a_summary_counts_failed_games_as_zero_and_shows_them_apart():
    found = summary([result(reward=1.0), result(scenario="s2", reward=0.0, status="failed", outcome="aborted")])
    assert found["mean"] == 0.5
    assert found["failed"] == 1
    assert found["agreement"] == 0.5
    assert found["invalid"] == 0.25  # 2 of 8 decisions
    assert found["by_opponent"]["scripted:boulware"]["games"] == 2
    assert found["low"] <= found["mean"] <= found["high"]


def test_the_standard_deviation_is_over_repeats():
    found = summary([result(repeat=0, reward=0.2), result(repeat=1, reward=0.6)])
    assert found["sd"] == pytest.approx(0.2 * math.sqrt(2))  # of .2 and .6, sample


def test_a_difference_is_paired_by_game():
    before = [result("a", scenario=f"s{n}", reward=n / 10) for n in range(10)]
    after = [result("b", scenario=f"s{n}", reward=n / 10 + 0.05) for n in reversed(range(10))]
    found = difference(before, after)
    assert found["mean"] == pytest.approx(0.05)
    assert found["low"] == pytest.approx(0.05)  # each pair differs by the same
    assert found["games"] == 10


def test_results_come_back_as_they_were_written(tmp_path):
    results = [result(), result("model:x", error="no\nanswer", status="failed")]
    write_results(tmp_path / "games.jsonl", results)
    assert read_results(tmp_path / "games.jsonl") == results
    (tmp_path / "games.jsonl").write_text("{}\n")
    with pytest.raises(DataError, match=r"games\.jsonl:1"):
        read_results(tmp_path / "games.jsonl")
