"""What a step looked like and cost: rewards by opponent, staleness, memory."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from algos.rows import ActorTokens, Row


def memory_mb(field: str = "VmHWM") -> float:
    """MB that this process holds now (`VmRSS`) or held at most (`VmHWM`); on a GPU, what torch held there."""
    if torch.cuda.is_available():
        value = torch.cuda.max_memory_allocated() if field == "VmHWM" else torch.cuda.memory_allocated()
        return value / 1e6
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            return next(int(line.split()[1]) * 1024 / 1e6 for line in status if line.startswith(field))
    except OSError:  # not Linux: the peak is all there is, in bytes on macOS
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def reset_peak() -> None:
    """Let the peak start again from what is held now, where the system can."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(OSError):  # else the peak goes on from where it was
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def reward_metrics(rows: Sequence[Row]) -> dict[str, float]:
    """Mean and spread (population sd) of the episodes' rewards: all, and by environment and opponent."""
    rewards: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
    for row in rows:
        rewards.setdefault((row.env, row.opponent), {})[row.episode] = row.reward
    every = [reward for group in rewards.values() for reward in group.values()]
    if not every:
        return {"episodes": 0}
    out = {"episodes": len(every), "reward_mean": float(np.mean(every)), "reward_sd": float(np.std(every))}
    for (env, opponent), group in sorted(rewards.items()):
        out[f"reward_mean/{env}/{opponent}"] = float(np.mean(list(group.values())))
        out[f"reward_sd/{env}/{opponent}"] = float(np.std(list(group.values())))
    return out


def staleness_metrics(batch: ActorTokens, policy_version: int) -> dict[str, Any]:
    """How many policy versions lie between the trainer and each row's oldest token: mean, most, and rows by age."""
    ages = [policy_version - row.policy_version for row in batch.rows]
    if not ages:
        return {}
    by_age = {f"staleness/{age}": ages.count(age) for age in sorted(set(ages))}
    return {"staleness_mean": float(np.mean(ages)), "staleness_max": int(np.max(ages)), **by_age}


def mean_of(sums: Mapping[str, torch.Tensor | float], count: int) -> dict[str, float]:
    return {name: float(value) / max(count, 1) for name, value in sums.items()}
