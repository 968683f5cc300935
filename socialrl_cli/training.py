"""Joins play to learning: what `train sft` and `train ppo` set up around the loops of `algos`.

`train ppo` on one machine: the embedded engine shares the actor's weights in memory, so a batch is always played by
the version that is trained next (strictly on-policy), and publishing only moves the version. Games of a step that
were finished before an interruption are taken from the buffer instead of being played twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algos import ppo, sft
from algos.loop import Batch
from algos.messages import rows as message_rows
from algos.models import VALUE_HEAD, ModelConfig, Models, load
from algos.rows import Row
from envs import module
from envs.agents.harness import HarnessOverride
from envs.core import derive_seed
from scenarios.core import resolve
from scenarios.errors import UsageError
from socialrl_cli import buffer, grammars
from socialrl_cli.cast import HARNESS_FILE, Cast, check_harness, check_participants, harness_text, read_harness
from socialrl_cli.engines.config import EngineConfig
from socialrl_cli.episodes import PlayConfig, Played, play_all
from socialrl_cli.evaluation import DEFAULT_OPPONENTS, Game, GameResult, plan
from socialrl_cli.models import quiet
from socialrl_cli.models import resolve as resolve_model
from socialrl_cli.output import progress
from socialrl_cli.rollouts import draw
from socialrl_cli.runs import Run
from socialrl_cli.store import Store

if TYPE_CHECKING:
    from socialrl_cli.recorder import RecorderCounters

POLICY = "policy"  # the participant text of the model that is trained


@dataclass(frozen=True)
class GamesConfig:
    """The games that are trained on. The policy's seat alternates, opponents take turns."""

    env: str = "dnd"
    split: str = "train"
    opponents: tuple[str, ...] = DEFAULT_OPPONENTS
    temperature: float = 1.0
    max_tokens: int | None = None
    harness: HarnessOverride = field(default_factory=HarnessOverride)
    play: PlayConfig = field(default_factory=PlayConfig)


@dataclass(frozen=True)
class ValidationConfig:
    """The games that choose the best checkpoint; apart from the training games and from the final test."""

    split: str = "val"
    scenarios: int = 50
    trials: int = 1
    both_seats: bool = False


@dataclass(frozen=True)
class SftRun:
    """`train sft`: `data` are run directories (or buffer directories) whose rows are learned from. `harness`: how the
    model wants to be asked from now on, for data in another form than its own."""

    data: tuple[str, ...] = ()
    threads: int = 0
    harness: HarnessOverride = field(default_factory=HarnessOverride)
    model: ModelConfig = field(default_factory=ModelConfig)
    sft: sft.Config = field(default_factory=sft.Config)


