from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from algos import ppo
from algos.critic import ValueHead
from algos.gae import advantages_and_returns
from algos.loop import Batch
from algos.models import LoraConfig, add_lora
from algos.policy import BatchTensors
from algos.rows import Row, actor_tokens
from scenarios.errors import DataError, ModelError

ONE = ppo.Config(critic_warmup=0, steps=4, mini_batch=100, actor_lr=1e-3, critic_lr=1e-3, save_every=100)


def weights(module: torch.nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in module.parameters()]


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def assert_close(a: list[torch.Tensor], b: list[torch.Tensor], atol: float) -> None:
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=atol)


def plain_logprobs(model: Any, row: Row, temperature: float = 1.0) -> torch.Tensor:
    ids = torch.from_numpy(row.token_ids).long()
    logprobs = (model(input_ids=ids[None], use_cache=False).logits[0] / temperature).log_softmax(-1)
    at = np.flatnonzero(row.loss_mask)
    return logprobs[at - 1, ids[at]]


def plain_values(critic: Any, row: Row) -> torch.Tensor:
    ids = torch.from_numpy(row.token_ids).long()
    states = critic.backbone(input_ids=ids[None], use_cache=False).last_hidden_state[0]
    return critic.linear(states)[np.flatnonzero(row.loss_mask) - 1, 0]


def written(rows: list[Row], model: Any) -> list[Row]:
    """The rows with the log-probabilities that this model gives their tokens."""
    out = []
    for row in rows:
        logprobs = np.zeros(len(row.token_ids), np.float32)
        with torch.no_grad():
            logprobs[row.loss_mask] = plain_logprobs(model, row).numpy()
        out.append(replace(row, logprobs=logprobs))
    return out


@pytest.mark.parametrize(("aggregation", "eta"), [("token", 0.0), ("dialogue", 0.5)])
def test_our_step_is_a_plain_torch_step(make: SimpleNamespace, aggregation: str, eta: float) -> None:
    models = make.models()
    models.reference = make.qwen3(7)
    config = replace(ONE, aggregation=aggregation, eta=eta, micro_tokens=50)
    rows = make.rows(6)
    actor, critic = copy.deepcopy(models.actor), copy.deepcopy(models.critic)
    before = weights(actor)
    ppo.update(config, models, ppo.make_optimisers(config, models), actor_tokens(rows), step=1)

    ordered = actor_tokens(rows)  # the same step, one row at a time, from the definitions
    with torch.no_grad():
        values = torch.cat([plain_values(critic, row) for row in ordered.rows])
        reference = torch.cat([plain_logprobs(models.reference, row) for row in ordered.rows])
    raw, return_ = advantages_and_returns(ordered.rewards, values.numpy(), ordered.starts, lam=0.95)
    advantage = torch.from_numpy((raw - raw.mean()) / (raw.std() + 1e-8)).float()
    logprobs = torch.cat([plain_logprobs(actor, row) for row in ordered.rows])
    ratio = (logprobs - torch.from_numpy(ordered.logprobs)).exp()
    loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    u = reference - logprobs
    loss = loss + eta * (u.exp() - u - 1)
    predicted = torch.cat([plain_values(critic, row) for row in ordered.rows])
    target = torch.from_numpy(return_).float()
    near = values + (predicted - values).clamp(-0.2, 0.2)
    value_loss = 0.5 * torch.max((predicted - target) ** 2, (near - target) ** 2)
    if aggregation == "token":
        loss, value_loss = loss.mean(), value_loss.mean()
    else:
        parts = [slice(a, b) for a, b in zip(ordered.starts[:-1], ordered.starts[1:], strict=True)]
        loss = torch.stack([loss[part].mean() for part in parts]).mean()
        value_loss = torch.stack([value_loss[part].mean() for part in parts]).mean()
    for module, its_loss in ((actor, loss), (critic, value_loss)):
        its_loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 5.0)
        torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.0).step()

    moved = max(float((p - q).abs().max()) for p, q in zip(weights(models.actor), before, strict=True))
    assert moved > 9e-4  # AdamW's first step is about lr
    # AdamW's first step is lr·sign(g), so where a gradient is nearly 0 rounding shows; a wrong sign would be 2e-3
    assert_close(weights(models.actor), weights(actor), atol=1e-4)
    assert_close(weights(models.critic), weights(critic), atol=1e-4)


