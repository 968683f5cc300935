"""Opens the engine that a configuration names: the one place where a model meets the kind of engine that runs it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING

from socialrl_cli.engines.base import Engine
from socialrl_cli.engines.config import EngineConfig

if TYPE_CHECKING:
    from algos.models import Models


def open_engine(
    config: EngineConfig, *, name: str, path: str, work: Path, trained: Models | None = None, overlapping: bool = False
) -> Engine:
    """The engine of the model in the folder (or under the hub name) `path`, called `name` in answers and errors.

    `work` is a folder for what an engine leaves behind (a server's log, weights on their way). `trained`: the same
    model as a trainer has loaded it, whose weights `publish` hands on; `overlapping`: it decodes while they are
    trained. The caller closes the engine. Raises ModelError, EngineError, UsageError and RunError.
    """
    if config.kind == "vllm":
        from socialrl_cli.engines.starting import open_vllm

        return open_vllm(config.vllm, name=name, path=path, work=work, trained=trained)
    from algos.models import load_actor
    from socialrl_cli.engines.embedded import EmbeddedEngine

    model, tokenizer = (trained.actor, trained.tokenizer) if trained is not None else load_actor(path)
    if trained is None or not overlapping:
        return EmbeddedEngine(model, tokenizer, config.embedded, model_name=name)
    return EmbeddedEngine(copy.deepcopy(model), tokenizer, config.embedded, model_name=name, follows=model)
