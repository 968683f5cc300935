"""The run directory as trainer processes beside the first see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class Beside:
    """A run that another process owns: there is nothing to read and nothing to write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.watchers: list[Callable[[int, Mapping[str, Any]], None]] = []

    def log(self, _step: int, _metrics: Mapping[str, Any]) -> None: ...
    def save(self, _step: int, _write: Callable[[Path], None]) -> None: ...
    def mark_best(self, _step: int, _score: float, _delegate: str = "") -> None: ...
    def done(self) -> None: ...

    def latest(self) -> None:
        return None

    def should_stop(self) -> bool:
        return False

    def metrics(self) -> list[dict[str, Any]]:
        return [{"step": 0}]
