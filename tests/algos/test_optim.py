from __future__ import annotations

import pytest
import torch
from torch import nn

from algos.optim import adamw, schedule, set_lr, take_step, within_memory
from scenarios.errors import ModelError, RunError


def test_schedules_by_hand() -> None:
    assert [schedule(s, 4) for s in (1, 4)] == [1.0, 1.0]
    assert [schedule(s, 4, kind="linear") for s in (1, 2, 3, 4, 5)] == [1.0, 0.75, 0.5, 0.25, 0.0]
    assert [schedule(s, 9, warmup=3) for s in (1, 2, 3, 4)] == [0.25, 0.5, 0.75, 1.0]
    assert [schedule(s, 4, kind="linear", warmup=2) for s in (1, 2, 3, 4)] == pytest.approx([1 / 3, 2 / 3, 1.0, 0.5])
    with pytest.raises(ValueError, match="schedule"):
        schedule(1, 4, kind="cosine")


def test_a_step_clips_and_returns_the_norm_before() -> None:
    layer = nn.Linear(1, 1, bias=False)
    layer.weight.data.fill_(1.0)
    optimiser = torch.optim.SGD(layer.parameters(), lr=1.0)
    loss = (layer.weight * 10).sum()
    loss.backward()
    assert take_step(optimiser, loss.detach(), 2.0, what="actor", step=1) == pytest.approx(10.0)
    assert layer.weight.item() == pytest.approx(-1.0, abs=1e-5)  # 1 − lr·2
    assert layer.weight.grad is None


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_changes_no_weight_and_names_the_step(value: float) -> None:
    layer = nn.Linear(1, 1)
    before = layer.weight.clone()
    optimiser = adamw(layer.parameters(), 0.1)
    loss = layer(torch.ones(1)).sum() * value
    loss.backward()
    with pytest.raises(ModelError, match=r"step 7: the loss of the critic is (nan|inf|-inf)"):
        take_step(optimiser, loss.detach(), 1.0, what="critic", step=7)
    assert torch.equal(layer.weight, before)


def test_a_loss_that_is_not_finite_is_seen_though_its_gradient_is() -> None:
    layer = nn.Linear(1, 1)
    layer(torch.ones(1)).sum().backward()
    with pytest.raises(ModelError, match="nan"):
        take_step(adamw(layer.parameters(), 0.1), torch.tensor(float("nan")), 1.0, what="actor", step=1)


def test_frozen_weights_are_left_out_and_the_rate_can_be_set() -> None:
    layer = nn.Linear(2, 2)
    layer.bias.requires_grad_(False)
    optimiser = adamw(layer.parameters(), 0.1)
    assert optimiser.param_groups[0]["params"] == [layer.weight]
    set_lr(optimiser, 0.5)
    assert optimiser.param_groups[0]["lr"] == 0.5


def test_out_of_memory_names_the_setting_and_nothing_else_is_touched() -> None:
    for error in (
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes"),
        MemoryError(),
    ):
        with pytest.raises(RunError, match="lower micro_tokens"), within_memory(4096):
            raise error
    with pytest.raises(RuntimeError, match="shapes"), within_memory(4096):
        raise RuntimeError("shapes do not match")
