"""What a training loop is given: `play` brings rows, `publish` hands weights on, `run` keeps what comes of it.

Of several trainer processes the first one plays, publishes and owns the run; it is asked, and tells the others. What
the others are given as `publish` and `run` does nothing.

So `algos` knows neither environments nor engines nor commands. Step numbers count finished steps from 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from algos.rows import Row


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one step and what its games looked like (utility, agreement, drift, …), logged as they are."""

    rows: Sequence[Row]
    metrics: Mapping[str, Any] = field(default_factory=dict)


Play = Callable[[int], Batch]  # the batch of this step
Publish = Callable[[int, nn.Module], None]  # the policy version, and the module that has its weights
Validate = Callable[[int], float]  # the score of the policy as it is after this step; higher is better


class RunLog(Protocol):
    """The part of a run directory that a loop writes."""

    def log(self, step: int, metrics: Mapping[str, Any]) -> None: ...

    def save(self, step: int, write: Callable[[Path], None]) -> object:
        """`write` fills a folder, which appears as checkpoint `step` when it is whole."""
        ...

    def latest(self) -> Path | None:
        """The newest whole checkpoint."""
        ...

    def mark_best(self, step: int, score: float) -> object: ...

    def should_stop(self) -> bool:
        """Somebody asked to stop after the current step."""
        ...
