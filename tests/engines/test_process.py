"""The embedded engine in a process of its own: the same answers, the same weights, and what happens when it dies."""

import asyncio
import os
import signal

import numpy as np
import pytest
import torch

from scenarios.errors import EngineError, ModelError, UsageError
from socialrl_cli.engines.config import EmbeddedConfig
from socialrl_cli.engines.embedded import EmbeddedEngine
from tests.engines.test_slots import NoText, ask, logprobs_of, qwen, sliding


def make(lm, **config):
    return EmbeddedEngine(lm, NoText(), EmbeddedConfig(slots=4, process=True, timeout_s=30, **config))


async def test_answers_are_those_of_the_same_model_on_a_thread():
    told = {}
    for process in (False, True):
        engine = EmbeddedEngine(qwen(), NoText(), EmbeddedConfig(slots=4, process=process, deterministic=True))
        told[process] = await asyncio.gather(*(ask(engine, [n, 2 * n, 3], 9) for n in range(7)))
        assert engine.counters["decoded"] == 63
        await engine.close()
    for (ids, logprobs), (same, same_logprobs) in zip(told[False], told[True], strict=True):
        assert ids == same
        assert np.array_equal(logprobs, same_logprobs)


async def test_what_the_trainer_changes_in_place_is_sampled_from_after_publish_and_refused_before():
    lm = qwen()
    engine = make(lm)
    await ask(engine, [1, 2], 5)
    with torch.no_grad():
        lm.lm_head.weight.mul_(0.5)
    with pytest.raises(EngineError, match="publish"):
        await ask(engine, [1, 2], 5)
    await engine.publish(1)
    ids, logprobs = await ask(engine, [1, 2], 5)
    assert np.abs(logprobs_of(lm, [1, 2], ids) - logprobs).max() < 1e-4
    scored = await engine.score([1, 2, *ids])
    assert np.abs(scored.logprobs[1:] - logprobs).max() < 1e-4
    await engine.close()


async def test_a_process_that_is_killed_fails_its_calls_at_once_and_the_next_ones_too():
    engine = make(qwen())
    running = [asyncio.create_task(ask(engine, [1, n], 500)) for n in range(3)]
    await asyncio.sleep(0.05)
    os.kill(engine._host._process.pid, signal.SIGKILL)
    for call in running:
        with pytest.raises(EngineError, match=r"process has ended"):
            await asyncio.wait_for(call, 10)
    with pytest.raises(EngineError, match=r"process has ended"):
        await ask(engine, [1, 2], 5)
    await engine.close()


async def test_closing_ends_the_process_and_the_calls_that_wait():
    engine = make(qwen())
    pid = engine._host._process.pid
    running = asyncio.create_task(ask(engine, [1, 2], 500))
    await asyncio.sleep(0)
    await engine.close()
    with pytest.raises(EngineError, match="closed"):
        await asyncio.wait_for(running, 10)
    with pytest.raises(EngineError, match="closed"):
        await ask(engine, [1, 2], 5)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_cancelled_request_frees_its_slot():
    engine = EmbeddedEngine(qwen(), NoText(), EmbeddedConfig(slots=1, process=True))
    long = asyncio.create_task(ask(engine, [5, 6], 500))
    await asyncio.sleep(0.05)
    long.cancel()
    ids, _ = await ask(engine, [7, 8], 2)
    assert len(ids) == 2
    assert engine.counters["decoded"] < 490
    await engine.close()


async def test_errors_keep_their_kind():
    with pytest.raises(ModelError, match="sliding_window"):
        make(sliding(), capacity=16)
    engine = make(qwen())
    with pytest.raises(UsageError, match="prompt_token_ids"):
        await ask(engine, [50], 2)
    with pytest.raises(ModelError, match="nowhere"):
        await engine.publish(1, {"nowhere.weight": torch.zeros(1)})
    await engine.close()
