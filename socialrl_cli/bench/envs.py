"""`bench envs`: how fast scripted participants play Deal or No Deal in one process, and what an episode costs.

at_once     both seats answer in the moment of asking, one episode after the other: the cost of the rules
waiting     both seats give way to the event loop before they answer, as a model does; one episode at a time,
            then `concurrent` at once. `slowdown` is the ratio of the CPU time that a decision costs
kib         memory of an episode whose two seats wait for an answer in mid-game

Rates are per second of the wall (`decisions_s`) and per second of this process's CPU time (`decisions_cpu_s`),
which is steadier on a busy machine.
"""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Sequence
from typing import Any

from socialrl_cli.episodes import collect_seldom

POLICIES = ("linear", "tit_for_tat")
WARM = 200  # episodes before anything is measured: twice all scenarios
HELD = 200  # episodes whose memory is measured
MID_GAME = 3  # own moves that a seat has made when it waits


def envs_bench(seconds: float = 2.0, concurrent: int = 1000) -> dict[str, Any]:
    """Decisions and episodes a second; each of the three timed parts runs for about `seconds`."""
    return asyncio.run(_measure(seconds, concurrent))


async def _measure(seconds: float, concurrent: int) -> dict[str, Any]:
    collect_seldom()  # as in the commands that play
    for number in range(WARM):  # imports, caches
        await _play(number, wait=False)
    at_once = await _rate(seconds, 1, wait=False)
    alone = await _rate(seconds, 1, wait=True)
    together = await _rate(seconds, concurrent, wait=True)
    return {
        "bench": "envs",
        "env": "dnd",
        "policies": list(POLICIES),
        "at_once": at_once,
        "waiting": {
            "1": alone,
            str(concurrent): together,
            "slowdown": round(alone["decisions_cpu_s"] / together["decisions_cpu_s"], 3),
        },
        "kib_per_waiting_episode": await _memory(),
    }


async def _rate(seconds: float, concurrent: int, *, wait: bool) -> dict[str, float]:
    games = decisions = 0
    started, cpu = time.perf_counter(), time.process_time()

    async def player() -> None:
        nonlocal games, decisions
        while time.perf_counter() - started < seconds or not games:
            games += 1
            made = await _play(games, wait=wait)
            decisions += made

    await asyncio.gather(*(player() for _ in range(concurrent)))
    spent, cpu = time.perf_counter() - started, time.process_time() - cpu
    return {
        "decisions_s": round(decisions / spent),
        "decisions_cpu_s": round(decisions / cpu),
        "episodes_s": round(games / spent, 1),
    }


async def _play(number: int, *, wait: bool, hold: asyncio.Event | None = None) -> int:
    from envs import make
    from envs.agents.scripted import scripted
    from envs.core import Limits, run
    from scenarios.core import packaged

    scenarios = packaged("dnd", "test")
    env = make(scenarios[number % len(scenarios)], seed=number, limits=Limits())
    agents: dict[str, Any] = {
        seat: scripted("dnd", policy, seed=2 * number + i)
        for i, (seat, policy) in enumerate(zip(env.seats, POLICIES, strict=True))
    }
    if wait or hold is not None:
        agents = {seat: _Waiting(agent, hold) for seat, agent in agents.items()}
    await run(env, agents)
    return len(env.answers)


class _Waiting:
    """An agent that lets others run before it answers, and in mid-game waits for `hold`."""

    def __init__(self, agent: Any, hold: asyncio.Event | None) -> None:
        self._agent, self._hold = agent, hold
        self._moves = 0

    async def decide(self, context: Sequence[Any], actions: Sequence[Any]) -> Any:
        self._moves += 1
        if self._hold is not None and self._moves > MID_GAME:
            await self._hold.wait()
        await asyncio.sleep(0)
        return await self._agent.decide(context, actions)


async def _memory() -> float:
    """KiB that one waiting episode takes, its agents and tasks included."""
    hold = asyncio.Event()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        games = [asyncio.create_task(_play(i, wait=True, hold=hold)) for i in range(HELD)]
        for _ in range(20 * MID_GAME):
            await asyncio.sleep(0)
        gc.collect()
        waiting = sum(not game.done() for game in games)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    hold.set()
    await asyncio.gather(*games)
    return round(taken / 1024 / max(waiting, 1), 1)
