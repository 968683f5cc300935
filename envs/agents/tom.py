"""The `tom` scaffold, Infer → Act → Anticipate: beside its move an answer holds what the model believes of the
counterpart's private state, before it, and the reply that it expects, behind it.

    {"infer":{"book":2,"hat":1,"ball":2},"move":"accept","anticipate":{"reply":"message"}}

Neither leaves the seat. What is missing or malformed costs no move; it is recorded as None and is never right. What a
belief is, and when it is right, is the game's (`envs.minds`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envs import module
from envs.agents.reading import read_field
from envs.events import Event
from envs.minds import COMPARISONS, MOVE_OF, Mind, came, foreseen, right
from scenarios.core import Scenario
from scenarios.errors import UsageError

INFER, ANTICIPATE = "infer", "anticipate"

TEXT = """\
Give two more fields with every move. First "infer": {about}, as you believe it now, for example {belief}. \
Last "anticipate": the move that you expect next from the other party, one of {moves}; for propose also whether its \
offer will be better, equal or worse for you than its last one, for example {prediction}. \
The other party sees neither."""


@dataclass(frozen=True, slots=True)
class Note:
    """What a model thought at one decision. `turn` is its call's number in the session, `seen` the number of events
    that it knew; None stands for what it did not say, or not in the form asked for."""

    turn: int
    seen: int
    infer: Any
    anticipate: Any


def mind_of(env: str) -> Mind:
    """What may be believed in a game. Raises UsageError for one without private states to infer."""
    mind = getattr(module(env), "MIND", None)
    if mind is None:
        raise UsageError(f"scaffold tom: {env} says not what may be believed of the counterpart; use scaffold none")
    return mind


def fields(env: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON schemas of what stands before the move's own fields, and of what stands behind them."""
    prediction = {
        "type": "object",
        "properties": {"reply": {"enum": moves(env)}, "offer": {"enum": list(COMPARISONS)}},
        "required": ["reply"],
        "additionalProperties": False,
    }
    return {INFER: dict(mind_of(env).schema)}, {ANTICIPATE: prediction}


def moves(env: str) -> list[str]:
    """The moves of a counterpart that can be seen."""
    seen = MOVE_OF.values()
    return [move for move in module(env).MOVES if move in seen]


def instructions(env: str) -> str:
    """What the full prompt says of the scaffold."""
    mind = mind_of(env)
    belief, prediction = ({INFER: example(mind.schema)}, {ANTICIPATE: {"reply": "propose", "offer": "better"}})
    return TEXT.format(
        about=mind.about, belief=_inner(belief), moves=", ".join(moves(env)), prediction=_inner(prediction)
    )


def _inner(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))[1:-1]


def example(schema: Mapping[str, Any]) -> Any:
    """Something of a schema's form."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        return {key: example(inner) for key, inner in schema["properties"].items()}
    if kind == "array":
        known = schema["items"].get("enum")
        return list(known) if known else [example(schema["items"])]
    return "…" if kind == "string" else max(schema.get("minimum", 0), min(2, schema.get("maximum", 2)))


def note(env: str, answer: Mapping[str, Any], *, turn: int, seen: int) -> Note:
    """What an answer says beside its move."""
    before, after = fields(env)
    said = {name: read_field(answer.get(name), schema) for name, schema in {**before, **after}.items()}
    return Note(turn, seen, said[INFER], said[ANTICIPATE])


def probes(notes: Sequence[Note], *, scenario: Scenario, seat: str, events: Sequence[Event]) -> list[dict[str, Any]]:
    """The notes of an episode with the truth beside them, as a buffer's `turn_probes`.

    `right` is None where there is nothing to be right about: no private state, or no further move of the counterpart.
    """
    if not notes:
        return []
    mind = mind_of(scenario.env)
    truth = mind.truth(scenario, seat)
    found = []
    for said in notes:
        actual = came(events, seat, said.seen - 1, lambda given: mind.worth(scenario, seat, given))
        inferred = None if truth is None else right(said.infer, truth, mind.within)
        anticipated = None if actual is None else foreseen(said.anticipate, actual)
        found += [
            {"turn": said.turn, "name": INFER, "value": {"said": said.infer, "right": inferred}},
            {"turn": said.turn, "name": ANTICIPATE, "value": {"said": said.anticipate, "right": anticipated}},
        ]
    return found
