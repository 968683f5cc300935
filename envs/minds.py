"""What one may think of a counterpart, and whether it was right: beliefs about its private state, and predictions of
its next move. Pure functions, for the scaffold that asks models for both (`envs.agents.tom`) and for analysis.

A game describes its counterpart as one `Mind` in its module, under the name MIND. A prediction is the name of the
counterpart's next move and, for `propose`, whether the offer will be better, equal or worse for oneself than the
counterpart's last one:

    {"reply": "propose", "offer": "better"}        {"reply": "accept"}

It has no field "move", so that a piece of a broken answer is never taken for one's own move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envs.events import Event
from scenarios.core import Scenario

MOVE_OF = {
    "message": "message",
    "proposal": "propose",
    "accept": "accept",
    "reject": "reject",
    "walk_away": "walk_away",
}
COMPARISONS = ("better", "equal", "worse")
SAME = 1e-9  # offers whose worth differs by less are equal


@dataclass(frozen=True, slots=True)
class Mind:
    """`about` says in words what a belief is, `schema` in JSON schema; `truth(scenario, seat)` is the counterpart's
    private state in that form (None where it has none); `worth(scenario, seat, given)` rates, higher is better for
    the seat, what accepting an offer gives it (`gives` of a proposal); a number is right when it is `within` this
    part of the true one."""

    about: str
    schema: Mapping[str, Any]
    truth: Callable[[Scenario, str], Any]
    worth: Callable[[Scenario, str, Any], float]
    within: float = 0.0


def right(stated: Any, truth: Any, within: float = 0.0) -> bool:
    """Is a belief exactly the truth? Numbers may be off by `within` of the true one; what is beside it counts not."""
    if isinstance(truth, Mapping):
        return isinstance(stated, Mapping) and all(right(stated.get(key), truth[key], within) for key in truth)
    if isinstance(truth, (list, tuple)):
        return (
            isinstance(stated, (list, tuple))
            and len(stated) == len(truth)
            and all(right(said, true, within) for said, true in zip(stated, truth, strict=True))
        )
    if isinstance(truth, (int, float)) and not isinstance(truth, bool):
        number = isinstance(stated, (int, float)) and not isinstance(stated, bool)
        return number and abs(stated - truth) <= within * abs(truth) + SAME
    return bool(stated == truth)


def came(events: Sequence[Event], seat: str, after: int, worth: Callable[[Any], float]) -> dict[str, str] | None:
    """The counterpart's first move behind event number `after` of a seat's channel, as a prediction would name it.

    None when there was none. Without an earlier offer of the counterpart a new one is compared with nothing.
    """
    last: float | None = None
    for event in events:
        if event.type not in MOVE_OF or event.payload.get("by") == seat:
            continue
        offered = worth(event.payload["gives"]) if event.type == "proposal" else None
        if event.seq > after:
            reply = {"reply": MOVE_OF[event.type]}
            return reply if offered is None or last is None else {**reply, "offer": compared(offered, last)}
        last = last if offered is None else offered
    return None


def compared(offered: float, last: float) -> str:
    """better, equal or worse."""
    return "equal" if abs(offered - last) < SAME else "better" if offered > last else "worse"


def foreseen(predicted: Any, actual: Mapping[str, str]) -> bool:
    """Was this the move, and its offer, where there was one to compare with, as predicted?"""
    return isinstance(predicted, Mapping) and all(predicted.get(key) == actual[key] for key in actual)
