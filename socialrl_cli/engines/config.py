"""Where tokens come from, as a recipe says it; light, so that a command that needs no model loads none."""

from __future__ import annotations

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
class EngineConfig:
    """Where local models run: `kind` says which of the tables below it counts."""

    kind: Literal["embedded"] = "embedded"
    embedded: EmbeddedConfig = field(default_factory=EmbeddedConfig)


def engine_sets(text: str) -> list[str]:
    """What --engine lays over a configuration; "" nothing. Raises UsageError."""
    if text in ("", "embedded"):
        return [f"engine.kind={text}"] if text else []
    raise UsageError(
        f"--engine {text}: only embedded runs models here; name a served model as openai:MODEL@BASE_URL instead"
    )