def test_a_step_does_not_depend_on_the_cut(make: SimpleNamespace) -> None:
    found = []
    for micro_tokens in (1, 60, 10_000):
        models = make.models()
        config = replace(ONE, micro_tokens=micro_tokens, aggregation="dialogue", mini_batch=3)
        metrics = ppo.update(config, models, ppo.make_optimisers(config, models), actor_tokens(make.rows(6)), step=1)
        found.append((weights(models.actor) + weights(models.critic), metrics))
    for other, metrics in found[1:]:
        assert_close(other, found[0][0], atol=1e-4)
        assert metrics == pytest.approx(found[0][1], rel=1e-3, abs=1e-5)


def test_a_step_does_not_depend_on_the_order_of_the_rows(make: SimpleNamespace) -> None:
    found = []
    for rows in (make.rows(6), make.rows(6)[::-1]):
        models = make.models()
        ppo.update(ONE, models, ppo.make_optimisers(ONE, models), actor_tokens(rows), step=1)
        found.append(weights(models.actor))
    assert same(*found)


def test_values_are_read_where_the_token_is_predicted(make: SimpleNamespace) -> None:
    models = make.models()
    batch = actor_tokens(make.rows(3))
    scored, metrics = ppo.score(ONE, models, batch, BatchTensors.of(batch, models.device), warming=False)
    with torch.no_grad():
        plain = torch.cat([plain_values(models.critic, row) for row in batch.rows])
    torch.testing.assert_close(scored.values, plain, rtol=1e-4, atol=1e-5)
    to_go = np.concatenate([np.full(n, r) for n, r in zip(np.diff(batch.starts), (0.0, 0.7, 0.4), strict=True)])
    expected = 1 - np.var(to_go - plain.numpy()) / np.var(to_go)
    assert metrics["explained_variance"] == pytest.approx(expected, rel=1e-3)


def test_warm_up_trains_the_critic_alone_on_the_reward_to_go(make: SimpleNamespace, tmp_path: Path) -> None:
    models = make.models()
    config = replace(ONE, critic_warmup=3, warmup_epochs=4, steps=4, critic_lr=1e-2)
    actor, published = weights(models.actor), []
    run = make.run(tmp_path, stop_after=3)

    def publish(version: int, model: torch.nn.Module) -> None:
        published.append(version)

    ppo.train(config, models, play=lambda step: Batch(make.rows(6)), publish=publish, run=run)
    assert same(weights(models.actor), actor)
    assert published == [0]
    assert run.metrics[-1]["explained_variance"] > run.metrics[0]["explained_variance"] + 0.3
    assert run.metrics[0]["return_mean"] == pytest.approx(run.metrics[1]["return_mean"])  # whatever the critic says
    ppo.train(config, models, play=lambda step: Batch(make.rows(6)), publish=publish, run=make.run(tmp_path))
    assert not same(weights(models.actor), actor)
    assert published == [0, 0, 1]


def test_the_actors_rate_starts_when_the_actor_does(make: SimpleNamespace) -> None:
    models = make.models()
    config = replace(ONE, critic_warmup=2, steps=6, lr_warmup=1, schedule="linear")
    optimisers = ppo.make_optimisers(config, models)
    batch = actor_tokens(make.rows(2))
    rates = [ppo.update(config, models, optimisers, batch, step)["actor_lr"] for step in range(1, 7)]
    assert rates == pytest.approx([0, 0, 0.5e-3, 1e-3, 2e-3 / 3, 1e-3 / 3])
    assert optimisers["critic"].param_groups[0]["lr"] == pytest.approx(0.25e-3)  # falls too, without the rise


