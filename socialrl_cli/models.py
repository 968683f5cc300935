"""From what a user calls a model to a folder that transformers loads.

    tiny            the bundled small model, built on first use (`tiny.py`)
    run:DIR[@STEP]  a checkpoint of a run (run:DIR/NAME[@STEP]: of one delegate of it)
    FOLDER          an ordinary model folder; a checkpoint of a run is one
    FILE.gguf       turned once into a folder in the cache, in float32
    NAMESPACE/ID    a hub id, for who has a hub

Errors are ModelError or UsageError with one line that says what is missing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import getproxies

from scenarios.errors import ModelError, UsageError
from socialrl_cli.engines.http11 import reach
from socialrl_cli.participants import Participant, parse

if TYPE_CHECKING:
    from algos.models import ModelConfig

WEIGHTS = ("config.json", "adapter_config.json")


def resolve(name: str, *, critic: bool = False, seed: int = 0) -> str:
    """The folder (or hub id) that a model name means; `critic` asks for tiny's critic."""
    if name == "tiny":
        from socialrl_cli.tiny import ensure

        return str(ensure(seed=seed) / ("critic" if critic else "actor"))
    if name.startswith("run:"):
        return str(Path(resolve_participant(parse(name))).parent / ("critic" if critic else "actor"))
    path = Path(name).expanduser()
    if path.suffix == ".gguf" and path.is_file():
        return str(from_gguf(path))
    return _folder(name)


def located(config: ModelConfig) -> ModelConfig:
    """The configuration of a training run with folders for names."""
    from algos.models import VALUE_HEAD

    critic = config.critic
    if critic not in ("", VALUE_HEAD):
        critic = resolve(critic, critic=True)
    return replace(config, actor=resolve(config.actor), critic=critic)


def _folder(name: str) -> str:
    path = Path(name).expanduser()
    if path.is_dir():
        inner = path / "actor"
        if not any((folder / file).exists() for folder in (path, inner) for file in WEIGHTS):
            raise ModelError(f"{path}: no model here (no config.json); a run's checkpoint is named run:RUN_DIR[@STEP]")
        return str(path)
    if path.exists():
        raise ModelError(f"{path}: expected a model folder or a .gguf file")
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        _check_hub(name)
        return name
    raise UsageError(f"no model {name!r}: no such folder, and no hub id (NAMESPACE/NAME)")


def _check_hub(name: str) -> None:
    """Say at once that a model can come from nowhere, instead of after a minute of tries. Raises ModelError."""
    from huggingface_hub import constants, try_to_load_from_cache

    if constants.HF_HUB_OFFLINE or getproxies() or isinstance(try_to_load_from_cache(name, "config.json"), str):
        return
    try:
        reach(constants.ENDPOINT)
    except OSError as error:
        raise ModelError(
            f"{name}: there is no such folder, the cache does not have it, and {constants.ENDPOINT} cannot be reached "
            f"({error.strerror or error}); write ./{name} if you mean a folder"
        ) from error


def resolve_participant(participant: Participant) -> str:
    """The folder of a `model:` or `run:` participant."""
    if participant.kind == "run":
        from socialrl_cli.rundir import find_checkpoint

        return str(find_checkpoint(participant.name, participant.step) / "actor")
    return resolve(participant.name)


def check_participant(participant: Participant) -> None:
    """Raises UsageError or ModelError when there is no such model or run; loads and builds nothing."""
    if participant.kind == "run":
        resolve_participant(participant)
    elif participant.name != "tiny" and not (participant.name.endswith(".gguf") and Path(participant.name).is_file()):
        _folder(participant.name)


def quiet() -> None:
    """Keep transformers' progress bars and advice off the terminal."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def from_gguf(file: Path) -> Path:
    """An ordinary folder with the weights of a GGUF file, dequantised to float32 and kept in the cache."""
    from socialrl_cli.tiny import cache_dir

    if not file.is_file():
        raise UsageError(f"no model file {file}")
    digest = hashlib.blake2b(
        f"{file.resolve()} {file.stat().st_size} {file.stat().st_mtime_ns}".encode(), digest_size=6
    )
    target = cache_dir() / f"gguf-{file.stem}-{digest.hexdigest()}"
    if target.exists():
        return target
    try:
        import gguf  # noqa: F401
    except ImportError as error:
        raise ModelError(f"{file}: reading GGUF needs the package gguf (pip install gguf)") from error
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        where: dict[str, Any] = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
        quantised = GgufConfig(gguf_file=file.name, dequantize=True)
        model = AutoModelForCausalLM.from_pretrained(**where, quantization_config=quantised, dtype=torch.float32)
        model.save_pretrained(work)
        AutoTokenizer.from_pretrained(**where).save_pretrained(work)
        os.replace(work, target)
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        raise ModelError(f"{file}: transformers cannot read it: {' '.join(str(error).split())[:200]}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target
