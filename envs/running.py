"""Agents take their seats: `run` plays an episode with one task for each seat."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from envs.answers import described
from envs.events import Agent

if TYPE_CHECKING:
    from envs.core import Environment, Outcome

STUBBORN_S = 1.0  # how long the end of an episode waits for agents that do not let themselves be cancelled


async def run(env: Environment, agents: Mapping[str, Agent]) -> Outcome:
    """Play an episode to its outcome: one task for each seat reads its channel and calls its agent.

    No fault of an agent is raised; a seat without agent is absent. When `run` is cancelled, or the episode's
    deadline passes, the outcome is `aborted`.
    """
    strangers = set(agents) - set(env.seats)
    if strangers:
        raise ValueError(f"no seat {sorted(strangers)}, expected {env.seats}")
    loop = asyncio.get_running_loop()
    limit = env.limits.episode_timeout_s
    timer = loop.call_later(limit, env.abort, f"not finished within {limit:g} s") if limit is not None else None
    tasks = [loop.create_task(_attend(env, seat, agents.get(seat))) for seat in env.seats]
    for task in tasks:
        task.add_done_callback(lambda task: _check(env, task))
    try:
        outcome = await env.conduct()
    finally:
        if timer is not None:
            timer.cancel()
        for _, task in list(env.deciding.values()):
            task.cancel()
        await asyncio.sleep(0)
        if any(not task.done() for task in tasks):
            await asyncio.wait(tasks, timeout=STUBBORN_S)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.result()
    return outcome


async def _attend(env: Environment, seat: str, agent: Agent | None) -> None:
    """Answer every notification of a seat until the episode ends."""
    channel, task = env.channels[seat], asyncio.current_task()
    assert task is not None
    while (call := await channel.asked()) is not None:
        opened = call.notification_id
        assert opened is not None
        if agent is None:
            env.fail(seat, opened, "absent", "nobody sits here")
            continue
        env.deciding[seat] = (opened, task)
        try:
            action = await agent.decide(channel.events[:], call.actions)
        except asyncio.CancelledError:
            if task not in env.overdue or task.cancelling() > 1:
                raise
            continue
        except Exception as error:
            env.fail(seat, opened, "error", described(error))
            continue
        finally:
            env.deciding.pop(seat, None)
            if task in env.overdue:
                env.overdue.discard(task)
                task.uncancel()
        named = getattr(action, "notification_id", None) or opened
        if env.submit(seat, named, action).status == "stale":
            env.refuse(seat, opened, f"an answer to {named}", f"{named} is not open; answer {opened}")


def _check(env: Environment, task: asyncio.Task[None]) -> None:
    """A task that fails (the rules raised while an answer was looked at) ends its episode; `run` raises it."""
    if not task.cancelled() and task.exception() is not None:
        env.abort(described(task.exception()))
