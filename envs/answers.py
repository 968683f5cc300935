"""Looking at an answer before the rules do: is it one of the actions that were asked for, and how is it shown?

Pure functions that never raise, whatever an agent hands in, and whose text is the same in every run.
"""

from __future__ import annotations

import json
from typing import Any

from envs.events import NOTHING, UNREADABLE, Action, ActionSpec

SHOWN = 300  # characters of an invalid answer, a reason or an error that an event repeats


def malformed(action: Action, actions: tuple[ActionSpec, ...], say_chars: int) -> str | None:
    """Why something is not one of these actions, whatever the state of the game; None when it is."""
    if action.move == UNREADABLE:
        reason = action.fields.get("reason")
        return reason if isinstance(reason, str) and reason else "the answer cannot be read"
    for spec in actions:
        if spec.name == action.move:
            break
    else:
        return f"{_named(action.move)} is not possible now; possible: {', '.join(s.name for s in actions)}"
    known = spec.fields.get("properties", NOTHING)
    for key in action.fields:
        if key not in known:
            return f"{spec.name} has no field {_named(key)}; it has {', '.join(known) or 'none'}"
    for key in spec.fields.get("required", ()):
        if key not in action.fields:
            return f"{spec.name} needs the field {key!r}"
    say = action.fields.get("say", "")
    if not isinstance(say, str):
        return f"say is a {type(say).__name__}, expected a text"
    if len(say) > say_chars:
        return f"say has {len(say)} characters, at most {say_chars} are allowed"
    if not say.isascii() and say.encode("utf-8", "replace").decode() != say:
        return "say holds characters that are not text"
    return None


def _named(thing: Any) -> str:
    return repr(thing[:40]) if isinstance(thing, str) else f"a {type(thing).__name__}"


def shown(action: Any) -> str:
    """An answer as text for its event: never raises, never differs between two runs."""
    if not isinstance(action, Action):
        return f"<{type(action).__name__}>"
    if action.move == UNREADABLE:
        text = action.fields.get("text")
        return text if isinstance(text, str) else ""
    try:
        return json.dumps({"move": action.move, **action.fields}, default=lambda thing: f"<{type(thing).__name__}>")
    except Exception:
        return "<unprintable>"


def described(error: BaseException | None) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def clean(text: str) -> str:
    """Text that any file can hold, of bounded length."""
    return text[:SHOWN].encode("utf-8", "replace").decode()
