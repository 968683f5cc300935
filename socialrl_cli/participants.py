"""Who sits at the table: one grammar for every command, and the opening of what a participant needs.

    scripted:NAME[:key=value,…]    a scripted policy of `envs.agents`, e.g. scripted:boulware:f=0.3
    model:PATH_OR_ID               a causal language model on this machine ("model:tiny" is built on first use)
    run:RUN_DIR[@STEP]             a checkpoint of a run; without a step its best, else its newest one
    run:RUN_DIR/NAME[@STEP]        the same of one delegate of a run that has trained two, policy or partner
    openai:MODEL@BASE_URL          a model behind an OpenAI-compatible endpoint
    python:MODULE:ATTR             a callable `ATTR(env=…, seat=…, seed=…)` that returns an agent
    human                          a person at the terminal, in `socialrl play`
    remote                         a program elsewhere, in `socialrl serve`

Pure: nothing is opened here, `cast.py` does that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scenarios.errors import UsageError

KINDS = {
    "scripted": "scripted:NAME[:key=value,…]",
    "model": "model:PATH_OR_ID",
    "run": "run:RUN_DIR[/DELEGATE][@STEP]",
    "openai": "openai:MODEL@BASE_URL",
    "python": "python:MODULE:ATTR",
    "human": "human",
    "remote": "remote",
}
BARE = ("human", "remote")


@dataclass(frozen=True, slots=True)
class Participant:
    """One parsed participant. `name` is the policy, path, model or module; `text` is what the user wrote."""

    text: str
    kind: str
    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    url: str | None = None
    step: int | None = None
    attr: str | None = None


def parse(text: str) -> Participant:
    """Read the grammar of the module's docstring. Raises UsageError that shows the form expected."""
    kind, colon, rest = text.partition(":")
    if kind not in KINDS:
        raise UsageError(f"participant {text!r}: unknown kind {kind!r}, expected one of {', '.join(KINDS.values())}")
    if kind in BARE and not colon:
        return Participant(text, kind, kind)
    if kind in BARE or not colon or not rest:
        raise UsageError(f"participant {text!r}: expected {KINDS[kind]}")
    if kind == "scripted":
        name, _, tail = rest.partition(":")
        return Participant(text, kind, name, options=_options(text, tail))
    if kind == "openai":
        model, at, url = rest.rpartition("@")
        if not at or not model or not url.startswith(("http://", "https://")):
            raise UsageError(f"participant {text!r}: expected {KINDS[kind]}, with http:// or https:// in the URL")
        return Participant(text, kind, model, url=url)
    if kind == "run":
        folder, at, step = rest.rpartition("@")
        if not at:
            return Participant(text, kind, rest)
        if not step.isdigit():
            raise UsageError(f"participant {text!r}: the step {step!r} is not a whole number ({KINDS[kind]})")
        return Participant(text, kind, folder, step=int(step))
    if kind == "python":
        module, colon, attr = rest.partition(":")
        if not colon or not module or not attr:
            raise UsageError(f"participant {text!r}: expected {KINDS[kind]}")
        return Participant(text, kind, module, attr=attr)
    return Participant(text, kind, rest)


def _options(text: str, tail: str) -> dict[str, str]:
    if not tail:
        return {}
    pairs = [part.partition("=") for part in tail.split(",")]
    if any(not key or not equals or not value for key, equals, value in pairs):
        raise UsageError(f"participant {text!r}: options are key=value,… , got {tail!r}")
    return {key: value for key, _, value in pairs}