class Toy:
    """Four tokens behind a prompt of six; reward is the part of them that is below 16."""

    def __init__(self, make: SimpleNamespace, model: Any, games: int) -> None:
        self.make, self.model, self.games, self.version = make, model, games, 0

    def play(self, step: int) -> Batch:
        generator = torch.Generator().manual_seed(step)
        ids = torch.randint(3, 50, (self.games, 6), generator=generator)
        logprobs = []
        with torch.no_grad():
            for _ in range(4):
                every = self.model(input_ids=ids, use_cache=False).logits[:, -1].log_softmax(-1)
                new = torch.multinomial(every.exp(), 1, generator=generator)
                logprobs.append(every.gather(1, new))
                ids = torch.cat([ids, new], 1)
        behaviour = torch.cat([torch.zeros(self.games, 6), *logprobs], 1).numpy()
        rows = [
            self.make.row(
                str(i),
                ids=ids[i].tolist(),
                prompt=6,
                logprobs=behaviour[i],
                reward=float((ids[i, 6:] < 16).float().mean()),
                policy_version=self.version,
            )
            for i in range(self.games)
        ]
        return Batch(rows, {"utility": 1.0})

    def publish(self, version: int, model: torch.nn.Module) -> None:
        self.version = version


def test_it_learns_a_toy(make: SimpleNamespace, tmp_path: Path) -> None:
    models = make.models()
    toy, run = Toy(make, models.actor, 48), make.run(tmp_path)
    config = replace(ONE, steps=16, critic_warmup=2, batch=48, mini_batch=12, actor_lr=4e-3, critic_lr=4e-3)
    ppo.train(config, models, play=toy.play, publish=toy.publish, run=run)
    first, last = run.metrics[0], run.metrics[-1]
    assert first["reward_mean"] < 0.5
    assert last["reward_mean"] > first["reward_mean"] + 0.3
    assert last["staleness_max"] == 0
    assert all(m["mismatch"] < 1e-6 for m in run.metrics[2:])  # recorded and recomputed log-probabilities agree
    assert last["entropy"] < run.metrics[2]["entropy"]
    assert last["utility"] == 1.0
    assert last["reward_mean/toy/scripted"] == last["reward_mean"]
    wanted = (
        "approx_kl clip_frac grad_norm/actor grad_norm/critic rollout_tokens_per_s update_tokens_per_s peak_memory_mb"
    )
    assert all(np.isfinite(last[name]) for name in wanted.split())


@pytest.mark.parametrize("kind", ["critic", "value_head", "lora"])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(
    make: SimpleNamespace, tmp_path: Path, kind: str
) -> None:
    config = replace(ONE, steps=6, critic_warmup=2, mini_batch=5, schedule="linear", recompute_old=True)

    def start() -> Any:
        models = make.models()
        if kind == "value_head":
            models.critic = ValueHead(32)
        if kind == "lora":
            add_lora(models.actor, LoraConfig(4, 8), seed=0)
        return models

    def go(models: Any, run: Any) -> Any:
        toy = Toy(make, models.actor, 12)
        return ppo.train(config, models, play=toy.play, publish=toy.publish, run=run)

    whole = start()
    counters = go(whole, make.run(tmp_path / "whole"))
    go(start(), make.run(tmp_path / "cut", stop_after=3))
    resumed = start()
    run = make.run(tmp_path / "cut")
    assert go(resumed, run) == counters
    assert [line["step"] for line in run.metrics] == [4, 5, 6]
    assert counters.policy_version == 4
    assert same(weights(resumed.actor), weights(whole.actor))
    assert same(weights(resumed.critic), weights(whole.critic))


def test_validation_comes_with_checkpoints_and_marks_the_best(make: SimpleNamespace, tmp_path: Path) -> None:
    models, run = make.models(), make.run(tmp_path)
    scores = {2: 0.5, 4: 0.3, 5: 0.4}
    ppo.train(
        replace(ONE, steps=5, save_every=2),
        models,
        play=lambda step: Batch(make.rows(2)),
        publish=lambda version, model: None,
        run=run,
        validate=scores.__getitem__,
    )
    assert run.best == [(2, 0.5), (4, 0.3), (5, 0.4)]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-2", "step-4", "step-5"]
    assert [m.get("validation") for m in run.metrics] == [None, 0.5, None, 0.3, 0.4]


def test_a_batch_without_an_actor_token_changes_nothing_and_goes_on(make: SimpleNamespace, tmp_path: Path) -> None:
    models, run = make.models(), make.run(tmp_path)
    silent = make.row("a", ids=[3, 4], mask=[False, False], reward=0.0)
    batches = {1: [], 2: [silent], 3: [silent, *make.rows(2)]}
    before, seen = weights(models.actor), []

    def publish(version: int, model: torch.nn.Module) -> None:
        seen.append((version, same(weights(model), before)))

    config = replace(ONE, steps=3)
    counters = ppo.train(config, models, play=lambda step: Batch(batches[step]), publish=publish, run=run)
    assert seen == [(0, True), (1, False)]
    assert counters.step == 3
    assert [m["episodes"] for m in run.metrics] == [0, 1, 3]
    assert run.metrics[2]["reward_mean"] == pytest.approx((0.0 + 0.0 + 0.7) / 3)  # the silent one counts here


