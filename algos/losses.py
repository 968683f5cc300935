"""The losses of the policy-gradient family, as pure functions of per-token tensors (K,).

Each returns one number a token; `token_weights` says how tokens are averaged, so that a mini-batch's loss is
`(weights * loss).sum()` however it is cut into micro-batches. Log-probabilities and divergences are in nats.
`reward` is what the environment paid, `return_` what the critic regresses, `advantage` what the loss multiplies.
Sources: PPO (arXiv 1707.06347) for the clipped losses; the penalty is the k3 estimate of KL(π_θ ‖ π_ref).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

AGGREGATIONS = ("token", "dialogue")


def clipped_policy(logprobs: Tensor, old: Tensor, advantage: Tensor, clip: float = 0.2) -> Tensor:
    """−min(ρA, clip(ρ, 1−ε, 1+ε)A) with ρ = π_θ/π_old, (K,)."""
    ratio = torch.exp(logprobs - old)
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)


def reference_penalty(logprobs: Tensor, reference: Tensor) -> Tensor:
    """e^u − u − 1 with u = log π_ref − log π_θ, (K,); never negative. Its weight η belongs to the loss."""
    u = reference - logprobs
    return torch.exp(u) - u - 1


def clipped_value(values: Tensor, old_values: Tensor, return_: Tensor, clip: float = 0.2) -> Tensor:
    """½·max[(V−Ĝ)², (V̄ + clip(V−V̄, ±ε_V) − Ĝ)²], (K,)."""
    near = old_values + (values - old_values).clamp(-clip, clip)
    return 0.5 * torch.maximum((values - return_).square(), (near - return_).square())


def squared_error(values: Tensor, return_: Tensor) -> Tensor:
    """½·(V−Ĝ)², (K,): the critic's warm-up, where its old values are nothing to stay close to."""
    return 0.5 * (values - return_).square()


def importance_weights(old: Tensor, behaviour: Tensor, cap: float = 2.0) -> Tensor:
    """min(π_θold/π_behaviour, cap), (K,): corrects for rows that an older policy sampled."""
    return torch.exp(old - behaviour).clamp(max=cap)


def token_weights(episodes: np.ndarray, aggregation: str) -> np.ndarray:
    """How much each token of a mini-batch counts, (K,) float64 that sums to 1.

    `token`: the same for every actor token. `dialogue`: the same for every dialogue, shared among its tokens.
    """
    if aggregation == "token":
        return np.full(len(episodes), 1.0 / max(len(episodes), 1))
    if aggregation == "dialogue":
        names, index, counts = np.unique(episodes, return_inverse=True, return_counts=True)
        return 1.0 / (len(names) * counts[index])
    raise ValueError(f"aggregation: got {aggregation!r}, expected one of {AGGREGATIONS}")


def normalised(advantage: np.ndarray) -> np.ndarray:
    """(A − mean)/(population sd + 1e-8) over all actor tokens of the rollout batch, (K,)."""
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)


def explained_variance(values: np.ndarray, to_go: np.ndarray) -> float:
    """1 − Var(G − V̄)/Var(G), G the undiscounted reward-to-go; 0 where every G is the same."""
    variance = np.var(to_go)
    return float(1 - np.var(to_go - values) / variance) if variance > 0 else 0.0


def approx_kl(logprobs: Tensor, old: Tensor) -> Tensor:
    """(ρ − 1) − log ρ, (K,): an estimate of KL(π_old ‖ π_θ) from tokens of π_old, never negative."""
    log_ratio = logprobs - old
    return torch.expm1(log_ratio) - log_ratio


def clipped(logprobs: Tensor, old: Tensor, clip: float = 0.2) -> Tensor:
    """Whether the ratio lies outside 1 ± ε, (K,) bool."""
    return (torch.exp(logprobs - old) - 1).abs() > clip


RATIOS = (0.5, 0.8, 1.25, 2.0)  # where the bins of `ratio_bins` meet


def ratio_bins(logprobs: Tensor, old: Tensor) -> dict[str, Tensor]:
    """Which of five ranges a token's ρ lies in, from far below 1 to far above, (K,) each: 1 in one, 0 in the others."""
    ratio = torch.exp(logprobs - old)
    which = torch.bucketize(ratio, torch.tensor(RATIOS, device=ratio.device))
    names = [f"<{RATIOS[0]}", *(f"{a}-{b}" for a, b in pairwise(RATIOS)), f">{RATIOS[-1]}"]
    return {f"ratio/{name}": (which == n).float() for n, name in enumerate(names)}
