"""Agents take their seats: `run` plays an episode, with a task for each seat that has to be waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from envs.answers import described
from envs.events import Action, Agent, Event

if TYPE_CHECKING:
    from envs.core import Environment, Outcome

STUBBORN_S = 1.0  # how long the end of an episode waits for agents that do not let themselves be cancelled


async def run(env: Environment, agents: Mapping[str, Agent]) -> Outcome:
    """Play an episode to its outcome: a task for each seat reads its channel and calls its agent.

    Agents that can `choose` without waiting need no task. No fault of an agent is raised; a seat without agent is
    absent. When `run` is cancelled, or the episode's deadline passes, the outcome is `aborted`.
    """
    strangers = set(agents) - set(env.seats)
    if strangers:
        raise ValueError(f"no seat {sorted(strangers)}, expected {env.seats}")
    waited_for = {}
    for seat in env.seats:
        agent = agents.get(seat)
        choose = getattr(agent, "choose", None)
        if agent is None or choose is not None:
            env.at_once[seat] = partial(_answer, choose)
        else:
            waited_for[seat] = agent
    if not waited_for:
        outcome = await env.conduct()
        await asyncio.sleep(0)  # others may have waited for the loop meanwhile
        return outcome
    return await _run(env, waited_for)


def _answer(choose: Callable[..., Action] | None, env: Environment, seat: str, call: Event) -> None:
    """Answer a notification in the moment of asking."""
    opened = call.notification_id or ""
    if choose is None:
        env.fail(seat, opened, "absent", "nobody sits here")
        return
    try:
        action = choose(env.channels[seat].events[:], call.actions)
    except Exception as error:
        env.fail(seat, opened, "error", described(error))
    else:
        _hand_in(env, seat, opened, action)


def _hand_in(env: Environment, seat: str, opened: str, action: Any) -> None:
    """Submit an answer. One that names another notification than the open one has used up a try."""
    named = action.notification_id if isinstance(action, Action) else None
    named = named if isinstance(named, str) else opened
    if env.submit(seat, named, action).status == "stale":
        env.refuse(seat, opened, f"an answer to {named}", f"{named} is not open; answer {opened}")


async def _run(env: Environment, agents: Mapping[str, Agent]) -> Outcome:
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(_attend(env, seat, agent)) for seat, agent in agents.items()]
    for task in tasks:
        task.add_done_callback(lambda task: _check(env, task))
    try:
        outcome = await env.conduct()
    finally:
        for _, task in list(env.deciding.values()):
            task.cancel()
        await asyncio.sleep(0)
        if any(not task.done() for task in tasks):
            await asyncio.wait(tasks, timeout=STUBBORN_S)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.result()
    return outcome


async def _attend(env: Environment, seat: str, agent: Agent) -> None:
    """Answer every notification of a seat until the episode ends."""
    channel, task = env.channels[seat], asyncio.current_task()
    assert task is not None
    while (call := await channel.asked()) is not None:
        opened = call.notification_id or ""
        env.deciding[seat] = (opened, task)
        try:
            action = await agent.decide(channel.events[:], call.actions)
        except asyncio.CancelledError:
            if task.cancelling() > (task in env.overdue):  # not by a deadline alone
                raise
            env.fail(seat, opened, "error", "CancelledError")  # the agent's own; after a deadline nothing is open
            continue
        except Exception as error:
            env.fail(seat, opened, "error", described(error))
            continue
        finally:
            env.deciding.pop(seat, None)
            if task in env.overdue:
                env.overdue.discard(task)
                task.uncancel()
        _hand_in(env, seat, opened, action)


def _check(env: Environment, task: asyncio.Task[None]) -> None:
    """A task that fails (the rules raised while an answer was looked at) ends its episode; `run` raises it."""
    if not task.cancelled() and task.exception() is not None:
        env.abort(described(task.exception()))
