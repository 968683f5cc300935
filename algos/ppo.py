"""Proximal policy optimisation with a critic of its own, over the policy's own tokens of a conversation.

    maximise  E[ min(ρ_k Â_k, clip(ρ_k, 1−ε, 1+ε) Â_k) − η (e^{u_k} − u_k − 1) ]    ρ = π_θ/π_old, u = log π_ref/π_θ
    minimise  ½ E[ max((V_k − Ĝ_k)², (V̄_k + clip(V_k − V̄_k, ±ε_V) − Ĝ_k)²) ]

k runs over the actor tokens of an episode, across its segments; Â and Ĝ come from `gae`, Â is normalised over the
rollout batch. The first `critic_warmup` steps train the critic alone, on λ = 1 targets, without clipping. π_old is
the behaviour policy as recorded, or, with `recompute_old`, the actor before the update, where a truncated importance
weight can make up for the difference. Source: SocialRL §5 (its values are the defaults), PaCPO §4 for λ and η.

Left out: reward shaping, several updates in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from algos import distributed, losses, meter
from algos.checkpoints import Counters
from algos.critic import ValueHead
from algos.gae import advantages_and_returns, rewards_to_go
from algos.loop import Batch, RunLog, learn
from algos.models import Models
from algos.optim import SCHEDULES, adamw, schedule, set_lr, take_step, within_memory
from algos.packing import Pack, token_budget
from algos.policy import BatchTensors, allowed, check_rows, policy
from algos.rows import ActorTokens, Row, actor_tokens
from algos.scoring import look
from algos.team import Team
from scenarios.errors import ModelError


@dataclass(frozen=True, slots=True)
class Config:
    batch: int = 144  # episodes a step (what `play` is asked to bring)
    mini_batch: int = 36  # episodes
    epochs: int = 1
    steps: int = 200
    critic_warmup: int = 30  # the first steps, which train the critic alone
    warmup_epochs: int = 1  # passes over each of their batches
    actor_lr: float = 2e-6
    critic_lr: float = 1e-5
    value_head_lr: float = 1e-3
    schedule: str = "constant"  # or "linear", to 0 after the last step
    lr_warmup: int = 0  # steps
    weight_decay: float = 0.0
    max_grad_norm: float = 5.0
    gamma: float = 1.0
    lam: float = 0.95
    clip: float = 0.2
    value_clip: float = 0.2
    eta: float = 0.0
    aggregation: str = "token"  # or "dialogue"
    recompute_old: bool = False
    importance_weight: bool = False  # needs recompute_old
    importance_cap: float = 2.0
    micro_tokens: int = 0  # tokens in one forward pass: memory and speed, never the result; 0: by the model's size
    workers: int = 1  # packs under way at once, each on a thread of its own (CPU)
    save_every: int = 20  # steps; validation comes with it
    seed: int = 0

    def __post_init__(self) -> None:
        if self.aggregation not in losses.AGGREGATIONS:
            raise ValueError(f"aggregation: got {self.aggregation!r}, expected one of {losses.AGGREGATIONS}")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule: got {self.schedule!r}, expected one of {SCHEDULES}")
        if self.importance_weight and not self.recompute_old:
            raise ValueError("importance_weight: it compares the recomputed old policy; set recompute_old too")
        for name in ("gamma", "lam"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected 0 to 1")
        for name in ("batch", "mini_batch", "epochs", "warmup_epochs", "workers", "save_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected at least 1")


@dataclass(slots=True)
class Scored:
    """What is known of each actor token before the update, (K,) each."""

    old: Tensor  # log π_old
    values: Tensor  # V̄
    advantage: Tensor
    return_: Tensor
    reference: Tensor | None
    importance: Tensor | None
    features: Tensor | None  # (K, H), where a value head reads the actor's states
    mine: Tensor | None = None  # (K,) bool: those whose states this process has; None: all


def score(
    config: Config, models: Models, batch: ActorTokens, tensors: BatchTensors, *, warming: bool
) -> tuple[Scored, dict[str, float]]:
    """V̄, log π_old and log π_ref before the update, then advantages and targets."""
    recompute = config.recompute_old and not warming
    reference = bool(config.eta) and not warming
    seen = look(models, batch, tensors, config.micro_tokens, old=recompute, reference=reference)
    old = tensors.behaviour if seen.old is None else seen.old
    known = seen.values.double().cpu().numpy()
    lam = 1.0 if warming else config.lam
    raw, return_ = advantages_and_returns(batch.rewards, known, batch.starts, gamma=config.gamma, lam=lam)
    to_go = rewards_to_go(batch.rewards, batch.starts)
    metrics = {
        "explained_variance": losses.explained_variance(known, to_go),
        "value_mean": float(known.mean()),
        "return_mean": float(return_.mean()),
        "advantage_sd": float(raw.std()),
    }
    importance = None
    if recompute:  # how far the recorded policy is from the actor before the update
        metrics["mismatch"] = float(losses.approx_kl(old, tensors.behaviour).mean())
    if recompute and config.importance_weight:
        importance = losses.importance_weights(old, tensors.behaviour, config.importance_cap)
        metrics["importance_mean"] = float(importance.mean())
    advantage, target = (
        torch.from_numpy(x).to(models.device, torch.float32) for x in (losses.normalised(raw), return_)
    )
    return Scored(old, seen.values, advantage, target, seen.reference, importance, seen.features, seen.mine), metrics


def mini_batches(config: Config, episodes: int, step: int, epoch: int) -> Iterator[np.ndarray]:
    """Episodes in random order, in parts of about `mini_batch` that differ by one at most."""
    order = np.random.default_rng([config.seed, step, epoch]).permutation(episodes)
    yield from np.array_split(order, max(1, -(-episodes // config.mini_batch)))


def accumulate_actor(
    config: Config, models: Models, batch: ActorTokens, tensors: BatchTensors, scored: Scored, rows: Sequence[int]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Add the gradient of one mini-batch's loss to the actor; returns the loss, and metrics as sums over tokens."""
    weights = _weights(config, batch, rows, models.device)

    def work(actor: Any, pack: Pack) -> tuple[Tensor, dict[str, Tensor]]:
        at = pack.tokens
        logprobs, entropy, _ = policy(models, actor, pack, tensors)
        loss = losses.clipped_policy(logprobs, scored.old[at], scored.advantage[at], config.clip)
        if scored.importance is not None:
            loss = loss * scored.importance[at]
        parts = {"policy_loss": loss.detach()}
        if scored.reference is not None:
            penalty = losses.reference_penalty(logprobs, scored.reference[at])
            parts["reference_penalty"] = penalty.detach()
            loss = loss + config.eta * penalty
        with torch.no_grad():
            parts["approx_kl"] = losses.approx_kl(logprobs, scored.old[at])
            parts["clip_frac"] = losses.clipped(logprobs, scored.old[at], config.clip).float()
            parts["entropy"] = entropy
            parts |= losses.ratio_bins(logprobs, scored.old[at])
        return (weights[at] * loss).sum(), {name: part.sum() for name, part in parts.items()}

    total = torch.zeros((), device=models.device)
    sums: dict[str, Tensor] = {}
    parts = models.team.packs(batch, rows, config.micro_tokens, models.device)
    for loss, part in models.team.backward(models.actor, work, parts):
        total += loss
        sums = {name: sums.get(name, 0.0) + value for name, value in part.items()}
    return distributed.total(total), distributed.totals(sums)


