"""How fast and in how much memory sft and ppo learn: rows of random tokens, one step after another.

Every row has a prompt and a response whose tokens are all trained; a step is a forward and a backward pass over all
rows, a clipped gradient and an AdamW step. ppo's actor (no reference, no old-policy pass) and its critic (the values
before the update and the regression on them) are timed apart; `parts` leaves some out, since what an earlier part has
allocated (gradients, moments) is there for a later one. With `skewed` the lengths are spread around the same
mean, most rows short and a few long. Rates are tokens per second: `tokens_per_s` counts all, `trained_tokens_per_s`
the responses. `matmul_share` is the part of the machine's own matrix-product rate, measured in the same run, that the
products of the model's weights amount to. Memory is what the step adds to the loaded model, in MB.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from algos import meter, ppo, sft
from algos.models import LoraConfig, ModelConfig, Models, load
from algos.optim import adamw, take_step
from algos.packing import token_budget
from algos.policy import BatchTensors
from algos.rows import ActorTokens, Row, actor_tokens

PARTS = ("sft", "ppo_actor", "ppo_critic")


def train_bench(
    model: str,
    *,
    critic: str = "",
    sequences: int = 16,
    prompt_tokens: int = 64,
    new_tokens: int = 64,
    skewed: bool = False,
    steps: int = 5,
    micro_tokens: int = 0,
    threads: int = 1,
    lora_rank: int = 0,
    dtype: str = "float32",
    parts: Sequence[str] = PARTS,
) -> dict[str, Any]:
    """One JSON-able dict: settings, and for sft, the actor and the critic their rates, share and peak memory."""
    torch.set_num_threads(threads)
    settings = dict(locals()) | {"parts": list(parts)}
    lora = LoraConfig(lora_rank, 2 * lora_rank) if lora_rank else None
    models = load(ModelConfig(actor=model, critic=critic, lora=lora, dtype=dtype), critic="ppo_critic" in parts)
    batch = actor_tokens(rows(sequences, prompt_tokens, new_tokens, skewed, models.actor.config.vocab_size))
    tokens = int(sum(len(row.token_ids) for row in batch.rows))
    micro_tokens = micro_tokens or token_budget(models.actor)
    loaded_mb = meter.memory_mb("VmRSS")
    before = matmul_rate()
    ways = {"sft": _sft_step, "ppo_actor": _actor_step, "ppo_critic": _critic_step}
    out = {
        part: measure(way(models, batch, micro_tokens), steps, loaded_mb) for part, way in ways.items() if part in parts
    }
    rate = statistics.mean((before, matmul_rate()))
    backward = 1 if lora else 2  # frozen weights get no gradient of their own
    for name, figures in out.items():
        passes = 4 if name == "ppo_critic" else 1 + backward  # values are computed once more before the update
        work = passes * products(models.critic if name == "ppo_critic" else models.actor, batch)
        figures["tokens_per_s"] = round(tokens / figures["step_s"], 1)
        figures["trained_tokens_per_s"] = round(len(batch.ids) / figures["step_s"], 1)
        figures["matmul_share"] = round(work / figures["step_s"] / rate, 3)
    return {
        "bench": "train",
        "settings": settings | {"micro_tokens": micro_tokens},
        "parameters": {"actor": _count(models.actor)}
        | ({} if models.critic is None else {"critic": _count(models.critic)}),
        "tokens": tokens,
        "trained_tokens": len(batch.ids),
        "longest_row": max(len(row.token_ids) for row in batch.rows),
        "matmul_gflop_per_s": round(rate / 1e9, 1),
        **out,
    }


def rows(sequences: int, prompt_tokens: int, new_tokens: int, skewed: bool, vocabulary: int) -> list[Row]:
    """Rows of random tokens. Skewed: response lengths in proportion to (i + ½)³ with the same mean, so the longest
    is nearly four times the mean and half of the rows are below an eighth of the longest."""
    rng = np.random.default_rng(0)
    lengths = np.full(sequences, new_tokens)
    if skewed:
        shape = (np.arange(sequences) + 0.5) ** 3
        lengths = np.maximum(1, np.round(shape / shape.mean() * new_tokens)).astype(int)
    out = []
    for number, length in enumerate(rng.permutation(lengths)):
        total = prompt_tokens + int(length)
        out.append(
            Row(
                episode_id=str(number),
                env="bench",
                opponent="none",
                seat="A",
                segment=0,
                token_ids=rng.integers(0, vocabulary, total).astype(np.int32),
                prompt_len=prompt_tokens,
                loss_mask=np.arange(total) >= prompt_tokens,
                logprobs=np.full(total, -np.log(vocabulary), np.float32),
                temperature=1.0,
                reward=float(rng.random()),
            )
        )
    return out


def measure(step: Callable[[], None], steps: int, loaded_mb: float) -> dict[str, float]:
    """Median seconds of `steps` steps after one more, and MB at the peak beyond what the loaded models hold."""
    meter.reset_peak()
    seconds = []
    for _ in range(steps + 1):
        started = time.perf_counter()
        step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    peak_mb = meter.memory_mb() - loaded_mb
    return {"step_s": round(statistics.median(seconds[1:]), 4), "peak_memory_mb": round(peak_mb, 1)}


def matmul_rate(size: int = 1024, seconds: float = 0.5) -> float:
    """Floating-point operations per second of square float32 products, the best of about half a second."""
    a, b = torch.randn(2, size, size, device="cuda" if torch.cuda.is_available() else "cpu")
    best, ends = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < ends:
        started = time.perf_counter()
        float((a @ b)[0, 0])
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best


def products(model: Any, batch: ActorTokens) -> int:
    """Floating-point operations of one forward pass in products with weights (attention's own left out)."""
    body = model.get_decoder() if hasattr(model, "get_decoder") else model.backbone
    layers = sum(p.numel() for name, p in body.named_parameters() if p.ndim == 2 and "embed" not in name)
    head = model.get_output_embeddings().weight.numel() if hasattr(model, "get_decoder") else 0
    fed = sum(int(np.flatnonzero(row.loss_mask)[-1]) for row in batch.rows)
    return 2 * (layers * fed + head * len(batch.ids))


def _sft_step(models: Models, batch: ActorTokens, micro_tokens: int) -> Callable[[], None]:
    config = sft.Config(micro_tokens=micro_tokens)
    tensors = BatchTensors.of(batch, models.device)
    optimiser = adamw(models.trainable(), 1e-6)

    def step() -> None:
        loss = sft.accumulate(config, models, batch, tensors, range(len(batch.rows)))
        take_step(optimiser, loss, 1.0, what="actor", step=1)

    return step


def _actor_step(models: Models, batch: ActorTokens, micro_tokens: int) -> Callable[[], None]:
    config = ppo.Config(micro_tokens=micro_tokens, actor_lr=1e-6)
    tensors = BatchTensors.of(batch, models.device)
    optimiser = adamw(models.trainable(), 1e-6)
    zeros = torch.zeros(len(batch.ids), device=models.device)
    advantage = torch.randn(len(batch.ids), generator=torch.Generator().manual_seed(0)).to(models.device)
    scored = ppo.Scored(tensors.behaviour, zeros, advantage, zeros, None, None, None)

    def step() -> None:
        loss, _ = ppo.accumulate_actor(config, models, batch, tensors, scored, range(len(batch.rows)))
        take_step(optimiser, loss, 1.0, what="actor", step=1)

    return step


def _critic_step(models: Models, batch: ActorTokens, micro_tokens: int) -> Callable[[], None]:
    config = replace(ppo.Config(), micro_tokens=micro_tokens)
    tensors = BatchTensors.of(batch, models.device)
    optimiser = adamw(models.critic.parameters(), 1e-6) if models.critic is not None else None
    assert optimiser is not None

    def step() -> None:
        scored, _ = ppo.score(config, models, batch, tensors, warming=False)
        loss = ppo.accumulate_critic(config, models, batch, scored, range(len(batch.rows)), warming=False)
        take_step(optimiser, loss, 5.0, what="critic", step=1)

    return step


def _count(model: Any) -> int:
    return sum(p.numel() for p in model.parameters())
