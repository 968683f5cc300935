"""What frames an episode: its limits, what came back for each notification, how it ended, and seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

from envs.events import Action
from rewards.core import SeatScore


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds an episode. A decision may take `decide_timeout_s` per attempt, of which it has 1 + `retries`."""

    moves_per_seat: int = 10
    retries: int = 2
    say_chars: int = 1000
    decide_timeout_s: float | None = 300.0
    episode_timeout_s: float | None = 3600.0

    def __post_init__(self) -> None:
        times = [limit for limit in (self.decide_timeout_s, self.episode_timeout_s) if limit is not None]
        if self.moves_per_seat < 1 or self.retries < 0 or self.say_chars < 1 or any(limit <= 0 for limit in times):
            raise ValueError(f"limits must be positive, got {self}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an episode ended; `by` is the seat that closed it, `error` says why it was aborted."""

    status: Literal["agreement", "walk_away", "timeout", "aborted"]
    agreement: Mapping[str, Any] | None = None
    by: str | None = None
    seats: Mapping[str, SeatScore] = field(default_factory=dict)
    measures: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "agreement": self.agreement,
            "by": self.by,
            "seats": {seat: scored.to_json() for seat, scored in self.seats.items()},
            "measures": dict(self.measures),
            "error": self.error,
        }


class Answer(NamedTuple):
    """What came back for one notification; enough to play the episode again."""

    seat: str
    notification_id: str
    kind: Literal["action", "invalid", "timeout", "error", "absent"]
    action: Action | None = None
    text: str = ""
    reason: str = ""


def derive_seed(*parts: str | int) -> int:
    """A 63-bit seed from the names of what it is for: the same parts give the same seed on any machine."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "big") >> 1
