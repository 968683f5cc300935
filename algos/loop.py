"""The training loop and what it is given: `play` brings rows, `publish` hands weights on, `run` keeps what comes of it.

Several delegates may be trained side by side, each by a learner of its own (models, optimisers, counters) from its own
rows; a step is taken by all of them, and a checkpoint holds all of them. One delegate alone has its metrics and its
checkpoint without its name; of several, metrics are NAME/metric, and a checkpoint has a sub-folder NAME for each.

Of several trainer processes the first one plays, publishes and owns the run; it is asked, and tells the others. What
the others are given as `publish` and `run` does nothing.

So `algos` knows neither environments nor engines nor commands. Step numbers count finished steps from 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from algos import checkpoints, distributed, meter
from algos.checkpoints import Counters
from algos.models import Models
from algos.rows import Row


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one step and what its games looked like (utility, agreement, drift, …), logged as they are."""

    rows: Sequence[Row]
    metrics: Mapping[str, Any] = field(default_factory=dict)


Play = Callable[[int], Mapping[str, Batch]]  # each delegate's batch of this step
Publish = Callable[[str, int, nn.Module], None]  # whose, which policy version, and the module that has its weights
Validate = Callable[[int], Mapping[str, float]]  # each delegate's score as it is after this step; higher is better


class Learner(Protocol):
    """What one delegate learns with."""

    models: Models
    optimisers: dict[str, torch.optim.Optimizer]
    counters: Counters

    def update(self, step: int, rows: Sequence[Row]) -> dict[str, Any]:
        """Learn from a step's rows; returns metrics. `counters` come to stand at `step`, with another
        `policy_version` when the actor's weights have changed."""
        ...


class RunLog(Protocol):
    """The part of a run directory that a loop writes."""

    def log(self, step: int, metrics: Mapping[str, Any]) -> None: ...

    def save(self, step: int, write: Callable[[Path], None]) -> object:
        """`write` fills a folder, which appears as checkpoint `step` when it is whole."""
        ...

    def latest(self) -> Path | None:
        """The newest whole checkpoint."""
        ...

    def mark_best(self, step: int, score: float, delegate: str = "") -> object:
        """Of one delegate of several, or of the only one."""
        ...

    def should_stop(self) -> bool:
        """Somebody asked to stop after the current step."""
        ...


def learn(
    learners: Mapping[str, Learner],
    *,
    steps: int,
    save_every: int,
    play: Play,
    publish: Publish,
    run: RunLog,
    validate: Validate | None = None,
) -> None:
    """Train until `steps` are done or the run is asked to stop; goes on from the run's latest checkpoint."""
    labels = {name: name if len(learners) > 1 else "" for name in learners}
    loaded_mb = meter.memory_mb("VmRSS")
    latest = distributed.first(run.latest)
    for name, learner in learners.items():
        folder = None if latest is None else latest / labels[name]
        learner.counters = checkpoints.resume(folder, learner.models, learner.optimisers)
        publish(name, learner.counters.policy_version, distributed.whole(learner.models.actor))
    (step,) = {learner.counters.step for learner in learners.values()}
    saved = step

    def save() -> None:
        parts = {labels[n]: checkpoints.writer(x.models, x.optimisers, x.counters) for n, x in learners.items()}
        run.save(step, checkpoints.joint(parts))

    while step < steps and not distributed.first(run.should_stop):
        step += 1
        started = time.perf_counter()
        brought = distributed.first(lambda: play(step))  # noqa: B023
        play_s = time.perf_counter() - started

        metrics: dict[str, Any] = {}
        for name, learner in learners.items():
            before, begun = replace(learner.counters), time.perf_counter()
            found = dict(brought[name].metrics) | learner.update(step, brought[name].rows)
            if learner.counters.policy_version != before.policy_version:
                publish(name, learner.counters.policy_version, distributed.whole(learner.models.actor))
            update_s, tokens = time.perf_counter() - begun, learner.counters.tokens - before.tokens
            found |= {
                "policy_version": learner.counters.policy_version,
                "actor_tokens": tokens,
                "update_s": update_s,
                "rollout_tokens_per_s": tokens / play_s,
                "update_tokens_per_s": tokens / update_s,
            }
            metrics |= {labelled(labels[name], key): value for key, value in found.items()}
        metrics |= {"play_s": play_s, "peak_memory_mb": meter.memory_mb() - loaded_mb}

        due = step % save_every == 0 or step == steps
        scores = validate(step) if due and validate is not None else {}
        metrics |= {labelled(labels[name], "validation"): score for name, score in scores.items()}
        run.log(step, metrics)
        if due:
            save()
            saved = step
            for name, score in scores.items():
                run.mark_best(step, score, labels[name])
    if step > saved:
        save()


def labelled(label: str, metric: str) -> str:
    """The name of a delegate's metric."""
    return f"{label}/{metric}" if label else metric
