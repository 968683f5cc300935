"""Short trainings with what came of them; the same whether one process calls them or several do together.

As a program it is one of several processes (`RANK`, `WORLD_SIZE`, …).
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from algos import distributed, ppo, sft
from algos.critic import ValueHead
from algos.loop import Batch
from algos.models import LoraConfig, Models, add_lora
from algos.rows import Row

PPO = ppo.Config(
    mini_batch=3, critic_warmup=1, steps=3, actor_lr=1e-3, critic_lr=1e-3, value_head_lr=1e-2, eta=0.1, workers=2,
    recompute_old=True, importance_weight=True, aggregation="dialogue", micro_tokens=60, save_every=2,
    max_grad_norm=0.5,
)  # fmt: skip
SFT = sft.Config(lr=1e-3, batch_tokens=150, epochs=2, max_steps=4, micro_tokens=60, held_out=0.2, save_every=2)
CASES = ("ppo", "ppo-lora", "sft", "sft-lora", "sft-one-row")
BEGUN = ("ppo", "ppo-lora")


class Beside:
    """The run of a process beside the first: there is nothing to see and nothing to write."""

    def log(self, _step: int, _metrics: Mapping[str, Any]) -> None: ...
    def save(self, _step: int, _write: object) -> None: ...
    def mark_best(self, _step: int, _score: float, _delegate: str = "") -> None: ...
    def latest(self) -> Path | None:
        raise AssertionError("only the first process looks")

    def should_stop(self) -> bool:
        raise AssertionError("only the first process looks")


def train(case: str, folder: Path, **changed: Any) -> dict[str, Any]:
    """The weights after the training, its metrics, and the weights that were published last."""
    make = conftest()
    kind, _, variant = case.partition("-")
    models = prepared(make, variant, critic=kind == "ppo")
    run = Beside() if distributed.rank() else make.MemoryRun(folder)
    published: dict[str, torch.Tensor] = {}

    def play(step: int) -> Batch:
        return Batch(make.talk_rows(7, seed=step))

    def publish(_version: int, actor: torch.nn.Module) -> None:
        published.update({name: p.detach().clone() for name, p in actor.named_parameters()})

    def nothing(*_: object) -> Any:
        assert distributed.rank()

    if kind == "ppo":
        config = ppo.replace(PPO, **changed)
        own = (nothing, nothing) if distributed.rank() else (play, publish)
        ppo.train(config, models, play=own[0], publish=own[1], run=run)
    else:
        rows: list[Row] = [] if distributed.rank() else make.talk_rows(8)
        config = sft.replace(SFT, batch_tokens=1 if variant == "one-row" else SFT.batch_tokens, **changed)
        sft.train(config, models, rows=rows, run=run)
    whole = models.whole()
    if distributed.rank():
        return {}
    critic = {} if whole.critic is None else {f"critic.{n}": p.detach() for n, p in whole.critic.named_parameters()}
    weights = {name: p.detach() for name, p in whole.actor.named_parameters()} | critic
    return {"weights": weights, "metrics": run.metrics, "published": published}


def prepared(make: Any, variant: str, *, critic: bool) -> Models:
    if variant == "lora":
        models = make.models(critic=False)
        add_lora(models.actor, LoraConfig(rank=4, alpha=8), seed=0)
        for name, parameter in models.actor.named_parameters():
            parameter.requires_grad_("lora_" in name)
        if critic:
            models.critic = ValueHead(models.actor.config.hidden_size)
        return models
    models = make.models(critic=critic, tied=True)
    if critic:
        models.reference = make.qwen3(7).requires_grad_(False)
    return models


def conftest() -> Any:
    spec = importlib.util.spec_from_file_location("algos_conftest", Path(__file__).with_name("conftest.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def start(case: str) -> dict[str, torch.Tensor]:
    """The actor's weights before the training."""
    kind, _, variant = case.partition("-")
    models = prepared(conftest(), variant, critic=kind == "ppo")
    return {name: p.detach() for name, p in models.actor.named_parameters()}


def train_all(folder: Path) -> None:
    """Every case; then those that one process has begun in `CASE-begun` are brought to their end."""
    torch.set_num_threads(1)
    with distributed.joined(240):
        for case in (*CASES, *(f"{case}-begun" for case in BEGUN)):
            found = train(case.removesuffix("-begun"), folder / case)
            if not distributed.rank():
                torch.save(found, folder / f"{case}.pt")


def hang() -> None:
    """The second process keeps the first one waiting."""
    with distributed.joined(3):
        if distributed.rank():
            time.sleep(60)
        try:
            distributed.total(torch.ones(1))
        except RuntimeError as error:
            print("lost" if distributed.lost(error) else error, flush=True)
            os._exit(0)


if __name__ == "__main__":
    train_all(Path(sys.argv[2])) if sys.argv[1] == "train" else hang()