def accumulate_critic(
    config: Config, models: Models, batch: ActorTokens, scored: Scored, rows: Sequence[int], *, warming: bool
) -> Tensor:
    """Add the gradient of one mini-batch's value loss to the critic; returns the loss."""
    weights = _weights(config, batch, rows, models.device)

    def loss_of(at: Tensor, values: Tensor) -> Tensor:
        if warming:
            loss = losses.squared_error(values, scored.return_[at])
        else:
            loss = losses.clipped_value(values, scored.values[at], scored.return_[at], config.value_clip)
        return (weights[at] * loss).sum()

    def work(critic: Any, pack: Pack) -> tuple[Tensor, None]:
        with models.computing():
            values = critic(pack)
        return loss_of(pack.tokens, values), None

    assert models.critic is not None
    if isinstance(models.critic, ValueHead):  # one linear layer over all of the mini-batch's states
        assert scored.features is not None
        at = torch.from_numpy(batch.tokens_of(rows)).to(models.device)
        at = at if scored.mine is None else at[scored.mine[at]]
        loss = loss_of(at, models.critic(scored.features[at]))
        loss.backward()
        return distributed.total(loss.detach())
    done = models.team.backward(models.critic, work, models.team.packs(batch, rows, config.micro_tokens, models.device))
    return distributed.total(sum((loss for loss, _ in done), torch.zeros((), device=models.device)))


def _weights(config: Config, batch: ActorTokens, rows: Sequence[int], device: torch.device) -> Tensor:
    """Each token's share in the mini-batch's loss, (K,); tokens outside of it have none."""
    tokens = batch.tokens_of(rows)
    weights = np.zeros(len(batch.ids), np.float32)
    weights[tokens] = losses.token_weights(batch.episodes[tokens], config.aggregation)
    return torch.from_numpy(weights).to(device)


