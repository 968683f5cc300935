"""Packs worked on by several threads: the same step, whatever their number."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from algos import ppo, sft
from algos.models import LoraConfig, Models, add_lora
from algos.packing import Pack
from algos.policy import BatchTensors, reference_policy
from algos.rows import actor_tokens
from algos.scoring import look
from algos.team import Team, twin

CONFIG = ppo.Config(
    mini_batch=3, critic_warmup=0, actor_lr=1e-3, critic_lr=1e-3, eta=0.1, recompute_old=True, micro_tokens=40
)


def stepped(make: SimpleNamespace, workers: int) -> tuple[list[torch.Tensor], dict[str, Any]]:
    models = make.models()
    models.reference = make.qwen3(7)
    models.team = Team(workers)
    metrics = ppo.update(CONFIG, models, ppo.make_optimisers(CONFIG, models), actor_tokens(make.rows(7)), step=1)
    return [p.detach() for model in (models.actor, models.critic) for p in model.parameters()], metrics


@pytest.mark.parametrize("workers", [2, 3])
def test_a_ppo_step_does_not_depend_on_the_workers(make: SimpleNamespace, workers: int) -> None:
    (one, metrics), (more, others) = stepped(make, 1), stepped(make, workers)
    for a, b in zip(one, more, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-4)
    assert others == pytest.approx(metrics, rel=1e-3, abs=1e-5)


def test_the_same_workers_give_the_same_bits(make: SimpleNamespace) -> None:
    first, second = stepped(make, 2)[0], stepped(make, 2)[0]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_an_sft_step_does_not_depend_on_the_workers(make: SimpleNamespace) -> None:
    batch = actor_tokens(make.rows(6))
    found = []
    for workers in (1, 2):
        models = make.models(critic=False)
        models.team = Team(workers)
        tensors = BatchTensors.of(batch, models.device)
        loss = sft.accumulate(sft.Config(micro_tokens=100), models, batch, tensors, range(len(batch.rows)))
        found.append([loss, *(p.grad for p in models.actor.parameters())])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_a_twin_shares_weights_and_nothing_else(make: SimpleNamespace) -> None:
    actor = make.qwen3(0)
    other = twin(actor)
    assert all(p is q for p, q in zip(actor.parameters(), other.parameters(), strict=True))
    other.config._attn_implementation = "eager"
    assert actor.config._attn_implementation != "eager"


def test_the_reference_without_its_adapter_has_twins_without_it(make: SimpleNamespace) -> None:
    actor = make.qwen3(0)
    add_lora(actor, LoraConfig(rank=2, alpha=4), seed=0)
    for name, parameter in actor.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    batch = actor_tokens(make.rows(6))
    found = []
    for workers in (1, 2):
        models = Models(actor, make.tokenizer(), team=Team(workers))
        seen = look(models, batch, BatchTensors.of(batch, models.device), 60, old=True, reference=True)
        assert seen.old is not None
        assert seen.reference is not None
        assert float((seen.old - seen.reference).abs().max()) > 0.01
        found.append((seen.old, seen.reference))
        with reference_policy(models) as model:
            assert model is actor
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)


def test_a_failure_in_any_worker_is_raised(make: SimpleNamespace) -> None:
    team, batch = Team(2), actor_tokens(make.rows(6))
    parts = team.packs(batch, range(len(batch.rows)), 60, torch.device("cpu"))
    assert len(parts) >= 2

    for broken in (0, 1):

        def work(_: Any, pack: Pack, broken: int = broken) -> int:
            if pack is parts[broken]:
                raise ValueError(f"pack {broken}")
            return pack.size

        with pytest.raises(ValueError, match=f"pack {broken}"):
            team.map(make.qwen3(0), work, parts)


def test_there_is_work_for_everyone(make: SimpleNamespace) -> None:
    batch = actor_tokens(make.rows(6))
    rows = range(len(batch.rows))
    assert len(Team(1).packs(batch, rows, 10_000, torch.device("cpu"))) == 1
    assert len(Team(2).packs(batch, rows, 10_000, torch.device("cpu"))) == 2


def test_at_least_one_worker() -> None:
    for config in (ppo.Config(), sft.Config()):
        with pytest.raises(ValueError, match="workers"):
            replace(config, workers=0)
