"""How a language model is asked: settings of the harness. They stand in `socialrl.json` beside a model's weights, and a
run may lay its own over them.

    format    json    an object in the text; the last well-formed one counts
              tools   one function a move, called by the model (OpenAI tool calls)
              schema  decoding is constrained to the moves that are legal now and their fields
    memory    full    the conversation only grows, so that each call's tokens continue the last one's
              window  the briefing and the last `window` exchanges
              summary past `summary_chars` the model sums up, and goes on from its briefing and summary
    prompt    full    explains everything;  compact  for small models that know the game
    values    words   what is worth how much in words, in games that have them (calendar);  numbers
    scaffold  none    the move alone
              tom     Infer, Act, Anticipate: a belief about the counterpart, the move, the expected reply (`tom.py`)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

CHOICES: Mapping[str, tuple[str, ...]] = {
    "format": ("json", "tools", "schema"),
    "memory": ("full", "window", "summary"),
    "prompt": ("full", "compact"),
    "values": ("words", "numbers"),
    "scaffold": ("none", "tom"),
}


@dataclass(frozen=True, slots=True)
class HarnessConfig:
    """How a model is asked (see the module)."""

    format: str = "json"
    memory: str = "full"
    prompt: str = "full"
    temperature: float = 1.0
    max_tokens: int = 512  # of one answer
    scaffold: str = "none"
    values: str = "words"
    window: int = 8  # exchanges that memory "window" keeps
    summary_chars: int = 8000  # of all messages, past which memory "summary" compacts

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            if (value := getattr(self, name)) not in known:
                raise ValueError(f"{name} is {value!r}, expected {' or '.join(known)}")
        if not 0 <= self.temperature <= 10:
            raise ValueError(f"temperature is {self.temperature}, expected 0 to 10")
        for name in ("max_tokens", "window", "summary_chars"):
            if (number := getattr(self, name)) < 1:
                raise ValueError(f"{name} is {number}, expected at least 1")


@dataclass(frozen=True, slots=True)
class HarnessOverride:
    """What a run says over a model's own settings; None leaves them as they are."""

    format: str | None = None
    memory: str | None = None
    prompt: str | None = None
    scaffold: str | None = None
    values: str | None = None
    window: int | None = None
    summary_chars: int | None = None

    def __post_init__(self) -> None:
        self.over(HarnessConfig())

    def given(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    def over(self, config: HarnessConfig) -> HarnessConfig:
        """The settings with these laid over them. Raises ValueError."""
        return replace(config, **self.given())
