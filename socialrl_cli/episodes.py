"""Plays many episodes at once: seats the participants, runs the games, keeps what came of them.

At most `concurrency` games run at a time; the next one starts when one has ended. An episode never ends the run:
a fault of a model or an engine makes it a failed episode with its error, reward 0. Two things do stop the run: a
record that could not be written, and more than `max_failed_fraction` failed episodes. Seconds in names ending in _s.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import deque
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

    def result(self, seat: str = "") -> GameResult:
        """The figures of a seat; without one, of the game's own, the evaluated one."""
        game, seat = self.game, seat or self.game.seat
        scored, own = self.outcome.seats.get(seat), game.who(seat) == game.policy
        answers = [answer for answer in self.env.answers if answer.seat == seat]
        failed = self.status != "finished" or scored is None
        return GameResult(
            env=game.scenario.env,
            scenario_id=game.scenario.id,
            opponent=game.opponent if own else game.policy,
            seat=seat,
            trial=game.trial,
            repeat=game.repeat,
            policy=game.who(seat),
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


class Crew:
    """Plays games, at most `concurrency` at once over all that it is given; who came first is served first."""

    def __init__(self, cast: Cast, config: PlayConfig) -> None:
        self.cast, self.config = cast, config
        self._waiting: deque[tuple[Game, _Lot]] = deque()
        self._running: dict[asyncio.Task[None], _Lot] = {}

    async def play(
        self, games: Sequence[Game], *, done: Callable[[Played], None], should_stop: Callable[[], bool] = lambda: False
    ) -> None:
        """Play these games, `done` for each as it ends (in the order in which they end).

        `should_stop` is asked before each start: games under way are finished. Raises RunError (see the module).
        """
        if not games:
            return
        lot = _Lot(len(games), done, should_stop, asyncio.get_running_loop().create_future())
        self._waiting.extend((game, lot) for game in games)
        self._start()
        try:
            await lot.over
        finally:  # where it failed or was cancelled, nothing of it goes on
            self._waiting = deque(item for item in self._waiting if item[1] is not lot)
            left = [task for task, of in self._running.items() if of is lot]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    def _start(self) -> None:
        while self._waiting and len(self._running) < self.config.concurrency:
            game, lot = self._waiting.popleft()
            if lot.should_stop():
                lot.count()
                continue
            task = asyncio.get_running_loop().create_task(self._play(game, lot))
            self._running[task] = lot
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        lot = self._running.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            lot.fail(error)
        lot.count()
        self._start()

    async def _play(self, game: Game, lot: _Lot) -> None:
        played = await Table(game, self.cast, self.config.limits()).play()
        lot.finished += 1
        if played.status != "finished":
            lot.failed += 1
            most = self.config.max_failed_fraction
            if lot.finished >= min(ENOUGH_TO_JUDGE, lot.games) and lot.failed > most * lot.finished:
                raise RunError(
                    f"{lot.failed} of {lot.finished} episodes failed, more than max_failed_fraction = {most:g}; "
                    f"the last one: {played.error}"
                )
        lot.done(played)


class _Lot:
    """Games that were given together, and how far they are."""

    def __init__(
        self, games: int, done: Callable[[Played], None], should_stop: Callable[[], bool], over: asyncio.Future[None]
    ) -> None:
        self.games, self.done, self.should_stop, self.over = games, done, should_stop, over
        self.left, self.finished, self.failed = games, 0, 0

    def count(self) -> None:
        self.left -= 1
        if not self.left and not self.over.done():
            self.over.set_result(None)

    def fail(self, error: BaseException) -> None:
        if not self.over.done():
            self.over.set_exception(error)


async def play_all(
    games: Sequence[Game],
    cast: Cast,
    config: PlayConfig,
    *,
    done: Callable[[Played], None],
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """`Crew.play` for games that come alone."""
    await Crew(cast, config).play(games, done=done, should_stop=should_stop)
