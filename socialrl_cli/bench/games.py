"""A part of `bench engine`: own tokens a second in real games of dnd, beside the engine's decode rate.

TALKS games at once of a model, decoding in a process of its own, against the default scripted opponents, recorded as
in training; counted from when every place has seen its first game end until the first place stays empty.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from scenarios.core import resolve
from socialrl_cli.cast import Cast, read_harness
from socialrl_cli.engines.config import EmbeddedConfig
from socialrl_cli.engines.embedded import EmbeddedEngine
from socialrl_cli.episodes import PlayConfig, play_all
from socialrl_cli.recorder import Recorder
from socialrl_cli.rollouts import RolloutConfig, draw

PLAYER = "policy"
EACH = 4  # games a place, one after the other


def games_rate(model: Any, folder: str, talks: int) -> float:
    """Sampled tokens a second of `model`, whose tokenizer and way of being asked are in `folder`."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    return asyncio.run(_played(model, tokenizer, folder, talks))


async def _played(model: Any, tokenizer: Any, folder: str, talks: int) -> float:
    engine = EmbeddedEngine(model, tokenizer, EmbeddedConfig(slots=talks, process=True))
    usual = RolloutConfig().opponents
    games = draw(resolve("dnd", "train"), (PLAYER,), usual, seats=("a", "b"), episodes=EACH * talks, seed=0)
    marks: list[tuple[float, int]] = []
    ended = 0

    def done(_: Any) -> None:
        nonlocal ended
        ended += 1
        if ended in (talks, (EACH - 1) * talks):
            marks.append((time.perf_counter(), engine.counters["decoded"]))

    try:
        with tempfile.TemporaryDirectory() as work:
            recorder = Recorder(engine, Path(work))
            async with Cast(Path(work) / "opponents") as cast:
                cast.adopt(PLAYER, engine, recorder, read_harness(folder))
                await play_all(games, cast, PlayConfig(concurrency=talks, max_failed_fraction=1.0), done=done)
            recorder.close()
    finally:
        await engine.close()
    (start, before), (end, after) = marks
    return (after - before) / (end - start)
