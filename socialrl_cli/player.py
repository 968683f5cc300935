"""Plays the games that a training loop learns from, with the policy as it is published.

The batch of a step is the games that were drawn for it, played up to `max_ahead` steps early (see `ahead.py`). With
`max_ahead = 0` the embedded engine shares the trained weights, and a batch is always played by the version that is
trained next. With more it plays with a copy of them, and publishing hands the new ones over. Games of a step that
were finished before an interruption are taken from the buffer instead of being played twice.

Two delegates that are trained together (see `delegate.py`) play each other: a game gives each of them the rows of its
own seat. The scripted opponents are what each of them is validated against.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from algos.loop import Batch
from algos.rows import Row
from envs import module
from envs.agents.harness import HarnessOverride
from envs.agents.scripted import opponents
from envs.core import derive_seed
from scenarios.core import resolve
from socialrl_cli import buffer
from socialrl_cli.ahead import Ahead
from socialrl_cli.cast import Cast
from socialrl_cli.delegate import Delegate
from socialrl_cli.episodes import Crew, PlayConfig, Played, play_all
from socialrl_cli.evaluation import USUAL, Game, GameResult, plan, spelt_out
from socialrl_cli.rollouts import draw
from socialrl_cli.store import Store

if TYPE_CHECKING:
    from algos.models import Models
    from socialrl_cli.engines.config import EngineConfig
    from socialrl_cli.runs import Run


@dataclass(frozen=True)
class GamesConfig:
    """The games that are trained on. The policy's seat alternates, opponents take turns.

    `seat`: the policy always takes this one ("": the environment's in turn); a second delegate has the other.
    `max_ahead`: how many steps' games may be dispatched before the trainer asks for them (0: strictly on-policy);
    `max_staleness`: an episode whose oldest move is more policy versions behind the trainer is dropped, with its group.
    """

    env: str = "dnd"
    split: str = "train"
    seat: str = ""
    opponents: tuple[str, ...] = USUAL
    temperature: float = 1.0
    max_tokens: int | None = None
    max_ahead: int = 0
    max_staleness: int | None = None
    harness: HarnessOverride = field(default_factory=HarnessOverride)
    play: PlayConfig = field(default_factory=PlayConfig)

    def __post_init__(self) -> None:
        for name in ("max_ahead", "max_staleness"):
            if (getattr(self, name) or 0) < 0:
                raise ValueError(f"{name}, got {getattr(self, name)}, expected 0 or more")
        trainable = module(self.env).TRAINABLE
        if self.seat and self.seat not in trainable:
            raise ValueError(
                f"seat, got {self.seat!r}, expected one that is trained in {self.env}: {', '.join(trainable)}"
            )
        object.__setattr__(self, "opponents", spelt_out(self.opponents, opponents(self.env)))


@dataclass(frozen=True)
class ValidationConfig:
    """The games that choose the best checkpoint; apart from the training games and from the final test."""

    split: str = "val"
    scenarios: int = 50
    trials: int = 1
    both_seats: bool = False


class Player:
    """`play`, `publish` and `validate` for one training loop of `steps` steps. Close it.

    `models` are those of one delegate, or of two by name, the first of which `games.seat` is about.
    """

    def __init__(
        self,
        games: GamesConfig,
        validation: ValidationConfig,
        models: Mapping[str, Models],
        run: Run,
        *,
        engine: EngineConfig,
        batch: int,
        steps: int,
        seed: int,
    ) -> None:
        self.games, self.validation, self.run, self.batch, self.seed = games, validation, run, batch, seed
        self.seats = seats_in_turn(games, list(models))
        self.scenarios = resolve(games.env, games.split)
        override = {"temperature": games.temperature, **games.harness.given()}
        if games.max_tokens is not None:
            override["max_tokens"] = games.max_tokens
        self.delegates: dict[str, Delegate] = {}
        self.store = Store(run.path)
        self.cast = Cast(run.path / "calls" / "opponents", engine=engine, override=override)
        self.crew = Crew(self.cast, games.play)
        self.ahead: Ahead[dict[str, Batch]] = Ahead(self._play, max_ahead=games.max_ahead, last=steps)
        try:
            for name, own in models.items():
                self.delegates[name] = Delegate(
                    name, own, run.path, engine=engine, harness=games.harness, temperature=games.temperature,
                    overlapping=games.max_ahead > 0, label=name if len(models) > 1 else "",
                )  # fmt: skip
                self.delegates[name].join(self.cast)
            self.cast.prepare(games.opponents)
        except BaseException:
            self.close()
            raise

    def play(self, step: int) -> dict[str, Batch]:
        """Each delegate's batch of a step, without episodes that are too old for the version that is trained now."""
        batches = self.ahead.batch(step)
        if self.games.max_staleness is None:
            return batches
        oldest = {name: delegate.version - self.games.max_staleness for name, delegate in self.delegates.items()}
        return fresh(batches, oldest)

    async def _play(self, step: int) -> dict[str, Batch]:
        first, *others = self.delegates
        games = draw(
            self.scenarios, (first,), others or self.games.opponents, seats=self.seats[first], episodes=self.batch,
            seed=derive_seed(self.seed, "step", step), label=f"step{step:05d}",
        )  # fmt: skip
        rows = self._kept([game for game in games if self._finished(game)])
        found: list[Mapping[str, Any]] = []
        ended: list[Played] = []

        def done(played: Played) -> None:
            ended.append(played)
            own = self.store.add(played, reported=others)
            if played.status == "finished":
                found.extend(row for row in own if row["agent"] in self.delegates)

        await self.crew.play([game for game in games if not self._finished(game)], done=done)
        self.store.flush()
        order = {game.episode_id: number for number, game in enumerate(games)}
        rows += buffer.to_rows(buffer.to_table(found), self.store.grammars) if found else []
        rows.sort(key=lambda row: (order[row.episode_id], row.segment))
        return {
            name: Batch(
                [row for row in rows if row.agent == name],
                _metrics([self.store.results[game.episode_id, name] for game in games])
                | self.delegates[name].metrics()
                | {"truncated": _truncated(ended, name)},
            )
            for name in self.delegates
        }

    def _finished(self, game: Game) -> bool:
        """Whether an earlier attempt has played it, and written down all of it."""
        return all((game.episode_id, name) in self.store.results for name in self.delegates)

    def _kept(self, games: Sequence[Game]) -> list[Row]:
        """Rows of games that an earlier attempt has finished."""
        if not games:
            return []
        import pyarrow.compute as pc

        episodes = pc.field("episode_id").isin([game.episode_id for game in games])
        table = buffer.read(self.run.path / "buffer", filter=episodes & pc.field("agent").isin(list(self.delegates)))
        return [row for row in buffer.to_rows(table, self.store.grammars) if row.status == "finished"]

    def validate(self, step: int) -> dict[str, float]:
        """Each delegate's mean reward on the validation games: the same games at every step."""
        check = self.validation
        scenarios = resolve(self.games.env, check.split)[: check.scenarios]
        games = [
            replace(game, episode_id=f"step{step:05d}-{game.episode_id}")
            for name in self.delegates
            for game in plan(
                scenarios, name, self.games.opponents, seats=self.seats[name], both_seats=check.both_seats,
                trials=check.trials, seed=self.seed,
            )
        ]  # fmt: skip
        results: list[GameResult] = []
        self.ahead.run(play_all(games, self.cast, self.games.play, done=lambda played: results.append(played.result())))
        return {name: _mean(r.reward for r in results if r.policy == name) for name in self.delegates}

    def publish(self, name: str, version: int, actor: object) -> None:
        """Hand a delegate's weights on, and see that its engine answers with them. Raises EngineError."""
        self.delegates[name].publish(version, actor, self.ahead.run)

    def close(self) -> None:
        """End what is under way without keeping it: a game that was cut off is played again on resume."""
        try:
            self.ahead.close(self._end)
        finally:
            for delegate in self.delegates.values():
                delegate.recorder.close()
            self.store.close()

    async def _end(self) -> None:
        await self.cast.close()
        for delegate in self.delegates.values():
            await delegate.engine.close()


def seats_in_turn(games: GamesConfig, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The seats that each delegate takes in turn, in training and in validation; `games.seat` is the first one's."""
    trainable = module(games.env).TRAINABLE
    own = (games.seat,) if games.seat else trainable
    return {
        name: tuple(s for s in trainable if s != games.seat) if number else own for number, name in enumerate(names)
    }


def fresh(batches: Mapping[str, Batch], oldest: Mapping[str, int]) -> dict[str, Batch]:
    """The batches without the episodes in which a delegate's move is of a version older than its `oldest`, and without
    those of the same group. Such an episode is dropped whole, for every delegate, and counted."""
    old = {
        row.group_id or row.episode_id
        for name, batch in batches.items()
        for row in batch.rows
        if row.policy_version < oldest[name]
    }
    found = {}
    for name, batch in batches.items():
        kept = [row for row in batch.rows if (row.group_id or row.episode_id) not in old]
        dropped = len({row.episode for row in batch.rows}) - len({row.episode for row in kept})
        found[name] = Batch(kept, {**batch.metrics, "dropped_stale": dropped})
    return found


def _metrics(results: Sequence[GameResult]) -> dict[str, float]:
    return {
        "utility_mean": _mean(r.utility for r in results),
        "agreement": _mean(r.outcome == "agreement" for r in results),
        "invalid": sum(r.invalid for r in results) / max(1, sum(r.decisions for r in results)),
        "failed": sum(r.status != "finished" for r in results),
        "moves": _mean(r.decisions for r in results),
    }


def _truncated(ended: Iterable[Played], name: str) -> float:
    """The share of a delegate's answers that ended at their token limit."""
    seats = (taken for played in ended for seat, taken in played.seats.items() if played.game.who(seat) == name)
    return _mean(call.finish_reason == "length" for taken in seats for call in taken.calls or ())


def _mean(values: Iterable[float]) -> float:
    found = [float(value) for value in values]
    return sum(found) / len(found) if found else 0.0
