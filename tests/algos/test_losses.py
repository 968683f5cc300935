from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algos import losses


def t(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_the_policy_loss_is_clipped_on_the_side_that_gains() -> None:
    # ρ = 1.5, ε = .2: A = +1 → −min(1.5, 1.2) = −1.2; A = −1 → −min(−1.5, −1.2) = 1.5
    loss = losses.clipped_policy(t(math.log(1.5), math.log(1.5)), t(0, 0), t(1, -1), 0.2)
    assert loss.tolist() == pytest.approx([-1.2, 1.5])


def test_a_clipped_token_has_no_gradient() -> None:
    logprobs = t(math.log(1.5), math.log(1.5), 0.0).requires_grad_()
    losses.clipped_policy(logprobs, t(0, 0, 0), t(1, -1, 1), 0.2).sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([0.0, 1.5, -1.0])  # −A·ρ where it is not clipped


def test_the_reference_penalty_of_the_worked_example() -> None:
    # u = −.5: e^−.5 + .5 − 1 = .106531
    assert losses.reference_penalty(t(0.5), t(0.0)).item() == pytest.approx(0.106531, abs=1e-6)


@given(st.floats(-5, 5), st.floats(-5, 5))
def test_the_reference_penalty_is_never_negative(logprob: float, reference: float) -> None:
    assert losses.reference_penalty(t(logprob), t(reference)).item() >= -1e-12


def test_the_value_loss_of_the_worked_example() -> None:
    # V̄ .5, V .9, Ĝ 1: ½·max(.01, (.7 − 1)²) = ½·.09 = .045
    assert losses.clipped_value(t(0.9), t(0.5), t(1.0), 0.2).item() == pytest.approx(0.045)
    assert losses.squared_error(t(0.9), t(1.0)).item() == pytest.approx(0.005)


def test_importance_weights_stop_at_the_cap() -> None:
    assert losses.importance_weights(t(math.log(3), math.log(0.5)), t(0, 0)).tolist() == pytest.approx([2.0, 0.5])


def test_token_and_dialogue_means() -> None:
    # dialogue 0 has one token of loss 6, dialogue 1 three of loss 2: mean over tokens 3, over dialogues 4
    episodes, loss = np.array([0, 1, 1, 1]), np.array([6.0, 2.0, 2.0, 2.0])
    assert (losses.token_weights(episodes, "token") * loss).sum() == pytest.approx(3.0)
    assert (losses.token_weights(episodes, "dialogue") * loss).sum() == pytest.approx(4.0)
    with pytest.raises(ValueError, match="aggregation"):
        losses.token_weights(episodes, "mean")


def test_advantages_are_normalised_with_the_population_deviation() -> None:
    # (1, 3): mean 2, population sd 1 (the sample's would be √2)
    assert losses.normalised(np.array([1.0, 3.0])) == pytest.approx([-1.0, 1.0], abs=1e-7)
    assert losses.normalised(np.array([2.0, 2.0])) == pytest.approx([0.0, 0.0])


def test_explained_variance_of_a_perfect_a_constant_and_a_wrong_critic() -> None:
    to_go = np.array([0.0, 1.0, 0.5, 1.0])
    assert losses.explained_variance(to_go + 3, to_go) == pytest.approx(1.0)  # an offset is not variance
    assert losses.explained_variance(np.full(4, 0.7), to_go) == pytest.approx(0.0)
    assert losses.explained_variance(-to_go, to_go) == pytest.approx(-3.0)  # Var(2G)/Var(G) = 4
    assert losses.explained_variance(np.array([1.0, 2.0]), np.array([0.5, 0.5])) == 0.0


def test_a_noise_critic_explains_nothing_of_the_reward_to_go() -> None:
    # against λ-returns the same critic would look good, because they contain its own values
    from algos.gae import advantages_and_returns, rewards_to_go

    rng = np.random.default_rng(0)
    starts = np.arange(0, 2001, 20)
    rewards = np.zeros(2000)
    rewards[starts[1:] - 1] = rng.random(100)
    noise = rng.normal(size=100).repeat(20)  # one random number an episode
    _, return_ = advantages_and_returns(rewards, noise, starts, lam=0.8)
    assert losses.explained_variance(noise, return_) > 0.3
    assert losses.explained_variance(noise, rewards_to_go(rewards, starts)) < 0


def test_approximate_kl_and_clip_fraction() -> None:
    # ρ = 1.5: .5 − ln 1.5 = .094535; |ρ − 1| > .2. ρ = 1.1: not clipped
    logprobs = t(math.log(1.5), math.log(1.1))
    assert losses.approx_kl(logprobs, t(0, 0)).tolist() == pytest.approx([0.5 - math.log(1.5), 0.1 - math.log(1.1)])
    assert losses.clipped(logprobs, t(0, 0), 0.2).tolist() == [True, False]
