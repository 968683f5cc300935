"""Supervised fine-tuning: cross-entropy on the model's own tokens of chosen rows.

    minimise  − E[ log π_θ(token_k) ]      k over the actor tokens of the rows chosen

Rows come from played episodes with exact tokens, or from conversations tokenised with the student's template
(`messages`). The log-probabilities are taken at temperature 1 over the whole vocabulary, whatever sampled the tokens:
a form that a grammar forced is learned too. A step takes rows of mixed lengths up to `batch_tokens`; the order
depends on the seed alone.

Left out: packing with attention across rows, sample weights.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from algos import checkpoints, distributed, meter
from algos.checkpoints import Counters
from algos.loop import RunLog
from algos.models import Models
from algos.optim import SCHEDULES, adamw, schedule, set_lr, take_step, within_memory
from algos.packing import Pack, cut, token_budget
from algos.policy import BatchTensors, check_rows, policy
from algos.rows import ActorTokens, Row, actor_tokens
from algos.team import Team
from scenarios.errors import DataError


@dataclass(frozen=True, slots=True)
class Config:
    lr: float = 1e-5
    epochs: int = 1
    max_steps: int = 0  # 0: no limit beside the epochs
    max_tokens: int = 0  # tokens fed in all; 0: no limit
    batch_tokens: int = 16384  # tokens a step
    micro_tokens: int = 0  # tokens in one forward pass: memory and speed, never the result; 0: by the model's size
    workers: int = 1  # packs under way at once, each on a thread of its own (CPU)
    schedule: str = "linear"  # or "constant"
    warmup: float = 0.05  # part of the steps
    weight_decay: float = 0.0
    beta2: float = 0.999
    max_grad_norm: float = 1.0
    min_reward: float | None = None
    envs: tuple[str, ...] = ()  # empty: all
    seats: tuple[str, ...] = ()
    teachers: tuple[str, ...] = ()  # participants whose moves are learned
    held_out: float = 0.02  # part of the episodes that is only measured
    evaluate_every: int = 0  # steps; 0: at the end
    save_every: int = 0  # steps; 0: at the end
    seed: int = 0

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule: got {self.schedule!r}, expected one of {SCHEDULES}")
        if not 0 <= self.held_out < 1:
            raise ValueError(f"held_out: got {self.held_out}, expected a part of 1")
        for name in ("epochs", "batch_tokens", "workers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected at least 1")


def chosen(config: Config, rows: Sequence[Row]) -> list[Row]:
    """The rows that the configuration asks for. Raises DataError when none is left."""
    out = [
        row
        for row in rows
        if (config.min_reward is None or row.reward >= config.min_reward)
        and (not config.envs or row.env in config.envs)
        and (not config.seats or row.seat in config.seats)
        and (not config.teachers or row.agent in config.teachers)
        and row.loss_mask.any()
    ]
    if not out:
        raise DataError(f"none of {len(rows)} rows is left to learn from: lower min_reward or widen the selection")
    return out


def split(config: Config, batch: ActorTokens) -> tuple[list[int], list[int]]:
    """Rows to train on and rows held out, by episode."""
    episodes = len(batch.starts) - 1
    count = int(config.held_out * episodes)
    held = set(np.random.default_rng([config.seed, 1]).permutation(episodes)[:count].tolist())
    parts: tuple[list[int], list[int]] = ([], [])
    for row, episode in enumerate(batch.row_episodes.tolist()):
        parts[episode in held].append(row)
    return parts


def plan(config: Config, lengths: Sequence[int]) -> list[list[int]]:
    """The rows (as indices into `lengths`) of every step: each epoch in a random order of its own."""
    out: list[list[int]] = []
    tokens = 0
    for epoch in range(config.epochs):
        order = np.random.default_rng([config.seed, 0, epoch]).permutation(len(lengths)).tolist()
        for group in cut([lengths[i] for i in order], config.batch_tokens):
            done = config.max_steps and len(out) >= config.max_steps
            if done or (config.max_tokens and tokens >= config.max_tokens):
                return out
            out.append([order[i] for i in group])
            tokens += sum(lengths[i] for i in out[-1])
    return out


def accumulate(
    config: Config, models: Models, batch: ActorTokens, tensors: BatchTensors, rows: Sequence[int]
) -> torch.Tensor:
    """Add the gradient of the mean loss over these rows' actor tokens to the actor, where gradients are wanted;
    returns that loss (nats)."""
    count = len(batch.tokens_of(rows))

    def work(actor: Any, pack: Pack) -> tuple[torch.Tensor, None]:
        return -policy(models, actor, pack, tensors)[0].sum() / count, None

    passes = models.team.backward if torch.is_grad_enabled() else models.team.map
    parts = passes(models.actor, work, models.team.packs(batch, rows, config.micro_tokens, models.device))
    return distributed.total(sum((loss for loss, _ in parts), torch.zeros((), device=models.device)))


def train(config: Config, models: Models, *, rows: Sequence[Row], run: RunLog) -> Counters:
    """Train over the rows; goes on from the run's latest checkpoint."""
    config = replace(config, micro_tokens=config.micro_tokens or token_budget(models.actor) // config.workers)
    models.team = Team(config.workers)
    models.spread()
    batch = distributed.first(lambda: actor_tokens(chosen(config, rows)))
    check_rows(models, batch)
    learned, held = split(config, batch)
    tensors = BatchTensors.of(batch, models.device)
    tensors.temperatures.fill_(1.0)
    steps = plan(config, [len(batch.rows[r].token_ids) for r in learned])
    warmup = round(config.warmup * len(steps))

    optimiser = adamw(models.trainable(), config.lr, weight_decay=config.weight_decay, beta2=config.beta2)
    loaded_mb = meter.memory_mb("VmRSS")
    counters = checkpoints.resume(distributed.first(run.latest), models, {"actor": optimiser})
    saved = counters.step

    def save() -> None:
        run.save(counters.step, checkpoints.writer(models, {"actor": optimiser}, counters))

    while counters.step < len(steps) and not distributed.first(run.should_stop):
        step = counters.step + 1
        started = time.perf_counter()
        chosen_rows = [learned[i] for i in steps[step - 1]]
        lr = config.lr * schedule(step, len(steps), kind=config.schedule, warmup=warmup)
        set_lr(optimiser, lr)
        with within_memory(config.micro_tokens):
            loss = accumulate(config, models, batch, tensors, chosen_rows)
            norm = take_step(optimiser, loss, config.max_grad_norm, what="actor", step=step)
        tokens = sum(len(batch.rows[r].token_ids) for r in chosen_rows)
        seconds = time.perf_counter() - started
        counters.step = step
        counters.episodes += len({batch.rows[r].episode for r in chosen_rows})
        trained = len(batch.tokens_of(chosen_rows))
        counters.tokens += trained
        last = step == len(steps)
        metrics = {
            "loss": float(loss),
            "lr": lr,
            "grad_norm/actor": norm,
            "actor_tokens": trained,
            "update_s": seconds,
            "tokens_per_s": tokens / seconds,
            "peak_memory_mb": meter.memory_mb() - loaded_mb,
        }
        if held and (last or (config.evaluate_every and step % config.evaluate_every == 0)):
            with torch.no_grad(), within_memory(config.micro_tokens):
                metrics["held_out_loss"] = float(accumulate(config, models, batch, tensors, held))
        run.log(step, metrics)
        if last or (config.save_every and step % config.save_every == 0):
            save()
            saved = step
    if counters.step > saved:
        save()
    return counters
