"""How it is played: environments, their participants, and episodes read back. Knows nothing of models or training.

Each environment is a module with

    SEATS, TRAINABLE, MOVES     its seats (a scenario may lack some), those that a policy may be trained in, its moves
    EVALUATED                   the seats whose mean reward is the environment's score; several take turns
    PRIVATE                     {seat: paths in the scenario of what that seat alone may know}
    Environment                 the game (see `envs.core`)
    brief(event, prompt)        what a seat is told at the start, as text: the rules and its own numbers, but not how
                                to answer; `event` is its briefing
    brief_in_numbers            the same with numbers, where `brief` writes what things are worth in words
    answers(event)              how to answer in JSON: an example of every move, for the `full` prompt
    tell(event, seat, prompt)   one event as that seat reads it ("" when it says nothing to it)
    MIND                        what may be believed of the counterpart, and how offers compare (see `envs.minds`);
                                negotiations have one
    team(scenario, seat)        the seats that win and lose together, in games of more than two
    SPEECH                      who reads what is said, where that is not the one counterpart

`prompt` is `full`, `compact` or `people` (see `envs.telling`).
"""

from __future__ import annotations

import importlib
from typing import Any

import scenarios
from scenarios.errors import UsageError, nearest

ENVIRONMENTS = {name: f"envs.{name}" for name in scenarios.ENVIRONMENTS}


def module(env: str) -> Any:
    """The module of an environment. Raises `UsageError` for an unknown name."""
    if env not in ENVIRONMENTS:
        raise UsageError(f"unknown environment {env!r}; {nearest(env, ENVIRONMENTS)}")
    return importlib.import_module(ENVIRONMENTS[env])


def make(scenario: Any, *, seed: int, limits: Any = None) -> Any:
    """A new environment for one episode of a scenario."""
    return module(scenario.env).Environment(scenario, seed=seed, limits=limits)


def seats(scenario: Any) -> tuple[str, ...]:
    """The seats at a scenario's table, in their order."""
    return module(scenario.env).Environment.seats_of(scenario)