def update(
    config: Config, models: Models, optimisers: dict[str, torch.optim.Optimizer], batch: ActorTokens, step: int
) -> dict[str, Any]:
    """One step's learning from one batch."""
    warming = step <= config.critic_warmup
    nth, of = step - config.critic_warmup, config.steps - config.critic_warmup  # the actor's rate starts when it does
    actor_lr = 0.0 if warming else config.actor_lr * schedule(nth, of, kind=config.schedule, warmup=config.lr_warmup)
    set_lr(optimisers["actor"], actor_lr)
    critic_factor = 1.0 if warming else schedule(nth, of, kind=config.schedule)
    set_lr(optimisers["critic"], _critic_lr(config, models) * critic_factor)
    tensors = BatchTensors.of(batch, models.device, None if warming else allowed(models, batch))
    scored, metrics = score(config, models, batch, tensors, warming=warming)
    sums: dict[str, Tensor] = {}
    norms: dict[str, list[float]] = {"actor": [], "critic": []}
    value_losses = []
    epochs = config.warmup_epochs if warming else config.epochs
    for epoch in range(epochs):
        for episodes in mini_batches(config, len(batch.starts) - 1, step, epoch):
            rows = batch.rows_of(episodes)
            if not warming:
                loss, part = accumulate_actor(config, models, batch, tensors, scored, rows)
                if "mismatch" not in metrics:  # the same from the first mini-batch, before any update
                    metrics["mismatch"] = float(part["approx_kl"]) / len(batch.tokens_of(rows))
                norm = take_step(optimisers["actor"], loss, config.max_grad_norm, what="actor", step=step)
                norms["actor"].append(norm)
                sums = {name: sums.get(name, 0.0) + value for name, value in part.items()}
            loss = accumulate_critic(config, models, batch, scored, rows, warming=warming)
            value_losses.append(float(loss))
            norm = take_step(optimisers["critic"], loss, config.max_grad_norm, what="critic", step=step)
            norms["critic"].append(norm)
    metrics |= meter.mean_of(sums, epochs * len(batch.ids))
    metrics["value_loss"] = float(np.mean(value_losses))
    metrics |= {f"grad_norm/{name}": float(np.mean(found)) for name, found in norms.items() if found}
    return metrics | {"actor_lr": actor_lr}


def _critic_lr(config: Config, models: Models) -> float:
    return config.value_head_lr if isinstance(models.critic, ValueHead) else config.critic_lr


def make_optimisers(config: Config, models: Models) -> dict[str, torch.optim.Optimizer]:
    if models.critic is None:
        raise ModelError(f"{models.source}: ppo needs a critic; load the models with one")
    if config.eta and models.reference is None and not models.lora:
        raise ModelError(f"{models.source}: eta = {config.eta} needs a reference model; load the models with one")
    return {
        "actor": adamw(models.trainable(), config.actor_lr, weight_decay=config.weight_decay),
        "critic": adamw(models.critic.parameters(), _critic_lr(config, models), weight_decay=config.weight_decay),
    }


class Learner:
    """One delegate that learns by PPO: its models, optimisers and counters."""

    def __init__(self, config: Config, models: Models) -> None:
        micro_tokens = config.micro_tokens or token_budget(models.actor) // config.workers
        self.config, self.models = replace(config, micro_tokens=micro_tokens), models
        models.team = Team(config.workers)
        models.spread()
        self.optimisers = make_optimisers(config, models)
        self.counters = Counters()

    def update(self, step: int, rows: Sequence[Row]) -> dict[str, Any]:
        """Learn from the rows of a step; see `loop.Learner`."""
        batch, counters = actor_tokens(rows), self.counters
        check_rows(self.models, batch)
        metrics = meter.reward_metrics(rows) | meter.staleness_metrics(batch, counters.policy_version)
        if len(batch.ids):
            with within_memory(self.config.micro_tokens):
                metrics |= update(self.config, self.models, self.optimisers, batch, step)
            counters.policy_version += step > self.config.critic_warmup
        counters.step = step
        counters.episodes += len(batch.starts) - 1
        counters.tokens += len(batch.ids)
        return metrics


def train(
    config: Config,
    models: Models,
    *,
    play: Callable[[int], Batch],
    publish: Callable[[int, nn.Module], None],
    run: RunLog,
    validate: Callable[[int], float] | None = None,
) -> Counters:
    """Train one policy until `config.steps` are done; see `loop.learn`, which also trains several together."""
    learner = Learner(config, models)
    learn(
        {"policy": learner},
        steps=config.steps,
        save_every=config.save_every,
        play=lambda step: {"policy": play(step)},
        publish=lambda _, version, actor: publish(version, actor),
        run=run,
        validate=None if validate is None else lambda step: {"policy": validate(step)},
    )
    return learner.counters
