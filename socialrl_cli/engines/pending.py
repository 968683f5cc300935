"""A call that waits for the engine's thread, and how it gets its answer there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from scenarios.errors import EngineError, SocialRLError
from socialrl_cli.engines.base import Sampling


@dataclass(eq=False, slots=True)
class Call:
    """Something to do, and where its answer goes: a request, or a job to run between two steps."""

    answer: asyncio.Future[Any]  # (token ids, log-probabilities), or what the job returns
    work: Sampling | Callable[[], Any]
    slot: int = -1


def settle(call: Call, answer: Any) -> None:
    """Gives a call its answer, or its error, from the engine's thread."""
    if isinstance(answer, Exception) and not isinstance(answer, SocialRLError):
        answer = EngineError(f"the engine failed: {type(answer).__name__}: {answer}")

    def wake() -> None:
        if not call.answer.done():
            call.answer.set_exception(answer) if isinstance(answer, Exception) else call.answer.set_result(answer)

    with suppress(RuntimeError):  # its loop is closed: nobody waits
        call.answer.get_loop().call_soon_threadsafe(wake)
