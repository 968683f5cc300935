"""The events of a bargaining game as text: for models (`full`, `compact`) and for people (`people`).

`full` explains in sentences. `compact` says the same in as few characters as can be, one fact a line, for small
models that learned the rules from games:

    they offer: I can come down a little.
    for me book 1 hat 0 ball 2 =4
    3/10                               its move 3 of 10; "last" where no reply can follow it

`people` is a line of a transcript. What a counterpart says is put on one line and loses its angle brackets, so that
nobody can speak in the name of the environment. A game supplies how it writes what a seat
gets (`shown`: "you get book 1") and what that is worth to it (`worth`: "worth 4 of 10 to you").
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

from envs.events import Event

Prompt = Literal["full", "compact", "people"]

_FULL = {
    "message": "The other side says",
    "proposal": "The other side offers: {gives}. It says",
    "accept": "The other side accepts your offer. It says",
    "reject": "The other side turns your offer down. It says",
    "walk_away": "The other side walks away. It says",
}
_SILENT = {
    "message": "The other side says nothing.",
    "proposal": "The other side offers: {gives}.",
    "accept": "The other side accepts your offer.",
    "reject": "The other side turns your offer down.",
    "walk_away": "The other side walks away.",
}
_COMPACT = {
    "message": "they say:",
    "proposal": "they offer:",
    "accept": "they accept:",
    "reject": "they reject:",
    "walk_away": "they leave:",
}
_PEOPLE = {
    "message": "says",
    "proposal": "offers {gives}",
    "accept": "accepts",
    "reject": "rejects the offer",
    "walk_away": "walks away",
}
_FAULTS = {"timeout", "error", "absent"}


def one_line(say: str) -> str:
    """What somebody said, on one line, without control characters and the brackets of chat templates' markers."""
    if not say.isprintable():
        say = "".join(letter if letter.isprintable() else " " for letter in say)
    return " ".join(say.split()).replace("<", "‹").replace(">", "›")


def quoted(say: str) -> str:
    return json.dumps(say, ensure_ascii=False)


def tell(
    event: Event, seat: str, prompt: Prompt, shown: Callable[[Any], str], worth: Callable[[Mapping[str, Any]], str]
) -> str:
    """One event as `seat` reads it; "" for what a model knows already (its own moves, its briefing)."""
    if prompt == "people":
        return _people(event, shown)
    payload, kind = event.payload, event.type
    if kind == "turn":
        return _turn(event, prompt, shown, worth)
    if trouble := troubled(event, prompt):
        return trouble
    if kind not in _FULL or payload["by"] == seat:
        return ""
    say = one_line(payload["say"])
    if prompt == "compact":
        return f"{_COMPACT[kind]} {say}".rstrip()
    gives = shown(payload["gives"]) if kind == "proposal" else ""
    return f"{_FULL[kind].format(gives=gives)}: {quoted(say)}" if say else _SILENT[kind].format(gives=gives)


def _turn(event: Event, prompt: Prompt, shown: Callable[[Any], str], worth: Callable[[Mapping[str, Any]], str]) -> str:
    payload = event.payload
    given = payload["standing"]
    if prompt == "compact":
        table = "" if given is None else f"{shown(given)} ={worth(payload)}\n"
        final = "" if payload["replies_left"] else " last"
        return f"{table}{payload['round']}/{payload['limit']}{final}"
    table = "There is no offer to accept." if given is None else f"If you accept, {shown(given)}, {worth(payload)}."
    moves = ", ".join(spec.name for spec in event.actions)
    after = payload["replies_left"]
    return (
        f"{table}\nYour move {payload['round']} of {payload['limit']}; after it the other side has "
        f"{after} move{'' if after == 1 else 's'} left. Possible now: {moves}."
    )


def troubled(event: Event, prompt: Prompt, instead: str = "an empty message was sent for you") -> str:
    """An answer that was invalid, late or missing, told to its seat; "" for other events. `instead` says what was
    done in its place."""
    payload, kind = event.payload, event.type
    if prompt == "people":
        if kind == "invalid_action":
            return f"  (invalid answer: {one_line(payload['reason'])} — {one_line(payload['text'])})"
        return f"  ({kind}: {one_line(payload['reason'])})" if kind in _FAULTS else ""
    if kind in _FAULTS:
        return "no answer in time" if prompt == "compact" else f"You gave no answer; {instead}."
    if kind != "invalid_action":
        return ""
    left, reason = payload["retries_left"], one_line(payload["reason"])
    if prompt == "compact":
        return f"invalid: {reason}; {f'tries left {left}' if left else 'nothing sent'}"
    if not left:
        return f"Your answer was not valid: {reason}. {instead[0].upper()}{instead[1:]}."
    return f"Your answer was not valid: {reason}. Answer again ({left} {'try' if left == 1 else 'tries'} left)."


def _people(event: Event, shown: Callable[[Any], str]) -> str:
    payload, kind = event.payload, event.type
    if kind in _PEOPLE:
        gives = shown(payload["gives"]) if kind == "proposal" else ""
        line = f"{payload['by']} {_PEOPLE[kind].format(gives=gives)}"
        return f"{line}: {quoted(one_line(payload['say']))}" if payload["say"] else line
    if trouble := troubled(event, "people"):
        return trouble
    if kind == "outcome":
        by = f" by {payload['by']}" if payload["by"] else ""
        return f"=> {payload['status']}{by}"
    return ""
