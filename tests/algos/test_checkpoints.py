from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from algos import checkpoints, models
from algos.checkpoints import Counters
from algos.models import LoraConfig, ModelConfig
from algos.optim import adamw
from scenarios.errors import ModelError, RunError


def folder_of(make: SimpleNamespace, path: Path, **shape: Any) -> Path:
    """A model folder as the tool builds one, with a settings file of its own beside the weights."""
    make.qwen3(3, vocabulary=len(make.tokenizer()), **shape).save_pretrained(path)
    make.tokenizer().save_pretrained(path)
    (path / "socialrl.json").write_text('{"prompt": "compact"}')
    (path / "stale.bin").write_text("weights of another kind")
    return path


def moved(loaded: Any) -> dict[str, torch.optim.Optimizer]:
    """One optimiser step on everything, so that nothing is as it was loaded."""
    optimisers = {"actor": adamw(loaded.trainable(), 0.1)}
    if loaded.critic is not None:
        optimisers["critic"] = adamw(loaded.critic.parameters(), 0.1)
    for optimiser in optimisers.values():
        for parameter in optimiser.param_groups[0]["params"]:
            parameter.grad = torch.ones_like(parameter)
        optimiser.step()
    return optimisers


def state(loaded: Any) -> dict[str, torch.Tensor]:
    critic = {} if loaded.critic is None else {f"critic.{k}": v for k, v in loaded.critic.state_dict().items()}
    return {**loaded.actor.state_dict(), **critic}


@pytest.mark.parametrize(
    ("tied", "critic", "lora"), [(False, "", None), (True, "value_head", None), (False, "value_head", LoraConfig(4, 8))]
)
def test_what_is_saved_comes_back_in_place(
    make: SimpleNamespace, tmp_path: Path, tied: bool, critic: str, lora: LoraConfig | None
) -> None:
    config = ModelConfig(actor=str(folder_of(make, tmp_path / "model", tied=tied)), critic=critic, lora=lora)
    first = models.load(config, critic=True)
    optimisers = moved(first)
    step = tmp_path / "step-3"
    step.mkdir()
    checkpoints.writer(first, optimisers, Counters(3, 2, 10, 500))(step)

    second = models.load(config, critic=True)
    fresh = {name: adamw(o.param_groups[0]["params"], 0.1) for name, o in moved(second).items()}
    pointers = [p.data_ptr() for p in second.actor.parameters()]
    assert checkpoints.resume(step, second, fresh) == Counters(3, 2, 10, 500)
    assert [p.data_ptr() for p in second.actor.parameters()] == pointers  # an engine that shares them sees them
    assert state(first).keys() == state(second).keys()
    assert all(torch.equal(a, state(second)[name]) for name, a in state(first).items())
    for name, optimiser in optimisers.items():
        theirs = fresh[name].state_dict()["state"]
        for index, values in optimiser.state_dict()["state"].items():
            assert all(torch.equal(torch.as_tensor(v), torch.as_tensor(theirs[index][k])) for k, v in values.items())


@pytest.mark.parametrize("lora", [None, LoraConfig(4, 8)])
def test_a_checkpoint_is_a_model_folder_with_everything(
    make: SimpleNamespace, tmp_path: Path, lora: LoraConfig | None
) -> None:
    source = folder_of(make, tmp_path / "model")
    loaded = models.load(ModelConfig(actor=str(source), lora=lora), critic=True)
    optimisers = moved(loaded)
    step = tmp_path / "step-1"
    step.mkdir()
    checkpoints.writer(loaded, optimisers, Counters(1))(step)

    assert (step / "actor" / "socialrl.json").read_text() == '{"prompt": "compact"}'
    assert not (step / "actor" / "stale.bin").exists()
    actor, tokenizer = models.load_actor(step)  # by the checkpoint's own name
    assert tokenizer.chat_template == make.chatml
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        assert torch.equal(actor(input_ids=ids).logits, loaded.actor(input_ids=ids).logits)
    critic = models.load_critic(step / "critic")
    assert all(torch.equal(a, b) for a, b in zip(critic.parameters(), loaded.critic.parameters(), strict=True))

    again = models.load(ModelConfig(actor=str(step), lora=lora))  # and training goes on from it
    assert again.lora == (lora is not None)
    assert len(again.trainable()) == len(loaded.trainable())


@pytest.mark.parametrize("missing", ["trainer.json", "optimisers.pt", "actor/model.safetensors", "critic"])
def test_a_torn_checkpoint_is_never_taken(make: SimpleNamespace, tmp_path: Path, missing: str) -> None:
    loaded = models.load(ModelConfig(actor=str(folder_of(make, tmp_path / "model"))), critic=True)
    step = tmp_path / "step-1"
    step.mkdir()
    checkpoints.writer(loaded, moved(loaded), Counters(1))(step)
    target = step / missing
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    before = {name: value.clone() for name, value in state(loaded).items()}
    with pytest.raises(RunError, match="step-1: this checkpoint is torn"):
        checkpoints.resume(step, loaded, _optimisers(loaded))
    if missing in ("trainer.json", "optimisers.pt"):
        assert all(torch.equal(value, before[name]) for name, value in state(loaded).items())


def _optimisers(loaded: Any) -> dict[str, torch.optim.Optimizer]:
    return {"actor": adamw(loaded.trainable(), 0.1), "critic": adamw(loaded.critic.parameters(), 0.1)}


def test_a_checkpoint_of_another_model_is_refused(make: SimpleNamespace, tmp_path: Path) -> None:
    small = models.load(ModelConfig(actor=str(folder_of(make, tmp_path / "small"))), critic=True)
    step = tmp_path / "step-1"
    step.mkdir()
    checkpoints.writer(small, moved(small), Counters(1))(step)
    large = models.load(ModelConfig(actor=str(folder_of(make, tmp_path / "large", hidden=48))), critic=True)
    with pytest.raises(RunError, match="of other models"):
        checkpoints.resume(step, large, _optimisers(large))


def test_a_run_without_a_checkpoint_starts_at_zero(make: SimpleNamespace) -> None:
    assert checkpoints.resume(None, make.models(), {}) == Counters(0, 0, 0, 0)


def test_a_model_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere: the model cannot be loaded"):
        models.load_actor(tmp_path / "nowhere")