@dataclass(frozen=True)
class PpoRun:
    """`train ppo`. `seed` draws games and samples; `ppo.seed` orders mini-batches."""

    seed: int = 0
    threads: int = 0
    model: ModelConfig = field(default_factory=ModelConfig)
    games: GamesConfig = field(default_factory=GamesConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    ppo: ppo.Config = field(default_factory=ppo.Config)


def use_threads(count: int) -> None:
    """How many threads torch computes with; 0 leaves it."""
    import torch

    if count:
        torch.set_num_threads(count)


def located(config: ModelConfig) -> ModelConfig:
    """The configuration with folders for names (see `models.resolve`)."""
    critic = config.critic
    if critic not in ("", VALUE_HEAD):
        critic = resolve_model(critic, critic=True)
    return replace(config, actor=resolve_model(config.actor), critic=critic)


def check_sft(config: SftRun) -> None:
    """Refuse, before anything is written, what would fail later."""
    if not config.data:
        raise UsageError("no data to learn from: give --data, for example --data runs/rollout")
    for name in config.data:
        if not Path(name).is_dir():
            raise UsageError(f"no data folder {name}: --data names a run or its buffer")
    check_model(config.model)


def check_ppo(config: PpoRun) -> None:
    """The same for `train ppo`."""
    check_model(config.model)
    resolve(config.games.env, config.games.split)
    check_harness(config.games.harness, (config.games.env,))
    check_participants(config.games.opponents, config.games.env)


def check_model(config: ModelConfig) -> None:
    if not config.actor:
        raise UsageError("no model to train: give --model, for example --model tiny")
    for name in (config.actor, config.critic):
        if name not in ("", VALUE_HEAD):
            check_participants((name if name.startswith("run:") else f"model:{name}",), "")


def run_sft(config: SftRun, run: Run) -> dict[str, Any]:
    """Learn from buffers; returns the last metrics."""
    quiet()
    use_threads(config.threads)
    models = load(located(config.model))
    keep_harness(models, config.harness)
    rows = [row for name in config.data for row in rows_of(Path(name), models.tokenizer)]
    with shown(run, "sft"):
        counters = sft.train(config.sft, models, rows=rows, run=run)
    if not run.should_stop():
        run.done()
    return {"run": str(run.path), **asdict(counters), "metrics": run.metrics()[-1]}


def keep_harness(models: Models, harness: HarnessOverride) -> None:
    """Checkpoints say how the model was asked in training."""
    if harness.given():
        models.files[HARNESS_FILE] = harness_text(harness.over(read_harness(models.source)))


def rows_of(folder: Path, tokenizer: Any) -> list[Row]:
    """The rows of a run: exact tokens where it has them, else its conversations in the student's tokens."""
    folder = folder / "buffer" if (folder / "buffer").is_dir() else folder
    table = buffer.read(folder)
    exact = buffer.to_rows(table, grammars.read(folder))
    return exact or message_rows(buffer.message_rows(table), tokenizer)


class PpoPlay:
    """Plays a step's games with the actor as it is; one per run."""

    def __init__(self, config: PpoRun, models: Models, run: Run) -> None:
        from socialrl_cli.engines.opening import open_engine
        from socialrl_cli.recorder import Recorder

        self.config, self.run = config, run
        games = config.games
        self.seats = module(games.env).TRAINABLE
        self.scenarios = resolve(games.env, games.split)
        override = {"temperature": games.temperature, **games.harness.given()}
        if games.max_tokens is not None:
            override["max_tokens"] = games.max_tokens
        self.runner = asyncio.Runner()
        self.engine = open_engine(config.engine, name=POLICY, path=models.source, trained=models)
        self.store = Store(run.path)
        self.recorder = Recorder(self.engine, run.path / "calls")
        self.cast = Cast(run.path / "calls" / "opponents", engine=config.engine, override=override)
        self.cast.adopt(POLICY, self.engine, self.recorder, read_harness(models.source))
        self.cast.prepare(games.opponents)

    def play(self, step: int) -> Batch:
        """The batch of a step."""
        config, before = self.config, replace(self.recorder.counters)
        games = draw(
            self.scenarios, (POLICY,), config.games.opponents, seats=self.seats, episodes=config.ppo.batch,
            seed=derive_seed(config.seed, "step", step), label=f"step{step:05d}",
        )  # fmt: skip
        rows = self._kept([game for game in games if game.episode_id in self.store.finished])
        found: list[Mapping[str, Any]] = []

        def done(played: Played) -> None:
            own = self.store.add(played)
            if played.status == "finished":
                found.extend(row for row in own if row["seat"] == played.game.seat)

        left = [game for game in games if game.episode_id not in self.store.finished]
        self.runner.run(play_all(left, self.cast, config.games.play, done=done))
        self.store.flush()
        order = {game.episode_id: number for number, game in enumerate(games)}
        rows += buffer.to_rows(buffer.to_table(found), self.store.grammars) if found else []
        rows.sort(key=lambda row: (order[row.episode_id], row.segment))
        return Batch(rows, self._metrics([self.store.finished[game.episode_id] for game in games], before))

    def _kept(self, games: Sequence[Game]) -> list[Row]:
        """Rows of games that an earlier attempt has finished."""
        if not games:
            return []
        import pyarrow.compute as pc

        seats = {game.episode_id: game.seat for game in games}
        table = buffer.read(self.run.path / "buffer", filter=pc.field("episode_id").isin(list(seats)))
        rows = buffer.to_rows(table, self.store.grammars)
        return [row for row in rows if seats[row.episode_id] == row.seat and row.status == "finished"]

    def _metrics(self, results: Sequence[GameResult], before: RecorderCounters) -> dict[str, float]:
        counters = self.recorder.counters
        calls, truncated = counters.calls - before.calls, counters.truncated - before.truncated
        return {
            "utility_mean": _mean(r.utility for r in results),
            "agreement": _mean(r.outcome == "agreement" for r in results),
            "invalid": sum(r.invalid for r in results) / max(1, sum(r.decisions for r in results)),
            "truncated": truncated / max(1, calls),  # share of this step's answers that ended at their token limit
            "failed": sum(r.status != "finished" for r in results),
            "moves": _mean(r.decisions for r in results),
            "drift/continued": counters.continued,
            "drift/drifted": counters.drifted,
            "drift/restarted": counters.restarted,
        }

    def validate(self, step: int) -> float:
        """Mean reward on the validation games: the same games at every step."""
        config, check = self.config, self.config.validation
        scenarios = resolve(config.games.env, check.split)[: check.scenarios]
        games = plan(
            scenarios, POLICY, config.games.opponents, seats=self.seats, both_seats=check.both_seats,
            trials=check.trials, seed=config.seed,
        )  # fmt: skip
        games = [replace(game, episode_id=f"step{step:05d}-{game.episode_id}") for game in games]
        results: list[GameResult] = []
        self.runner.run(
            play_all(games, self.cast, config.games.play, done=lambda played: results.append(played.result()))
        )
        return _mean(result.reward for result in results)

    def publish(self, version: int, _actor: object) -> None:
        self.runner.run(self.engine.publish(version))

    def close(self) -> None:
        """End what is under way without keeping it: a game that was cut off is played again on resume."""
        try:
            cut_off = asyncio.all_tasks(self.runner.get_loop())
            for task in cut_off:
                task.cancel()
            self.runner.run(self._end(cut_off))
        finally:
            self.runner.close()
            self.recorder.close()
            self.store.close()

    async def _end(self, tasks: set[asyncio.Task[Any]]) -> None:
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.cast.close()
        await self.engine.close()


def run_ppo(config: PpoRun, run: Run) -> dict[str, Any]:
    """Train a policy by playing; returns the counters, the best checkpoint and the last metrics."""
    quiet()
    use_threads(config.threads)
    models = load(located(config.model), critic=True, reference=config.ppo.eta > 0)
    keep_harness(models, config.games.harness)
    player = PpoPlay(config, models, run)
    try:
        validate = player.validate if config.validation.scenarios else None
        with shown(run, "ppo", config.ppo.steps):
            counters = ppo.train(
                config.ppo, models, play=player.play, publish=player.publish, run=run, validate=validate
            )
    finally:
        player.close()
    if counters.step >= config.ppo.steps:
        run.done()
    best = run.best() or run.latest()
    return {
        "run": str(run.path),
        **asdict(counters),
        "best": None if best is None else str(best),
        "metrics": (run.metrics() or [{}])[-1],
    }


@contextmanager
def shown(run: Run, label: str, steps: int | None = None) -> Iterator[Run]:
    """The run, with a line of progress for each step that it logs."""
    wanted = ("loss", "reward_mean", "validation", "agreement", "invalid", "explained_variance", "approx_kl", "entropy")
    with progress(label, steps, every_s=0.0 if label == "ppo" else 5.0) as advance:
        done = max((row["step"] for row in run.metrics()), default=0)
        if done:
            advance(done)
        run.watchers.append(
            lambda _step, metrics: advance(**{name: float(metrics[name]) for name in wanted if name in metrics})
        )
        try:
            yield run
        finally:
            run.watchers.pop()


def _mean(values: Any) -> float:
    found = [float(value) for value in values]
    return sum(found) / len(found) if found else 0.0
