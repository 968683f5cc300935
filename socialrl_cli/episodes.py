"""Plays many episodes at once: seats the participants, runs the games, keeps what came of them.

At most `concurrency` games run at a time; the next one starts when one has ended. An episode never ends the run:
a fault of a model or an engine makes it a failed episode with its error, reward 0. Two things do stop the run: a
record that could not be written, and more than `max_failed_fraction` failed episodes. Seconds in names ending in _s.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envs import make
from envs.core import Environment, Limits, Outcome, derive_seed, run
from scenarios.errors import RunError
from socialrl_cli.evaluation import Game, GameResult

if TYPE_CHECKING:
    from socialrl_cli.cast import Cast, Seat

ENOUGH_TO_JUDGE = 20  # games before the share of failed ones can stop a run


def collect_seldom() -> None:
    """A thousand waiting episodes are many objects and no garbage: look for some less often."""
    gc.set_threshold(50_000, 20, 50)


@dataclass(frozen=True)
class PlayConfig:
    """How episodes are played; the names of who plays are the command's."""

    concurrency: int = 128
    moves_per_seat: int = 10
    retries: int = 2
    decide_timeout_s: float = 300.0
    episode_timeout_s: float = 3600.0
    max_failed_fraction: float = 0.1

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ValueError(f"concurrency, got {self.concurrency}, expected at least 1")
        if not 0 <= self.max_failed_fraction <= 1:
            raise ValueError(f"max_failed_fraction, got {self.max_failed_fraction}, expected a share from 0 to 1")
        self.limits()

    def limits(self) -> Limits:
        return Limits(
            moves_per_seat=self.moves_per_seat,
            retries=self.retries,
            decide_timeout_s=self.decide_timeout_s,
            episode_timeout_s=self.episode_timeout_s,
        )


@dataclass(slots=True)
class Played:
    """A finished episode: its environment with all events, and what each seat's model calls were."""

    game: Game
    env: Environment
    outcome: Outcome
    seats: Mapping[str, Seat]
    status: str  # "finished" | "failed"
    error: str | None
    started_at: float
    finished_at: float

    def result(self) -> GameResult:
        """The evaluated seat's figures."""
        game, scored = self.game, self.outcome.seats.get(self.game.seat)
        answers = [answer for answer in self.env.answers if answer.seat == game.seat]
        failed = self.status != "finished" or scored is None
        return GameResult(
            env=game.scenario.env,
            scenario_id=game.scenario.id,
            opponent=game.opponent,
            seat=game.seat,
            trial=game.trial,
            repeat=game.repeat,
            policy=game.policy,
            reward=0.0 if failed or scored is None else scored.reward,
            utility=0.0 if failed or scored is None else scored.utility,
            outcome=self.outcome.status,
            status=self.status,
            decisions=len(answers),
            invalid=sum(answer.kind != "action" for answer in answers),
            episode_id=game.episode_id,
            error=self.error,
        )


class Table:
    """One episode with its participants seated; `play` it once."""

    def __init__(self, game: Game, cast: Cast, limits: Limits) -> None:
        self.game = game
        self.env: Environment = make(game.scenario, seed=game.seed, limits=limits)
        self.seats = {
            seat: cast.seat(
                game.who(seat),
                env=game.scenario.env,
                seat=seat,
                seed=derive_seed(game.seed, "seat", seat),
                session=f"{game.episode_id}-{seat}",
                failed=self.env.abort,
            )
            for seat in self.env.seats
        }

    async def play(self) -> Played:
        """From the first question to the outcome. Raises RunError alone: a record that could not be written."""
        started_at = time.time()
        outcome = await run(self.env, {seat: taken.agent for seat, taken in self.seats.items()})
        finished_at = time.time()
        for taken in self.seats.values():
            taken.finish()
        faults = [taken.fault for taken in self.seats.values() if taken.fault is not None]
        error = str(faults[0]) if faults else outcome.error
        status = "failed" if outcome.status == "aborted" else "finished"
        return Played(self.game, self.env, outcome, self.seats, status, error, started_at, finished_at)


async def play_all(
    games: Sequence[Game],
    cast: Cast,
    config: PlayConfig,
    *,
    done: Callable[[Played], None],
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Play the games, `done` for each as it ends (in the order in which they end).

    `should_stop` is asked before each start: games under way are finished. Raises RunError (see the module).
    """
    waiting, failed, finished = iter(games), 0, 0
    last_error: str | None = None

    async def worker() -> None:
        nonlocal failed, finished, last_error
        for game in waiting:
            if should_stop():
                return
            played = await Table(game, cast, config.limits()).play()
            finished += 1
            if played.status != "finished":
                failed, last_error = failed + 1, played.error
                if finished >= min(ENOUGH_TO_JUDGE, len(games)) and failed > config.max_failed_fraction * finished:
                    raise RunError(
                        f"{failed} of {finished} episodes failed, more than max_failed_fraction = "
                        f"{config.max_failed_fraction:g}; the last one: {last_error}"
                    )
            done(played)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(config.concurrency, len(games))):
                group.create_task(worker())
    except BaseExceptionGroup as several:
        raise first_of(several) from None


def first_of(error: BaseException) -> BaseException:
    """The first exception that is not a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
