"""The gate between play and learning: what may begin when, and how it ends."""

import asyncio
import threading

import pytest

from scenarios.errors import RunError
from socialrl_cli.ahead import Ahead


async def nothing():
    pass


def gate(max_ahead, last=6, fail=()):
    """A gate whose batches are instant, and the steps that it has begun."""
    begun = []

    async def make(step):
        begun.append(step)
        await asyncio.sleep(0)
        if step in fail:
            raise RunError(f"step {step} cannot be played")
        return step * 10

    return Ahead(make, max_ahead=max_ahead, last=last), begun


@pytest.mark.parametrize("max_ahead", [0, 1, 2, 9])
def test_no_step_begins_before_it_may(max_ahead):
    ahead, begun = gate(max_ahead)
    for step in range(1, 7):
        assert ahead.batch(step) == step * 10
        ahead.run(nothing())  # what could begin has begun
        assert begun == list(range(1, min(step + max_ahead, 6) + 1))
    ahead.close(nothing)


def test_a_run_that_is_resumed_begins_in_the_middle():
    ahead, begun = gate(1)
    assert ahead.batch(4) == 40
    assert ahead.batch(5) == 50
    assert begun[0] == 4
    ahead.close(nothing)


def test_an_error_is_raised_at_its_own_step():
    ahead, _ = gate(2, fail=(2,))
    assert ahead.batch(1) == 10
    with pytest.raises(RunError, match="step 2 cannot"):
        ahead.batch(2)
    assert ahead.batch(3) == 30
    ahead.close(nothing)


def test_play_goes_on_while_the_trainer_computes():
    played = threading.Event()

    async def make(step):
        if step == 2:
            await asyncio.sleep(0.01)
            played.set()
        return step

    ahead = Ahead(make, max_ahead=1, last=2)
    ahead.batch(1)
    assert played.wait(10)  # this thread never turns to the loop
    assert ahead.batch(2) == 2
    ahead.close(nothing)


def test_closing_cuts_off_what_is_under_way_and_then_does_the_last_thing():
    told = []

    async def make(step):
        if step == 1:
            return 1
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            told.append("cut off")
            raise

    async def last():
        told.append("last")

    ahead = Ahead(make, max_ahead=1, last=2)
    ahead.batch(1)
    ahead.run(nothing())
    ahead.close(last)
    assert told == ["cut off", "last"]
    assert not ahead._thread.is_alive()
