"""Plays the games that a training loop learns from, with the policy as it is published.

The batch of a step is the games that were drawn for it, played up to `max_ahead` steps early (see `ahead.py`). With
`max_ahead = 0` the embedded engine shares the trained weights, and a batch is always played by the version that is
trained next. With more it plays with a copy of them, and publishing hands the new ones over. Games of a step that
were finished before an interruption are taken from the buffer instead of being played twice.
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
from socialrl_cli import buffer, parity
from socialrl_cli.ahead import Ahead
from socialrl_cli.cast import Cast, read_harness
from socialrl_cli.episodes import Crew, PlayConfig, Played, play_all
from socialrl_cli.evaluation import USUAL, Game, GameResult, plan, spelt_out
from socialrl_cli.rollouts import draw
from socialrl_cli.store import Store

if TYPE_CHECKING:
    from algos.models import Models
    from socialrl_cli.engines.config import EngineConfig
    from socialrl_cli.runs import Run

POLICY = "policy"  # the participant text of the model that is trained


@dataclass(frozen=True)
class GamesConfig:
    """The games that are trained on. The policy's seat alternates, opponents take turns.

    `max_ahead`: how many steps' games may be dispatched before the trainer asks for them (0: strictly on-policy);
    `max_staleness`: an episode whose oldest move is more policy versions behind the trainer is dropped, with its group.
    """

    env: str = "dnd"
    split: str = "train"
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
        object.__setattr__(self, "opponents", spelt_out(self.opponents, opponents(self.env)))


@dataclass(frozen=True)
class ValidationConfig:
    """The games that choose the best checkpoint; apart from the training games and from the final test."""

    split: str = "val"
    scenarios: int = 50
    trials: int = 1
    both_seats: bool = False


class Player:
    """`play`, `publish` and `validate` for one training loop of `steps` steps. Close it."""

    def __init__(
        self,
        games: GamesConfig,
        validation: ValidationConfig,
        models: Models,
        run: Run,
        *,
        engine: EngineConfig,
        batch: int,
        steps: int,
        seed: int,
    ) -> None:
        from socialrl_cli.engines.opening import open_engine
        from socialrl_cli.recorder import Recorder

        self.games, self.validation, self.run, self.batch, self.seed = games, validation, run, batch, seed
        models = replace(models)  # the trainer's own keep their parts, where they are sharded
        self.models, self.gap = models, 0.0  # nats between engine and trainer, at the last look
        self.seats = module(games.env).TRAINABLE
        self.scenarios = resolve(games.env, games.split)
        override = {"temperature": games.temperature, **games.harness.given()}
        if games.max_tokens is not None:
            override["max_tokens"] = games.max_tokens
        self.engine = open_engine(
            engine, name=POLICY, path=models.source, work=run.path / "engine", trained=models,
            overlapping=games.max_ahead > 0,
        )  # fmt: skip
        self.store = Store(run.path)
        self.recorder = Recorder(self.engine, run.path / "calls")
        self.cast = Cast(run.path / "calls" / "opponents", engine=engine, override=override)
        self.harness = games.harness.over(read_harness(models.source))
        self.cast.adopt(POLICY, self.engine, self.recorder, self.harness)
        self.cast.prepare(games.opponents)
        self.crew = Crew(self.cast, games.play)
        self.ahead: Ahead[Batch] = Ahead(self._play, max_ahead=games.max_ahead, last=steps)

    def play(self, step: int) -> Batch:
        """The batch of a step, without what is too old for the version that is trained now."""
        batch = self.ahead.batch(step)
        if self.games.max_staleness is None:
            return batch
        rows, dropped = fresh(batch.rows, self.engine.policy_version - self.games.max_staleness)
        return Batch(rows, {**batch.metrics, "dropped_stale": dropped})

    async def _play(self, step: int) -> Batch:
        games = draw(
            self.scenarios, (POLICY,), self.games.opponents, seats=self.seats, episodes=self.batch,
            seed=derive_seed(self.seed, "step", step), label=f"step{step:05d}",
        )  # fmt: skip
        rows = self._kept([game for game in games if game.episode_id in self.store.finished])
        found: list[Mapping[str, Any]] = []
        ended: list[Played] = []

        def done(played: Played) -> None:
            ended.append(played)
            own = self.store.add(played)
            if played.status == "finished":
                found.extend(row for row in own if row["seat"] == played.game.seat)

        left = [game for game in games if game.episode_id not in self.store.finished]
        await self.crew.play(left, done=done)
        self.store.flush()
        order = {game.episode_id: number for number, game in enumerate(games)}
        rows += buffer.to_rows(buffer.to_table(found), self.store.grammars) if found else []
        rows.sort(key=lambda row: (order[row.episode_id], row.segment))
        results = [self.store.finished[game.episode_id] for game in games]
        return Batch(rows, self._metrics(results) | {"truncated": _truncated(ended)})

    def _kept(self, games: Sequence[Game]) -> list[Row]:
        """Rows of games that an earlier attempt has finished."""
        if not games:
            return []
        import pyarrow.compute as pc

        seats = {game.episode_id: game.seat for game in games}
        table = buffer.read(self.run.path / "buffer", filter=pc.field("episode_id").isin(list(seats)))
        rows = buffer.to_rows(table, self.store.grammars)
        return [row for row in rows if seats[row.episode_id] == row.seat and row.status == "finished"]

    def _metrics(self, results: Sequence[GameResult]) -> dict[str, float]:
        counters = self.recorder.counters
        return {
            "utility_mean": _mean(r.utility for r in results),
            "agreement": _mean(r.outcome == "agreement" for r in results),
            "invalid": sum(r.invalid for r in results) / max(1, sum(r.decisions for r in results)),
            "failed": sum(r.status != "finished" for r in results),
            "moves": _mean(r.decisions for r in results),
            "drift/continued": counters.continued,
            "drift/drifted": counters.drifted,
            "drift/restarted": counters.restarted,
            "parity": self.gap,
        }

    def validate(self, step: int) -> float:
        """Mean reward on the validation games: the same games at every step."""
        check = self.validation
        scenarios = resolve(self.games.env, check.split)[: check.scenarios]
        games = plan(
            scenarios, POLICY, self.games.opponents, seats=self.seats, both_seats=check.both_seats,
            trials=check.trials, seed=self.seed,
        )  # fmt: skip
        games = [replace(game, episode_id=f"step{step:05d}-{game.episode_id}") for game in games]
        results: list[GameResult] = []
        self.ahead.run(play_all(games, self.cast, self.games.play, done=lambda played: results.append(played.result())))
        return _mean(result.reward for result in results)

    def publish(self, version: int, actor: object) -> None:
        """Hand the weights on, and see that the engine answers with them. Raises EngineError when it does not."""
        self.models.actor = actor  # where the trained one is sharded, this one is whole
        self.ahead.run(self.engine.publish(version))
        constrained = self.harness.format == "schema"
        answers = self.ahead.run(parity.answers(self.engine, self.games.temperature, constrained=constrained))
        self.gap = parity.check(self.models, answers, self.engine.model, version)

    def close(self) -> None:
        """End what is under way without keeping it: a game that was cut off is played again on resume."""
        try:
            self.ahead.close(self._end)
        finally:
            self.recorder.close()
            self.store.close()

    async def _end(self) -> None:
        await self.cast.close()
        await self.engine.close()


def fresh(rows: Sequence[Row], oldest: int) -> tuple[list[Row], int]:
    """The rows of the episodes whose every move, and whose group's every move, is of version `oldest` or newer; and
    how many episodes were dropped."""
    old = {row.group_id or row.episode_id for row in rows if row.policy_version < oldest}
    kept = [row for row in rows if (row.group_id or row.episode_id) not in old]
    return kept, len({row.episode for row in rows}) - len({row.episode for row in kept})


def _truncated(ended: Iterable[Played]) -> float:
    """The share of the policy's answers that ended at their token limit."""
    calls = [call for played in ended for call in played.seats[played.game.seat].calls or ()]
    return _mean(call.finish_reason == "length" for call in calls)


def _mean(values: Iterable[float]) -> float:
    found = [float(value) for value in values]
    return sum(found) / len(found) if found else 0.0
