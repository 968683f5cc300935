"""Makes a `VllmEngine` for a model: starts a server or attaches to those that run, and has them show what they can.

A model that is an adapter is served as its base with the adapter loaded. A trainer's full weights are published by
reload from a folder; a model with tied embeddings is refused there, since vLLM then keeps the old output layer.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scenarios.errors import ModelError
from socialrl_cli.engines import launching, probing, server
from socialrl_cli.engines.config import VllmConfig
from socialrl_cli.engines.live import Adapters, Loaded, Weights, Whole
from socialrl_cli.engines.remote import Upstream
from socialrl_cli.engines.vllm import VllmEngine
from socialrl_cli.output import note
from socialrl_cli.placement import check_gpus

if TYPE_CHECKING:
    from algos.models import Models

LOG, WEIGHTS = "vllm.log", "weights"
KEY = "OPENAI_API_KEY"  # for servers elsewhere, as everywhere


def open_vllm(config: VllmConfig, *, name: str, path: str, work: Path, trained: Models | None = None) -> VllmEngine:
    """See `opening.open_engine`. Raises EngineError, ModelError, UsageError and RunError."""
    from algos.checkpoints import save_actor
    from algos.models import actor_folder, is_adapter, load_tokenizer

    folder = str(actor_folder(path))
    adapter = Path(folder) if is_adapter(folder) else None
    base = _base_of(adapter) if adapter is not None else folder
    if trained is not None and not trained.lora:
        _check_untied(trained)
    tokenizer = load_tokenizer(folder) if trained is None else trained.tokenizer
    shape, ends = _settings(base, tokenizer)
    rank = _rank(adapter, trained)
    weights_folder = work / WEIGHTS
    shutil.rmtree(weights_folder, ignore_errors=True)  # of an attempt that was killed

    owned, key = None, None
    urls = list(config.urls)
    if not urls:
        owned = _server(config, name, base, work / LOG, rank)
        note(f"{name}: starting {launching.find(config.python)} for {base}; log: {work / LOG}")
        owned.start()
        urls = [owned.url]
    else:
        key = os.environ.get(KEY)
    try:
        offers = [probing.probe(url, key, tokenizer) for url in urls]
        for offer in offers:
            note(f"{name}: {offer}")
            _check_offer(offer, adapter is not None, trained)
        upstreams = [Upstream(offer.url, key, timeout_s=config.timeout_s) for offer in offers]
        weights = _weights(config, name, upstreams, offers, adapter, trained, key)
    except BaseException:
        if owned is not None:
            owned.stop()
        raise
    capacity = min([offer.max_len for offer in offers if offer.max_len] or [shape.max_position_embeddings])
    save = None if trained is None else lambda target: save_actor(target, trained)
    return VllmEngine(
        upstreams, weights, tokenizer, name=name, capacity=capacity, vocabulary=shape.vocab_size, ends=ends,
        save=save, folder=weights_folder, owned=owned,
    )  # fmt: skip


def _server(config: VllmConfig, name: str, base: str, log: Path, rank: int) -> server.Server:
    import torch

    check_gpus((), config.infer_gpus)
    gpu = torch.cuda.is_available()
    dtype = config.dtype if config.dtype != "auto" else "bfloat16" if gpu else "float32"
    port = server.free_port(config.port)
    launcher = launching.find(config.python)
    words = launching.command(launcher, config, base, port=port, dtype=dtype, rank=rank, gpu=gpu)
    environment = launching.environment(config, base)
    return server.Server(name, words, environment, port=port, log=log, start_timeout_s=config.start_timeout_s)


def _weights(
    config: VllmConfig, name: str, servers: list[Upstream], offers: list[probing.Offer], adapter: Path | None,
    trained: Models | None, key: str | None,
) -> Weights:  # fmt: skip
    current = Loaded(offers[0].model, 0)
    if trained is not None and not trained.lora:
        return Whole(servers, name, current, timeout_s=config.sync_timeout_s)
    if trained is None and adapter is None:
        return Weights(servers, name, current, timeout_s=config.sync_timeout_s)
    adapters = Adapters(servers, name, current, timeout_s=config.sync_timeout_s, most=config.max_loras)
    if trained is None and adapter is not None:
        frozen = Loaded(f"{adapter.parent.name}-{adapters.salt}", 0, adapter.absolute())
        for offer in offers:
            body = {"lora_name": frozen.name, "lora_path": str(frozen.folder)}
            server.ask(offer.url + probing.LOAD, body, key=key, timeout_s=config.sync_timeout_s)
        adapters.adopt(frozen)
    return adapters


def _check_offer(offer: probing.Offer, adapter: bool, trained: Models | None) -> None:
    if (adapter or (trained is not None and trained.lora)) and not offer.adapters:
        raise ModelError(
            f"{offer.url}: adapters cannot be loaded there; start it with --enable-lora and "
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in its environment"
        )
    if trained is not None and not trained.lora and not offer.reload:
        raise ModelError(
            f"{offer.url}: full weights cannot be changed there; start it with VLLM_SERVER_DEV_MODE=1 in its "
            "environment, or train an adapter (model.lora.rank=…)"
        )


def _check_untied(models: Models) -> None:
    if getattr(models.actor.config, "tie_word_embeddings", False):
        raise ModelError(
            f"{models.source}: its output layer is tied to its embeddings, and vLLM would keep the old one when full "
            "weights are published; train an adapter (model.lora.rank=…), or use --engine embedded"
        )


def _base_of(adapter: Path) -> str:
    """The folder or hub name of the model that an adapter belongs to."""
    named = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8")).get("base_model_name_or_path")
    if not named:
        raise ModelError(f"{adapter}: its adapter_config.json names no base model")
    return str(named)


def _rank(adapter: Path | None, trained: Models | None) -> int:
    """Of the adapters that the server will hold; 0 for none."""
    if trained is not None:
        return int(trained.actor.peft_config["default"].r) if trained.lora else 0
    if adapter is None:
        return 0
    return int(json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))["r"])


def _settings(base: str, tokenizer: Any) -> tuple[Any, frozenset[int]]:
    """The configuration of the text model, and the tokens that end an answer, without loading the weights."""
    from types import SimpleNamespace

    from transformers import AutoConfig, GenerationConfig

    from algos.grammars import ending_tokens

    config = AutoConfig.from_pretrained(base)
    try:
        generation: Any = GenerationConfig.from_pretrained(base)
    except OSError:
        generation = GenerationConfig.from_model_config(config)
    return config.get_text_config(), ending_tokens(SimpleNamespace(generation_config=generation), tokenizer)
