"""The capacity gate between play and learning: batches are played on a thread of their own, so many ahead.

The thread runs one event loop, which training never blocks. When the trainer asks for the batch of step s, the steps
up to s + `max_ahead` may begin; so with 0 nothing is played while the trainer computes, and what it gets was played
by the policy as it is. A game belongs to the step that it was drawn for, whichever policy version its moves come
from: a batch waits for its slowest game, so that long games are not rarer in training than in play.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Ahead(Generic[T]):
    """`make(step)` plays the batch of a step; `last` is the step after which none is begun."""

    def __init__(self, make: Callable[[int], Coroutine[Any, Any, T]], *, max_ahead: int, last: int) -> None:
        self.make, self.max_ahead, self.last = make, max_ahead, last
        self._batches: dict[int, concurrent.futures.Future[T]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="socialrl-play", daemon=True)
        self._thread.start()

    def batch(self, step: int) -> T:
        """The batch of this step. Raises what playing it raised."""
        for number in range(step, max(step, min(step + self.max_ahead, self.last)) + 1):
            if number not in self._batches:
                self._batches[number] = asyncio.run_coroutine_threadsafe(self.make(number), self._loop)
        return self._batches.pop(step).result()

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Do something on the loop, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Cut off what is under way, do a last thing on the loop, and end the thread."""

        async def end() -> None:
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)
            await last()

        try:
            self.run(end())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