def test_rows_that_the_model_cannot_read_are_refused(make: SimpleNamespace, tmp_path: Path) -> None:
    def train(row: Row) -> None:
        ppo.train(
            ONE,
            make.models(),
            play=lambda step: Batch([row]),
            publish=lambda version, model: None,
            run=make.run(tmp_path),
        )

    with pytest.raises(ModelError, match="65 tokens is longer than the 64"):
        train(make.row("a", length=65))
    with pytest.raises(DataError, match="token 50 is not among the 50"):
        train(make.row("a", ids=[3, 50], prompt=1))


def test_a_broken_loss_stops_with_its_step_and_no_weight_changed(make: SimpleNamespace, tmp_path: Path) -> None:
    models = make.models()
    with torch.no_grad():
        models.actor.lm_head.weight[4, 0] = float("nan")
    before = weights(models.actor)[0]
    with pytest.raises(ModelError, match="step 1: the loss of the actor is nan"):
        ppo.train(
            ONE,
            models,
            play=lambda step: Batch(make.rows(2)),
            publish=lambda version, model: None,
            run=make.run(tmp_path),
        )
    assert torch.equal(weights(models.actor)[0], before)


def test_without_a_critic_or_the_reference_that_eta_needs_it_refuses(make: SimpleNamespace) -> None:
    with pytest.raises(ModelError, match="needs a critic"):
        ppo.make_optimisers(ONE, make.models(critic=False))
    with pytest.raises(ModelError, match=r"eta = 0\.5 needs a reference"):
        ppo.make_optimisers(replace(ONE, eta=0.5), make.models())


def test_recomputing_the_old_policy_forgets_what_was_recorded(make: SimpleNamespace) -> None:
    config = replace(ONE, recompute_old=True)
    found, mismatches = [], []
    for rows in (make.rows(4), written(make.rows(4), make.models().actor)):
        models = make.models()
        metrics = ppo.update(config, models, ppo.make_optimisers(config, models), actor_tokens(rows), step=1)
        assert metrics["approx_kl"] == pytest.approx(0, abs=1e-6)
        mismatches.append(metrics["mismatch"])
        found.append(weights(models.actor))
    assert_close(*found, atol=1e-4)
    assert mismatches[0] > 0.1 > 1e-6 > mismatches[1]  # what was recorded is still compared


