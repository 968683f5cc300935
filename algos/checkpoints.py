"""Checkpoints: a folder from which a run goes on as if it had never stopped.

    step-N/
      actor/         an ordinary model folder (or an adapter folder): weights, tokenizer, chat template, and what else
                     lay beside the model that it came from
      critic/        the same for the critic, with value_head.pt
      optimisers.pt  states of the optimisers, and torch's random state
      trainer.json   the counters; written last, so a folder without it is torn

Where several delegates are trained together, step-N has a sub-folder with all of this for each.
Whole tensors, whatever the number of trainer processes that wrote or read it: the first one writes, all of them read.
Weights are loaded into the modules in place: an engine that shares them sees them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from algos import distributed
from algos.critic import Critic, ValueHead, load_head, save_head
from algos.models import Models, load_actor, load_critic
from scenarios.errors import RunError, SocialRLError

COUNTERS, OPTIMISERS = "trainer.json", "optimisers.pt"
WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx"}
OF_WHOLE_MODELS = ("config.json", ".index.json")  # save_pretrained writes them where they belong; an adapter has none
SMALL_BYTES = 8 << 20  # files beside a model that are larger than this are not settings


@dataclass(slots=True)
class Counters:
    """Where a run stands."""

    step: int = 0
    policy_version: int = 0  # how often the actor's weights have been published anew
    episodes: int = 0
    tokens: int = 0  # actor tokens trained on


def writer(
    models: Models, optimisers: Mapping[str, torch.optim.Optimizer], counters: Counters
) -> Callable[[Path], None]:
    """What fills a checkpoint folder, for the first process; all of them bring their part of the state as it is now."""
    models = models.whole()
    state = {name: distributed.gathered(optimiser.state_dict()) for name, optimiser in optimisers.items()}

    def write(folder: Path) -> None:
        save_model_folder(folder / "actor", models)
        if models.critic is not None:
            (folder / "critic").mkdir()
            if isinstance(models.critic, Critic):
                models.critic.backbone.save_pretrained(folder / "critic")
            save_head(models.critic, folder / "critic")
        torch.save({"optimisers": state, "random": torch.get_rng_state()}, folder / OPTIMISERS)
        (folder / COUNTERS).write_text(json.dumps(asdict(counters)) + "\n", encoding="utf-8")

    return write


def joint(writers: Mapping[str, Callable[[Path], None]]) -> Callable[[Path], None]:
    """What fills a folder with a sub-folder by each of these; the name "" means the folder itself."""

    def write(folder: Path) -> None:
        for name, part in writers.items():
            (folder / name).mkdir(exist_ok=True)
            part(folder / name)

    return write


def save_model_folder(folder: Path, models: Models) -> None:
    """Write the actor as a folder that loads by itself, with the small files that lay beside its source."""
    folder.mkdir(parents=True, exist_ok=True)
    save_actor(folder, models)
    models.tokenizer.save_pretrained(folder)
    for name, text in models.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    source = Path(models.source)
    for file in sorted(source.iterdir()) if source.is_dir() else ():
        new = folder / file.name
        small = file.is_file() and file.stat().st_size <= SMALL_BYTES and file.suffix not in WEIGHTS
        if small and not new.exists() and not file.name.endswith(OF_WHOLE_MODELS):
            shutil.copyfile(file, new)


def save_actor(folder: Path, models: Models) -> None:
    """The actor's weights and configuration alone, or its adapter's: what an engine elsewhere needs."""
    models.actor.save_pretrained(folder)


def resume(folder: Path | None, models: Models, optimisers: Mapping[str, torch.optim.Optimizer]) -> Counters:
    """Load a checkpoint into the models and optimisers in place; None starts from zero.

    Raises RunError for a checkpoint that is torn or of other models.
    """
    if folder is None:
        return Counters()
    try:
        counters = Counters(**json.loads((folder / COUNTERS).read_text(encoding="utf-8")))
        saved: dict[str, Any] = torch.load(folder / OPTIMISERS, map_location="cpu", weights_only=True)
        _load_actor_into(models, folder / "actor")
        _load_critic_into(models.critic, folder / "critic")
        for name, optimiser in optimisers.items():
            optimiser.load_state_dict(_parts_of(saved["optimisers"][name], optimiser))
        torch.set_rng_state(saved["random"])
    except (SocialRLError, OSError, KeyError, TypeError, ValueError, RuntimeError, EOFError) as error:
        raise RunError(
            f"{folder}: this checkpoint is torn, or of other models ({error}); remove it to go on from the one before"
        ) from error
    return counters


def _parts_of(saved: dict[str, Any], optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    """A saved state with what this process holds of each tensor that is as large as its parameter."""
    parameters = [p for group in optimiser.param_groups for p in group["params"]]

    def part(value: Any, parameter: torch.Tensor) -> Any:
        whole = isinstance(value, torch.Tensor) and value.shape == parameter.shape
        return distributed.like(value, parameter) if whole else value

    state = {
        number: {name: part(value, parameters[number]) for name, value in states.items()}
        for number, states in saved["state"].items()
    }
    return saved | {"state": state}


def _load_actor_into(models: Models, folder: Path) -> None:
    if models.lora:
        from peft import set_peft_model_state_dict
        from safetensors.torch import load_file

        set_peft_model_state_dict(models.actor, load_file(folder / "adapter_model.safetensors"))
        return
    loaded, _ = load_actor(folder)
    distributed.load_whole(models.actor, loaded.state_dict())


def _load_critic_into(critic: Critic | ValueHead | None, folder: Path) -> None:
    if isinstance(critic, Critic):
        distributed.load_whole(critic, load_critic(folder).state_dict())
    elif critic is not None and not load_head(critic, folder):
        raise ValueError("no value head in it")
