from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from algos import sft
from algos.models import LoraConfig, add_lora
from algos.policy import BatchTensors
from algos.rows import actor_tokens
from scenarios.errors import DataError, ModelError

QUICK = sft.Config(lr=1e-3, schedule="constant", warmup=0.0, held_out=0.0, batch_tokens=100_000)


def weights(module: torch.nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in module.parameters()]


def test_our_step_is_a_plain_torch_step(make: SimpleNamespace, tmp_path: Path) -> None:
    models = make.models(critic=False)
    plain, rows = copy.deepcopy(models.actor), make.rows(6)
    run = make.run(tmp_path)
    sft.train(replace(QUICK, micro_tokens=50), models, rows=rows, run=run)

    losses = []
    for row in rows:
        ids = torch.from_numpy(row.token_ids).long()
        labels = torch.where(torch.from_numpy(row.loss_mask), ids, -100)
        logits = plain(input_ids=ids[None], use_cache=False).logits[0]
        losses.append(torch.nn.functional.cross_entropy(logits[:-1], labels[1:], reduction="none", ignore_index=-100))
    loss = torch.cat(losses).sum() / sum(row.loss_mask.sum() for row in rows)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
    torch.optim.AdamW(plain.parameters(), lr=1e-3, weight_decay=0.0).step()

    assert run.metrics[0]["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert run.metrics[0]["grad_norm/actor"] == pytest.approx(norm.item(), rel=1e-3)
    for ours, theirs in zip(weights(models.actor), weights(plain), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)


def test_the_loss_is_taken_at_temperature_one_whatever_sampled_the_tokens(
    make: SimpleNamespace, tmp_path: Path
) -> None:
    found = []
    for temperature in (1.0, 0.3):
        run = make.run(tmp_path / str(temperature))
        rows = [replace(row, temperature=temperature) for row in make.rows(3)]
        sft.train(QUICK, make.models(critic=False), rows=rows, run=run)
        found.append(run.metrics[0]["loss"])
    assert found[0] == found[1]


def test_a_step_does_not_depend_on_the_cut(make: SimpleNamespace) -> None:
    batch = actor_tokens(make.rows(6))
    found = []
    for micro_tokens in (1, 70, 10_000):
        models = make.models(critic=False)
        tensors = BatchTensors.of(batch, models.device)
        config = replace(QUICK, micro_tokens=micro_tokens)
        loss = sft.accumulate(config, models, batch, tensors, range(len(batch.rows)))
        found.append([loss, *(p.grad for p in models.actor.parameters())])
    for other in found[1:]:
        for ours, theirs in zip(other, found[0], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_it_learns_to_repeat_and_says_so_on_what_was_held_out(make: SimpleNamespace, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = []
    for number in range(40):  # every second token repeats the one before it
        ids = rng.integers(3, 9, 10).repeat(2).tolist()
        rows.append(make.row(f"e{number}", ids=ids, mask=[i % 2 == 1 for i in range(20)]))
    run = make.run(tmp_path)
    config = replace(QUICK, lr=1e-2, epochs=12, batch_tokens=200, held_out=0.1, evaluate_every=24, schedule="linear")
    sft.train(config, make.models(critic=False), rows=rows, run=run)
    held = [m["held_out_loss"] for m in run.metrics if "held_out_loss" in m]
    assert len(run.metrics) == 12 * 4  # 36 rows of 20 tokens, 10 to a step
    assert held[0] > held[-1]
    assert held[-1] < 0.2 < 3.0 < run.metrics[0]["loss"]


@pytest.mark.parametrize("lora", [False, True])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(
    make: SimpleNamespace, tmp_path: Path, lora: bool
) -> None:
    config = replace(QUICK, epochs=3, batch_tokens=60, schedule="linear", warmup=0.2)

    def go(run: Any) -> tuple[Any, Any]:
        models = make.models(critic=False)
        if lora:
            add_lora(models.actor, LoraConfig(4, 8), seed=0)
        return sft.train(config, models, rows=make.rows(6), run=run), models

    counters, whole = go(make.run(tmp_path / "whole"))
    assert counters.step > 6
    go(make.run(tmp_path / "cut", stop_after=5))
    again, resumed = go(make.run(tmp_path / "cut"))
    assert again == counters
    assert all(torch.equal(a, b) for a, b in zip(weights(resumed.actor), weights(whole.actor), strict=True))


def test_rows_are_chosen_by_reward_environment_seat_and_teacher(make: SimpleNamespace) -> None:
    rows = [
        make.row("a", reward=0.9, env="dnd", seat="A", agent="boulware"),
        make.row("b", reward=0.2, env="dnd", seat="B", agent="boulware"),
        make.row("c", reward=0.9, env="casino", seat="A", agent="random"),
        make.row("d", reward=0.9, ids=[3, 4], mask=[False, False]),
    ]

    def names(**choice: Any) -> str:
        return "".join(row.episode_id for row in sft.chosen(replace(QUICK, **choice), rows))

    assert names() == "abc"
    assert names(min_reward=0.9) == "ac"
    assert names(envs=("dnd",)) == "ab"
    assert names(seats=("A",), teachers=("boulware",)) == "a"
    with pytest.raises(DataError, match="none of 4 rows"):
        names(min_reward=2.0)


def test_every_epoch_takes_every_row_once_in_mixed_lengths_within_the_budget() -> None:
    lengths = [5, 40, 10, 35, 20, 30, 15, 25]
    steps = sft.plan(replace(QUICK, epochs=2, batch_tokens=60), lengths)
    order = [i for step in steps for i in step]
    assert sorted(order[:8]) == sorted(order[8:]) == list(range(8))
    assert order[:8] != order[8:]
    assert all(sum(lengths[i] for i in step) <= 60 for step in steps)
    assert len(sft.plan(replace(QUICK, epochs=9, batch_tokens=60, max_steps=4), lengths)) == 4
    limited = sft.plan(replace(QUICK, epochs=9, batch_tokens=60, max_tokens=100), lengths)
    assert 100 <= sum(lengths[i] for step in limited for i in step) < 160


def test_held_out_rows_are_whole_episodes(make: SimpleNamespace) -> None:
    batch = actor_tokens(make.rows(10))
    learned, held = sft.split(replace(QUICK, held_out=0.3), batch)
    assert sorted(learned + held) == list(range(len(batch.rows)))
    episodes = [{batch.row_episodes[r] for r in part} for part in (learned, held)]
    assert (len(episodes[1]), episodes[0] & episodes[1]) == (3, set())


def test_a_row_that_is_too_long_is_refused_before_anything_is_trained(make: SimpleNamespace, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="longer than the 64"):
        sft.train(QUICK, make.models(critic=False), rows=[make.row("a", length=65)], run=make.run(tmp_path))


@pytest.mark.parametrize("wrong", [{"schedule": "cosine"}, {"held_out": 1.0}, {"epochs": 0}, {"batch_tokens": 0}])
def test_a_configuration_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        sft.Config(**wrong)
