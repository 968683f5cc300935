"""The difficulty-aware reward curve.

    r(z; m) = (σ((z − m)/T) − σ(−m/T)) / (σ((1 − m)/T) − σ(−m/T)),    T = 0.2

z is the utility of the outcome in [0, 1], m the scenario's reference for the seat, σ the logistic function.
r(0) = 0, r(1) = 1, strictly increasing in z, steepest at z = m. Source: SocialRL (arXiv 2608.13787), §3-4.
"""

from __future__ import annotations

from math import exp

TEMPERATURE = 0.2


def curve(z: float, m: float) -> float:
    """The reward of utility `z` against the reference `m`, both in [0, 1]."""
    if not 0.0 <= z <= 1.0 or not 0.0 <= m <= 1.0:
        raise ValueError(f"utility and reference must lie in [0, 1], got z={z}, m={m}")
    lowest = _sigmoid(-m / TEMPERATURE)
    highest = _sigmoid((1.0 - m) / TEMPERATURE)
    return (_sigmoid((z - m) / TEMPERATURE) - lowest) / (highest - lowest)


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + exp(-x))
