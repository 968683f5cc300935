"""SocialReasoning-Bench: its tasks and recorded marketplace episodes.

    tasks   YAML, {tasks: [..]}; the `type` of a task says which environment it is for
    traces  one recorded marketplace episode a line, with offers, actions and outcome

A side may have orders to cheat the other (`is_malicious`): only its prices are taken, and the row is told as odd.
How episodes become outcomes: a deal is an `agreement` at its price; a conversation that a side ended is a
`walk_away` by it, one that ran out of rounds a `timeout`, one that an error ended `aborted`. The recorded score is
kept where nobody had such orders; the others were scored by an older rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from scenarios.core import Problem, Scenario
from scenarios.importers import yamlfile
from scenarios.importers.core import Imported, Odd, Played, records
from scenarios.importers.shapes import a_list, an_object
from scenarios.importers.socialreasoning_calendar import scenario as calendar
from scenarios.importers.socialreasoning_marketplace import scenario as marketplace
from scenarios.jsonfile import Row, shown
from scenarios.money import amount_fault

ENV = ("calendar", "marketplace")
FORMATS = ("tasks", "traces")
TYPES: dict[str, Callable[[Mapping[str, Any], str], Scenario]] = {"calendar": calendar, "marketplace": marketplace}

WHY = {
    "malicious": "a side has orders to cheat: only its prices are taken",
    "generation_error": "an agent failed to answer",
    "own_offer": "a side tried to accept its own offer",
    "unknown_offer": "a side tried to accept an offer that does not exist",
    "after_deal": "play went on after the deal",
    "invalid_action": "an action was invalid",
    "above_reservation": "the deal is above the buyer's reservation: pays the buyer 0",
    "no_end_reason": "no reason is given why it ended",
    "fractional": "a price has decimals",
}
_ERRORS = {"your own offer": "own_offer", "does not exist": "unknown_offer", "is not open": "after_deal"}


def read(paths: Sequence[str | PathLike[str]], format: str | None = None) -> Imported:
    """The tasks and episodes of some files. Raises `DataError` where a file cannot be read."""
    found = Imported()
    for path in map(str, paths):
        layout = format or ("traces" if path.endswith((".jsonl", ".json")) else "tasks")
        found.formats[path] = layout
        rows: Iterator[Row] = records(path) if layout == "traces" else yamlfile.tasks(path)
        for number, value, fault in rows:
            found.rows += 1
            source = f"socialreasoning_bench:{Path(path).name}:{number}"
            try:
                if fault:
                    raise ValueError(fault)
                kinds = _trace(found, value, source) if layout == "traces" else _task(found, value, source)
            except ValueError as error:
                found.bad.append(Problem(path, number, str(error)))
                continue
            found.games += 1
            found.odd += [Odd(path, number, kind, WHY[kind]) for kind in kinds]
    return found


def _task(found: Imported, task: Any, source: str) -> list[str]:
    """Keeps a task's scenario; says what is odd about it."""
    task = an_object(task, "the task")
    kind = task.get("type")
    if kind not in TYPES:
        raise ValueError(f"type is {shown(kind)}, expected {' or '.join(TYPES)}")
    found.keep(TYPES[kind](task, source))
    sides = [side for side in task.values() if isinstance(side, Mapping)]
    return ["malicious"] if any(side.get("is_malicious") is True for side in sides) else []


def _trace(found: Imported, row: Any, source: str) -> list[str]:
    """Keeps an episode's scenario and outcome; says what is odd about them."""
    row = an_object(row, "the episode")
    if "product" not in row and "requested" in row:
        raise ValueError("an episode of calendar scheduling: its calendars are not recorded, import the tasks instead")
    sides = {seat: {"reservation_price": row.get(f"{seat}_reservation")} for seat in ("seller", "buyer")}
    scenario = marketplace({"product": row.get("product"), **sides}, source)
    ending = an_object(row.get("outcome"), "outcome")
    actions = [an_object(action, "an action") for action in a_list(row.get("action_trace"), "action_trace")]
    odd = ["malicious"] if row.get("seller_is_malicious") is True else []
    odd += sorted({_fault(action) for action in actions if action.get("valid") is False})
    outcome: dict[str, Any]
    if ending.get("deal_reached") is True:
        price = ending.get("deal_price")
        if fault := amount_fault(price):
            raise ValueError(f"outcome.deal_price {fault}")
        outcome = {"status": "agreement", "agreement": {"price": price}}
        odd += ["above_reservation"] if price > scenario["reservation"]["buyer"] else []
    else:
        outcome = _no_deal(ending)
    odd += ["no_end_reason"] if ending.get("end_reason") is None else []
    offers = [an_object(offer, "an offer").get("price") for offer in a_list(row.get("offers"), "offers")]
    odd += ["fractional"] if any(isinstance(price, float) and not price.is_integer() for price in offers) else []
    kept = found.keep(scenario)
    recorded = an_object(row.get("recorded", {}), "recorded").get("outcome_optimality")
    reported = {"buyer": recorded} if isinstance(recorded, (int, float)) and "malicious" not in odd else {}
    said = "deal" if outcome["status"] == "agreement" else str(ending.get("ended_by"))
    found.played.append(Played(kept.id, outcome, said, source, reported))
    return odd


def _no_deal(ending: Mapping[str, Any]) -> dict[str, Any]:
    by = ending.get("ended_by")
    if by == "max_rounds":
        return {"status": "timeout"}
    if by in ("buyer", "seller") and "error" not in str(ending.get("end_reason")).lower():
        return {"status": "walk_away", "by": by}
    return {"status": "aborted"}


def _fault(action: Mapping[str, Any]) -> str:
    """The kind of an invalid action."""
    if action.get("action_type") == "GENERATION_ERROR":
        return "generation_error"
    result = str(action.get("result"))
    return next((kind for words, kind in _ERRORS.items() if words in result), "invalid_action")
