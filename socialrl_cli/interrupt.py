"""Ctrl-C, asked once: finish the step, save, leave. Asked twice: stop now.

SIGTERM, which schedulers send before they kill, counts as Ctrl-C. Only the main thread can listen for signals; from
another one `listen` does nothing. The previous handlers come back when the listening ends. What runs in an event loop
and ends at the first signal waits for `stop_asked`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from types import FrameType
from typing import Any

NOTICE = b"\nstopping after this step; once more stops now\n"
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """`asked` becomes true at the first signal; the second raises KeyboardInterrupt where the program is."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}

    def listen(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._heard) for number in SIGNALS}

    def stop_listening(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _heard(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        os.write(2, NOTICE)  # buffered streams are not for handlers


def stop_asked() -> asyncio.Event:
    """An event that Ctrl-C or SIGTERM sets, from now on."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for sign in SIGNALS:
        loop.add_signal_handler(sign, stop.set)
    return stop


async def any_of(*events: asyncio.Event) -> None:
    """Wait for one of the events."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
