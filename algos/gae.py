"""Generalised advantage estimation over an episode's own tokens, in order, across segments.

For the actor tokens k = 1…K of one episode, with the cached values V̄_k (read at the position that predicts token k)
and V̄_{K+1} = 0:

    δ_k = r_k + γ·V̄_{k+1} − V̄_k        Â_k = Σ_l (γλ)^l δ_{k+l}        Ĝ_k = Â_k + V̄_k

Counterparts, prompts and probes are not in these arrays at all, so nothing decays across them. The episodes of a batch
lie end to end: episode e owns `starts[e]:starts[e + 1]`. Sources: SocialRL §5 (γ = 1), PaCPO §4 (λ = .95).
"""

from __future__ import annotations

import numpy as np


def advantages_and_returns(
    rewards: np.ndarray, values: np.ndarray, starts: np.ndarray, *, gamma: float = 1.0, lam: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """Â (K,) and the critic's targets Ĝ (K,), both float64, before any normalisation."""
    rewards, values = np.asarray(rewards, np.float64), np.asarray(values, np.float64)
    following = np.zeros_like(values)
    following[:-1] = values[1:]
    following[np.asarray(starts[1:]) - 1] = 0.0  # an episode's last token is followed by nothing
    deltas = rewards + gamma * following - values
    advantages = _discounted_sums(deltas, starts, gamma * lam)
    return advantages, advantages + values


def rewards_to_go(rewards: np.ndarray, starts: np.ndarray, *, gamma: float = 1.0) -> np.ndarray:
    """Σ_{l ≥ 0} γ^l r_{k+l} within the episode, (K,): what a perfect critic would have known on average."""
    return _discounted_sums(np.asarray(rewards, np.float64), starts, gamma)


def _discounted_sums(x: np.ndarray, starts: np.ndarray, factor: float) -> np.ndarray:
    """y_k = x_k + factor·y_{k+1} within each episode; all episodes are walked backwards side by side."""
    lengths = np.diff(starts)
    padded = np.zeros((int(lengths.max(initial=0)), len(lengths)))  # (longest, E)
    step, episode = _places(lengths)
    padded[step, episode] = x
    for k in range(len(padded) - 2, -1, -1):
        padded[k] += factor * padded[k + 1]
    return padded[step, episode]


def _places(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each of the K tokens: its number within its episode, and its episode."""
    episode = np.repeat(np.arange(len(lengths)), lengths)
    return np.arange(len(episode)) - np.repeat(np.cumsum(lengths) - lengths, lengths), episode
