"""Means, spreads and intervals, against hand numbers and the textbook."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from socialrl_cli.report import stats
from socialrl_cli.report.stats import Interval, interval, mean, paired_interval, sample_sd, wins


def test_mean_and_sample_sd_of_hand_numbers() -> None:
    assert mean([1.0, 2.0, 6.0]) == 3.0
    assert sample_sd([1.0, 2.0, 6.0]) == math.sqrt(7)  # (4 + 1 + 9) / 2
    assert mean([True, False]) == 0.5
    assert math.isnan(mean([]))
    assert math.isnan(sample_sd([1.0]))


def test_an_interval_of_many_games_is_close_to_the_normal_one() -> None:
    draw = random.Random(3)
    values = [draw.gauss(0.5, 0.2) for _ in range(800)]
    found = interval(values, seed=1)
    half = 1.96 * sample_sd(values) / math.sqrt(800)
    assert found.mean == mean(values)
    assert found.low == pytest.approx(found.mean - half, abs=0.001)
    assert found.high == pytest.approx(found.mean + half, abs=0.001)


def test_the_bootstrap_equals_the_plain_loop() -> None:
    values, draws = [0.0, 0.2, 0.9, 1.0], 50
    picked = np.random.default_rng(7).integers(0, 4, size=(draws, 4))
    means = sorted(sum(values[i] for i in row) / 4 for row in picked.tolist())
    low, high = np.quantile(means, [0.05, 0.95])
    found = interval(values, seed=7, level=0.9, draws=draws)
    assert (found.mean, found.low, found.high) == pytest.approx((mean(values), low, high))


def test_the_same_seed_gives_the_same_interval_and_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [number / 50 for number in range(50)]
    whole = interval(values, seed=4, draws=500)
    assert interval(values, seed=4, draws=500) == whole
    assert interval(values, seed=5, draws=500) != whole
    monkeypatch.setattr(stats, "CHUNK", 999)
    assert interval(values, seed=4, draws=500) == whole


def test_pairing_cancels_what_the_games_share() -> None:
    draw = random.Random(1)
    luck = {game: draw.random() for game in range(200)}
    b = {game: value + 0.1 for game, value in luck.items()}
    found = paired_interval(luck, b)
    assert (found.mean, found.low, found.high) == pytest.approx((0.1, 0.1, 0.1))
    unpaired = interval(list(b.values()))
    assert unpaired.high - unpaired.low > 0.05


def test_only_games_that_both_have_played_are_compared() -> None:
    found = paired_interval({"x": 0.0, "y": 1.0}, {"y": 0.5, "z": 1.0})
    assert found == Interval(-0.5, -0.5, -0.5, 1)
    assert paired_interval({"x": 0.0}, {"y": 0.0}).n == 0
    assert math.isnan(paired_interval({"x": 0.0}, {"y": 0.0}).mean)
    assert wins({"x": 0.0, "y": 1.0, "w": 1}, {"x": 0.5, "y": 1.0, "w": 0, "z": 1}) == {
        "wins": 1,
        "losses": 1,
        "ties": 1,
    }


def test_games_that_repeat_a_scenario_count_once_when_clustered() -> None:
    # ten copies of each scenario's value say no more than one copy
    draw = random.Random(2)
    scenarios = [draw.random() for _ in range(30)]
    copies = [value for value in scenarios for _ in range(10)]
    names = [number for number in range(30) for _ in range(10)]
    once, clustered, naive = interval(scenarios), interval(copies, clusters=names), interval(copies)
    assert (clustered.low, clustered.high) == pytest.approx((once.low, once.high))
    assert naive.high - naive.low < 0.5 * (clustered.high - clustered.low)
    keyed = {(number, trial): copies[number * 10 + trial] for number in range(30) for trial in range(10)}
    zero = dict.fromkeys(keyed, 0.0)
    assert paired_interval(zero, keyed, cluster=lambda key: key[0]) == clustered


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.integers(0, 5))
def test_an_interval_lies_within_the_values(values: list[float], seed: int) -> None:
    found = interval(values, seed=seed, draws=400)
    assert min(values) - 1e-12 <= found.low <= found.high <= max(values) + 1e-12
