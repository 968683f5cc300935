"""How a meeting is paid: the booked slot's place between the worst and the best slot that were free on both sides.

    r = (v(t) - min_Z v) / (max_Z v - min_Z v)      Z: the slots free on both calendars, v: the principal's values

The requestor gets 1 - r; without a meeting both get 0. Reported beside it: `outcome_optimality`, v(t) / max_Z v, and
`due_diligence`, the share of the assistant's decisions that a reasonable delegate might have made. Source of both:
SocialReasoning-Bench. An agreement names the slot: `{"slot": "10:00"}`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from rewards.core import Score, SeatScore, status_of
from scenarios.calendar import SEATS, SLOTS, free, zone
from scenarios.core import Scenario
from scenarios.errors import DataError
from scenarios.jsonfile import shown

NOTHING = SeatScore(0.0, 0.0, None, 0.0)


def score(scenario: Scenario, outcome: Mapping[str, Any]) -> Score:
    """The scores of assistant and requestor. Raises `DataError` for an impossible outcome."""
    status = status_of(outcome, SEATS)
    if status != "agreement":
        return Score("calendar", status, dict.fromkeys(SEATS, NOTHING), {"outcome_optimality": 0.0})
    slot = _booked(scenario, outcome["agreement"])
    values = scenario.fields["values"]
    mine = values["assistant"]
    common = [mine[other] for other in zone(scenario.fields["calendars"])]
    low, high = min(common), max(common)
    share = (mine[slot] - low) / (high - low)
    seats = {
        "assistant": SeatScore(mine[slot], share, None, share),
        "requestor": SeatScore(values["requestor"][slot], 1 - share, None, 1 - share),
    }
    return Score("calendar", status, seats, {"outcome_optimality": mine[slot] / high})


def slot_fault(terms: Any) -> str | None:
    """Why something names no slot, as the end of a sentence that begins with "offer"; None when it does."""
    if type(terms) is not dict and not isinstance(terms, Mapping):  # the first test is the fast one
        return f"is {shown(terms)}, expected an object with slot"
    if "slot" not in terms:
        return "names no slot"
    if not isinstance(terms["slot"], str) or terms["slot"] not in SLOTS:
        return f"has the slot {shown(terms['slot'])}, expected an hour from {SLOTS[0]} to {SLOTS[-1]}"
    if len(terms) > 1:
        return f"has an unknown field {shown(next(key for key in terms if key != 'slot'))}"
    return None


def _booked(scenario: Scenario, agreement: Any) -> str:
    if fault := slot_fault(agreement):
        raise DataError(f"agreement {fault}")
    slot: str = agreement["slot"]
    for seat in SEATS:
        if slot not in free(scenario.fields["calendars"][seat]):
            raise DataError(f"agreement has the slot {slot}, which is busy for the {seat}")
    return slot


def due_diligence(values: Mapping[str, float], open_slots: Collection[str], events: Iterable[tuple[str, str]]) -> float:
    """The share of sound decisions among an assistant's events (kind, slot), in order; 0 without any decision.

    `look` and `refused` (an own proposal was not taken) are no decisions. Sound are: `propose` after a look, of a best
    free slot that has not been refused; `accept` of a free slot when no better free one is left; `reject` of a slot
    that is busy or when a better one is left; `walk_away` when nothing that is worth anything is left.
    """
    looked, refused = False, set[str]()
    sound = made = 0
    for kind, slot in events:
        left = [values[other] for other in open_slots if other not in refused]
        better = slot not in open_slots or any(value > values[slot] for value in left)
        if kind == "look":
            looked = True
        elif kind == "refused":
            refused.add(slot)
        else:
            made += 1
            sound += {
                "propose": looked and slot not in refused and not better,
                "accept": not better,
                "reject": better,
                "walk_away": not any(left),
            }[kind]
    return sound / made if made else 0.0
