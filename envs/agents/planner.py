"""The planner (first stand-in)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from envs.agents.scripted import Choice, State


def plan(state: State) -> Choice:
    from envs.agents.scripted import aim

    return aim(state, state.floor + (1 - state.floor) * (1 - state.time**4))