def test_importance_weights_scale_the_gradient_of_what_an_older_policy_wrote(make: SimpleNamespace) -> None:
    config = replace(ONE, recompute_old=True, importance_weight=True, max_grad_norm=1e9)
    rows = written(make.rows(4), make.models().actor)
    grads = []
    for shift in (0.0, -np.log(1.5), -np.log(50)):  # behaviour less likely by these factors: weights 1, 1.5, 2 (cap)
        models = make.models()
        batch = actor_tokens([replace(row, logprobs=row.logprobs + np.float32(shift)) for row in rows])
        tensors = BatchTensors.of(batch, models.device)
        scored, metrics = ppo.score(config, models, batch, tensors, warming=False)
        ppo.accumulate_actor(config, models, batch, tensors, scored, range(len(batch.rows)))
        grads.append(models.actor.lm_head.weight.grad)
        assert metrics["importance_mean"] == pytest.approx([1, 1.5, 2][len(grads) - 1], rel=1e-4)
    torch.testing.assert_close(grads[1], grads[0] * 1.5, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(grads[2], grads[0] * 2, rtol=1e-3, atol=1e-6)


def test_rows_are_learned_at_the_temperature_that_sampled_them(make: SimpleNamespace) -> None:
    models = make.models()
    rows = [replace(row, temperature=0.5) for row in make.rows(2)]
    batch = actor_tokens(rows)
    config = replace(ONE, recompute_old=True)
    scored, _ = ppo.score(config, models, batch, BatchTensors.of(batch, models.device), warming=False)
    with torch.no_grad():
        plain = torch.cat([plain_logprobs(models.actor, row, 0.5) for row in batch.rows])
    torch.testing.assert_close(scored.old, plain, rtol=1e-4, atol=1e-5)


def test_a_step_computed_in_bfloat16_is_nearly_that_of_float32(make: SimpleNamespace) -> None:
    found = []
    for autocast in (None, torch.bfloat16):
        models = make.models()
        models.autocast = autocast
        scored = ppo.update(ONE, models, ppo.make_optimisers(ONE, models), actor_tokens(make.rows(6)), step=1)
        found.append((weights(models.actor) + weights(models.critic), scored))
    (exact, metrics), (rough, near) = found
    assert {w.dtype for w in rough} == {torch.float32}
    assert_close(rough, exact, atol=2.1 * max(ONE.actor_lr, ONE.critic_lr))  # a step of AdamW, its sign apart
    assert near["value_loss"] == pytest.approx(metrics["value_loss"], rel=0.05)


def test_a_value_head_learns_from_the_actors_states_and_leaves_them_alone(make: SimpleNamespace) -> None:
    models = make.models()
    models.critic = ValueHead(32)
    config = replace(ONE, critic_warmup=30, warmup_epochs=5, value_head_lr=0.02)
    optimisers = ppo.make_optimisers(config, models)
    before = weights(models.actor)
    metrics = [ppo.update(config, models, optimisers, actor_tokens(make.rows(6)), step=s) for s in range(1, 12)]
    assert same(weights(models.actor), before)
    assert metrics[0]["explained_variance"] == pytest.approx(0)  # it says 0 everywhere
    assert metrics[-1]["explained_variance"] > 0.3
    assert optimisers["critic"].param_groups[0]["lr"] == 0.02


def test_lora_moves_adapters_only_and_its_reference_is_the_bare_model(make: SimpleNamespace) -> None:
    models = make.models()
    bare = copy.deepcopy(models.actor)
    add_lora(models.actor, LoraConfig(4, 8), seed=0)
    base = {name: p.clone() for name, p in models.actor.named_parameters() if "lora_" not in name}
    config = replace(ONE, eta=0.5)
    optimisers = ppo.make_optimisers(config, models)
    batch = actor_tokens(make.rows(4))
    first = ppo.update(config, models, optimisers, batch, step=1)
    second = ppo.update(config, models, optimisers, batch, step=2)
    assert first["reference_penalty"] == pytest.approx(0, abs=1e-7)  # a fresh adapter is no adapter
    assert second["reference_penalty"] > 1e-7
    assert all(torch.equal(p, base[name]) for name, p in models.actor.named_parameters() if name in base)
    scored, _ = ppo.score(config, models, batch, BatchTensors.of(batch, models.device), warming=False)
    with torch.no_grad():
        plain = torch.cat([plain_logprobs(bare, row) for row in batch.rows])
    torch.testing.assert_close(scored.reference, plain, rtol=1e-4, atol=1e-5)


def test_mini_batches_cover_every_episode_once_evenly_and_anew_each_epoch() -> None:
    config = replace(ONE, mini_batch=4)
    first, second = (list(ppo.mini_batches(config, 10, 1, epoch)) for epoch in (0, 1))
    assert sorted(map(len, first)) == [3, 3, 4]
    assert sorted(np.concatenate(first).tolist()) == list(range(10))
    assert np.concatenate(first).tolist() != np.concatenate(second).tolist()


@pytest.mark.parametrize(
    "wrong",
    [
        {"aggregation": "mean"},
        {"schedule": "cosine"},
        {"importance_weight": True},
        {"mini_batch": 0},
        {"epochs": 0},
        {"lam": 1.5},
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ppo.Config(**wrong)


def test_the_defaults_are_the_papers() -> None:
    config = ppo.Config()
    assert (config.batch, config.mini_batch, config.epochs, config.steps) == (144, 36, 1, 200)
    assert (config.actor_lr, config.critic_lr, config.max_grad_norm) == (2e-6, 1e-5, 5.0)
    assert (config.critic_warmup, config.save_every, config.eta, config.lam, config.gamma) == (30, 20, 0.0, 0.95, 1.0)
    assert (config.clip, config.value_clip, config.aggregation, config.value_head_lr) == (0.2, 0.2, "token", 1e-3)
