from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algos.gae import advantages_and_returns, rewards_to_go

numbers = st.lists(st.tuples(st.floats(-2, 2), st.floats(-2, 2)), min_size=1, max_size=12)


def plain_gae(rewards: list[float], values: list[float], gamma: float, lam: float) -> list[float]:
    """The definition, term by term: Â_k = Σ_l (γλ)^l δ_{k+l}."""
    n = len(rewards)
    delta = [rewards[k] + gamma * (values[k + 1] if k + 1 < n else 0.0) - values[k] for k in range(n)]
    return [sum((gamma * lam) ** (j - k) * delta[j] for j in range(k, n)) for k in range(n)]


def test_the_worked_example() -> None:
    # δ_3 = .65 − .6 = .05; δ_2 = .10 + .6 − .5 = .2; δ_1 = .25 + .5 − .4 = .35
    # Â_3 = .05; Â_2 = .2 + .95·.05 = .2475; Â_1 = .35 + .95·.2475 = .585125; Ĝ = Â + V̄
    advantage, return_ = advantages_and_returns(
        np.array([0.25, 0.10, 0.65]), np.array([0.4, 0.5, 0.6]), np.array([0, 3]), lam=0.95
    )
    assert advantage == pytest.approx([0.585125, 0.2475, 0.05], abs=1e-12)
    assert return_ == pytest.approx([0.985125, 0.7475, 0.65], abs=1e-12)


def test_an_episode_ends_where_it_ends() -> None:
    # two episodes end to end: the first one's last token must not see the second one's value
    rewards, values = np.array([0.0, 1.0, 0.0, 2.0]), np.array([0.3, 0.4, 9.0, 9.0])
    both, _ = advantages_and_returns(rewards, values, np.array([0, 2, 4]))
    alone, _ = advantages_and_returns(rewards[:2], values[:2], np.array([0, 2]))
    assert both[:2] == pytest.approx(alone, abs=0)
    assert both[1] == pytest.approx(1.0 - 0.4)


def test_lambda_one_targets_are_the_reward_to_go() -> None:
    rewards, values, starts = np.array([0.0, 0.0, 0.8, 0.2]), np.array([5.0, -3.0, 1.0, 7.0]), np.array([0, 3, 4])
    _, return_ = advantages_and_returns(rewards, values, starts, lam=1.0)
    assert return_ == pytest.approx([0.8, 0.8, 0.8, 0.2])
    assert rewards_to_go(rewards, starts) == pytest.approx([0.8, 0.8, 0.8, 0.2])


@given(st.lists(numbers, min_size=1, max_size=5), st.floats(0.5, 1), st.floats(0, 1))
def test_side_by_side_equals_one_after_the_other(
    episodes: list[list[tuple[float, float]]], gamma: float, lam: float
) -> None:
    rewards = [[r for r, _ in e] for e in episodes]
    values = [[v for _, v in e] for e in episodes]
    starts = np.cumsum([0, *map(len, episodes)])
    flat = (np.concatenate([np.array(x) for x in xs]) for xs in (rewards, values))
    advantage, return_ = advantages_and_returns(*flat, starts, gamma=gamma, lam=lam)
    expected = [a for r, v in zip(rewards, values, strict=True) for a in plain_gae(r, v, gamma, lam)]
    assert advantage == pytest.approx(expected, abs=1e-9)
    assert return_ - advantage == pytest.approx(np.concatenate([np.array(v) for v in values]), abs=1e-9)
