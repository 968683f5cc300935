"""Where tokens come from, as a recipe says it; light, so that a command that needs no model loads none."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Literal

from scenarios.errors import UsageError


@dataclass(frozen=True)
class EmbeddedConfig:
    slots: int = 64  # requests that run at once, and conversations kept
    capacity: int = 0  # tokens of a slot, prompt and answer; 0: the model's context, at most 2048
    block: int = 64  # prompt tokens of one step when deterministic
    prefill_tokens: int = 1024  # most prompt tokens of one step
    deterministic: bool = False
    threads: int = 0  # of torch, from the engine's start on; 0: as it is
    process: bool = False  # decode in a process of its own: faster where a core is free, some seconds slower to start
    timeout_s: float = 600.0  # of one call, queueing included

    def __post_init__(self) -> None:
        for name, least in (("slots", 1), ("capacity", 0), ("block", 1), ("prefill_tokens", 1), ("threads", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.timeout_s <= 0:
            raise ValueError(f"timeout_s must be positive, got {self.timeout_s}")


@dataclass(frozen=True)
class VllmConfig:
    """A vLLM server that is started for each model and ended with the run, or those that run at `urls` already."""

    urls: tuple[str, ...] = ()  # base URLs; several serve the same model and share the load
    python: str = ""  # the interpreter that has vLLM; "": $SOCIALRL_VLLM_PYTHON, else this one, else the command `vllm`
    port: int = 0  # 0: a free one
    dtype: str = "auto"  # auto: float32 without a GPU, else bfloat16
    max_model_len: int = 0  # tokens, prompt and answer; 0: the model's context
    max_num_seqs: int = 64  # requests that run at once
    max_loras: int = 4  # adapters, so versions of the policy, that are loaded at once
    max_lora_rank: int = 0  # 0: that of the adapter
    kv_cache_gib: int = 1  # without a GPU
    infer_gpus: tuple[int, ...] = ()  # the GPUs of a server that is started here, several: shared out; (): as it likes
    args: tuple[str, ...] = ()  # further arguments of the server, as its command line takes them
    start_timeout_s: float = 600.0
    timeout_s: float = 600.0  # of one call
    sync_timeout_s: float = 300.0  # of new weights

    def __post_init__(self) -> None:
        least = {"port": 0, "max_model_len": 0, "max_num_seqs": 1, "max_loras": 2, "max_lora_rank": 0}
        for name, number in {**least, "kv_cache_gib": 1}.items():
            if getattr(self, name) < number:
                raise ValueError(f"{name} must be at least {number}, got {getattr(self, name)}")
        for name in ("start_timeout_s", "timeout_s", "sync_timeout_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")


@dataclass(frozen=True)
class EngineConfig:
    """Where local models run: `kind` says which of the tables below it counts."""

    kind: Literal["embedded", "vllm"] = "embedded"
    embedded: EmbeddedConfig = field(default_factory=EmbeddedConfig)
    vllm: VllmConfig = field(default_factory=VllmConfig)


def engine_sets(text: str) -> list[str]:
    """What --engine lays over a configuration: a kind, or the URLs of vLLM servers with commas between; "" nothing.

    Raises UsageError.
    """
    if text in ("", "embedded", "vllm"):
        return [f"engine.kind={text}"] if text else []
    urls = [url.strip() for url in text.split(",")]
    if all(url.startswith(("http://", "https://")) for url in urls):
        return ["engine.kind=vllm", f"engine.vllm.urls={json.dumps(urls)}"]
    raise UsageError(f"--engine {text}: expected embedded, vllm, or the URL of a vLLM server")


def check_engine(config: EngineConfig) -> None:
    """Refuse an engine that cannot be had here, before anything is written. Raises UsageError and ModelError."""
    if config.kind == "vllm":
        from socialrl_cli.engines.launching import find
        from socialrl_cli.engines.remote import checked_url

        for url in config.vllm.urls:
            checked_url(url)
        if not config.vllm.urls:
            find(config.vllm.python)
