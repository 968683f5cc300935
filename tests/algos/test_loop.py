"""Two delegates that are trained side by side, in a game of two that is too small to need an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from algos import ppo
from algos.loop import Batch, learn
from algos.models import LoraConfig, add_lora

CONFIG = ppo.Config(critic_warmup=1, steps=4, mini_batch=5, actor_lr=1e-3, critic_lr=1e-3, save_every=100)
STILL = replace(CONFIG, actor_lr=0.0)


def weights(module: torch.nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in module.parameters()]


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


class Duet:
    """After a prompt of four tokens the first writes three, then the second; twice. The first is paid for its tokens
    below 16, the second for its others."""

    def __init__(self, make: SimpleNamespace, actors: Mapping[str, Any], games: int) -> None:
        self.make, self.actors, self.games = make, actors, games
        self.versions = dict.fromkeys(actors, 0)
        self.published: list[tuple[str, int]] = []

    def play(self, step: int) -> dict[str, Batch]:
        generator = torch.Generator().manual_seed(step)
        ids = torch.randint(3, 50, (self.games, 4), generator=generator)
        logprobs, writers = [torch.zeros(self.games, 4)], [""] * 4
        for name in (*self.actors, *self.actors):
            for _ in range(3):
                with torch.no_grad():
                    every = self.actors[name](input_ids=ids, use_cache=False).logits[:, -1].log_softmax(-1)
                new = torch.multinomial(every.exp(), 1, generator=generator)
                logprobs.append(every.gather(1, new))
                ids = torch.cat([ids, new], 1)
                writers.append(name)
        behaviour = torch.cat(logprobs, 1).numpy()
        found = {}
        for name in self.actors:
            mine = [writer == name for writer in writers]
            paid = ids[:, torch.tensor(mine)] < 16 if name == "first" else ids[:, torch.tensor(mine)] >= 16
            rows = [
                self.make.row(
                    str(i), ids=ids[i].tolist(), mask=mine, prompt=4, logprobs=behaviour[i], seat=name,
                    reward=float(paid[i].float().mean()), policy_version=self.versions[name],
                )
                for i in range(self.games)
            ]  # fmt: skip
            found[name] = Batch(rows, {"utility": float(name == "first")})
        return found

    def publish(self, name: str, version: int, _actor: torch.nn.Module) -> None:
        self.versions[name] = version
        self.published.append((name, version))


def begin(make: SimpleNamespace, lora: bool = False) -> dict[str, Any]:
    found = {"first": make.models(0), "second": make.models(5)}
    for seed, models in enumerate(found.values()):
        if lora:
            add_lora(models.actor, LoraConfig(4, 8), seed=seed)
    return found


def go(
    make: SimpleNamespace, run: Any, models: dict[str, Any], *configs: ppo.Config, games: int = 10, **more: Any
) -> tuple[dict[str, ppo.Learner], Duet]:
    learners = {name: ppo.Learner(how, models[name]) for name, how in zip(models, configs, strict=True)}
    duet = Duet(make, {name: one.actor for name, one in models.items()}, games)
    steps, save_every = configs[0].steps, configs[0].save_every
    parts = {"play": duet.play, "publish": duet.publish} | more
    learn(learners, steps=steps, save_every=save_every, run=run, **parts)
    return learners, duet


def test_both_learn_what_each_is_paid_for(make: SimpleNamespace, tmp_path: Path) -> None:
    run, models = make.run(tmp_path), begin(make)
    config = replace(CONFIG, steps=9, mini_batch=8, actor_lr=5e-3, critic_lr=5e-3)
    learners, duet = go(make, run, models, config, config, games=24)
    first, last = run.metrics[0], run.metrics[-1]
    for name in models:
        assert last[f"{name}/reward_mean"] > first[f"{name}/reward_mean"] + 0.1
        assert last[f"{name}/staleness_max"] == 0
        assert last[f"{name}/mismatch"] < 1e-6
        assert learners[name].counters.policy_version == last[f"{name}/policy_version"] == 8
        assert learners[name].counters.tokens == 9 * 24 * 6
    assert (last["first/utility"], last["second/utility"]) == (1.0, 0.0)
    assert "reward_mean" not in last
    assert last["play_s"] > 0
    assert duet.published[:4] == [("first", 0), ("second", 0), ("first", 1), ("second", 1)]


def test_each_ones_weights_come_from_its_own_rows_alone(make: SimpleNamespace, tmp_path: Path) -> None:
    """Side by side they end as each would alone with the same rows; without rows nothing moves."""
    rows = {name: [make.rows(6, seed=10 * seed + step) for step in range(4)] for seed, name in enumerate(begin(make))}
    together = begin(make)
    parts = {"play": lambda step: {name: Batch(rows[name][step - 1]) for name in rows}}
    go(make, make.run(tmp_path / "both"), together, CONFIG, CONFIG, **parts)
    for name, one in begin(make).items():
        start = weights(one.actor)
        play, run = (lambda step, name=name: Batch(rows[name][step - 1])), make.run(tmp_path / name)
        ppo.train(CONFIG, one, play=play, publish=lambda version, actor: None, run=run)
        assert not same(weights(one.actor), start)
        assert same(weights(one.actor), weights(together[name].actor))
        assert same(weights(one.critic), weights(together[name].critic))
    idle = begin(make)
    before = {name: weights(one.actor) + weights(one.critic) for name, one in idle.items()}
    parts = {"play": lambda step: {"first": Batch(rows["first"][step - 1]), "second": Batch([])}}
    learners, _ = go(make, make.run(tmp_path / "idle"), idle, CONFIG, CONFIG, **parts)
    assert not same(weights(idle["first"].actor) + weights(idle["first"].critic), before["first"])
    assert same(weights(idle["second"].actor) + weights(idle["second"].critic), before["second"])
    assert [one.counters.policy_version for one in learners.values()] == [3, 0]


def test_beside_one_whose_rate_is_zero_it_learns_as_if_alone(make: SimpleNamespace, tmp_path: Path) -> None:
    together, alone = begin(make), begin(make)
    frozen = weights(together["second"].actor)
    go(make, make.run(tmp_path / "both"), together, CONFIG, STILL)
    duet = Duet(make, {name: one.actor for name, one in alone.items()}, 10)
    ppo.train(
        CONFIG,
        alone["first"],
        play=lambda step: duet.play(step)["first"],
        publish=lambda version, actor: duet.publish("first", version, actor),
        run=make.run(tmp_path / "alone"),
    )
    assert same(weights(together["first"].actor), weights(alone["first"].actor))
    assert same(weights(together["first"].critic), weights(alone["first"].critic))
    assert same(weights(together["second"].actor), frozen)


@pytest.mark.parametrize("lora", [False, True])
def test_a_resumed_run_of_two_equals_an_uninterrupted_one(make: SimpleNamespace, tmp_path: Path, lora: bool) -> None:
    whole, resumed = begin(make, lora), begin(make, lora)
    learners, _ = go(make, make.run(tmp_path / "whole"), whole, CONFIG, CONFIG)
    go(make, make.run(tmp_path / "cut", stop_after=2), begin(make, lora), CONFIG, CONFIG)
    run = make.run(tmp_path / "cut")
    again, _ = go(make, run, resumed, CONFIG, CONFIG)
    assert [line["step"] for line in run.metrics] == [3, 4]
    for name in whole:
        assert again[name].counters == learners[name].counters
        assert same(weights(resumed[name].actor), weights(whole[name].actor))
        assert same(weights(resumed[name].critic), weights(whole[name].critic))
        assert not same(weights(whole[name].actor), weights(begin(make, lora)[name].actor))


def test_a_checkpoint_holds_both_and_each_has_a_best_one(make: SimpleNamespace, tmp_path: Path) -> None:
    run = make.run(tmp_path)
    scores = {2: {"first": 0.5, "second": 0.1}, 4: {"first": 0.3, "second": 0.2}}
    config = replace(CONFIG, save_every=2)
    go(make, run, begin(make), config, config, validate=scores.__getitem__)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-2", "step-4"]
    for name in ("first", "second"):
        files = {path.name for path in (tmp_path / "step-4" / name).iterdir()}
        assert files == {"actor", "critic", "optimisers.pt", "trainer.json"}
    assert run.best == [(2, 0.5, "first"), (2, 0.1, "second"), (4, 0.3, "first"), (4, 0.2, "second")]
    assert [line.get("second/validation") for line in run.metrics] == [None, 0.1, None, 0.2]
