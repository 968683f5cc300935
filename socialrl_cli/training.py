"""Joins play to learning: what `train sft` and `train ppo` set up around the loops of `algos`.

How the games of `train ppo` are played is in `player.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from algos import distributed, ppo, sft
from algos.messages import rows as message_rows
from algos.models import VALUE_HEAD, ModelConfig, Models, load
from algos.rows import Row
from envs.agents.harness import HarnessOverride
from scenarios.core import resolve
from scenarios.errors import UsageError
from socialrl_cli import buffer, grammars
from socialrl_cli.beside import Beside
from socialrl_cli.cast import HARNESS_FILE, check_harness, check_participants, harness_text, read_harness
from socialrl_cli.engines.config import EngineConfig, check_engine
from socialrl_cli.models import located, quiet
from socialrl_cli.output import progress
from socialrl_cli.placement import check_gpus, use_gpu
from socialrl_cli.player import GamesConfig, Player, ValidationConfig
from socialrl_cli.runs import Run
from socialrl_cli.trainers import Trainers

ONE = Trainers()


@dataclass(frozen=True)
class SftRun:
    """`train sft`: `data` are run directories (or buffer directories) whose rows are learned from. `harness`: how the
    model wants to be asked from now on, for data in another form than its own."""

    data: tuple[str, ...] = ()
    threads: int = 0
    train_gpus: tuple[int, ...] = ()
    harness: HarnessOverride = field(default_factory=HarnessOverride)
    model: ModelConfig = field(default_factory=ModelConfig)
    sft: sft.Config = field(default_factory=sft.Config)


@dataclass(frozen=True)
class PpoRun:
    """`train ppo`. `seed` draws games and samples; `ppo.seed` orders mini-batches."""

    seed: int = 0
    threads: int = 0
    train_gpus: tuple[int, ...] = ()
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


def check_sft(config: SftRun, trainers: Trainers = ONE) -> None:
    """Refuse, before anything is written, what would fail later."""
    check_gpus(config.train_gpus, device=config.model.device, nproc=trainers.nproc)
    if not config.data:
        raise UsageError("no data to learn from: give --data, for example --data runs/rollout")
    for name in config.data:
        if not Path(name).is_dir():
            raise UsageError(f"no data folder {name}: --data names a run or its buffer")
    check_model(config.model)


def check_ppo(config: PpoRun, trainers: Trainers = ONE) -> None:
    """The same for `train ppo`."""
    infer = config.engine.vllm.infer_gpus if config.engine.kind == "vllm" else ()
    check_gpus(config.train_gpus, infer, device=config.model.device, nproc=trainers.nproc)
    if trainers.several and config.engine.kind == "embedded":
        raise UsageError(
            f"{trainers.size} trainer processes: the embedded engine belongs to one; "
            "leave --nproc and --nnodes out, or play with a server"
        )
    check_model(config.model)
    check_engine(config.engine)
    resolve(config.games.env, config.games.split)
    check_harness(config.games.harness, (config.games.env,))
    check_participants(config.games.opponents, config.games.env)


def check_model(config: ModelConfig) -> None:
    if not config.actor:
        raise UsageError("no model to train: give --model, for example --model tiny")
    for name in (config.actor, config.critic):
        if name not in ("", VALUE_HEAD):
            check_participants((name if name.startswith("run:") else f"model:{name}",), "")


def run_sft(config: SftRun, run: Run | Beside) -> dict[str, Any]:
    """Learn from buffers; returns the last metrics."""
    quiet()
    use_threads(config.threads)
    use_gpu(config.train_gpus, config.model.device)
    models = load(located(config.model))
    keep_harness(models, config.harness)
    data = () if distributed.rank() else config.data
    rows = [row for name in data for row in rows_of(Path(name), models.tokenizer)]
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


def run_ppo(config: PpoRun, run: Run | Beside) -> dict[str, Any]:
    """Train a policy by playing; returns the counters, the best checkpoint and the last metrics."""
    quiet()
    use_threads(config.threads)
    use_gpu(config.train_gpus, config.model.device)
    models = load(located(config.model), critic=True, reference=config.ppo.eta > 0)
    keep_harness(models, config.games.harness)
    if isinstance(run, Beside):  # the first process plays
        return asdict(ppo.train(config.ppo, models, play=_nothing, publish=_nothing, run=run))
    player = Player(config.games, config.validation, models, run, engine=config.engine, batch=config.ppo.batch,
                    steps=config.ppo.steps, seed=config.seed)  # fmt: skip
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


def _nothing(*_: object) -> Any:
    """What a process beside the first plays and publishes."""


@contextmanager
def shown(run: Run | Beside, label: str, steps: int | None = None) -> Iterator[None]:
    """A line of progress for each step that the run logs."""
    wanted = ("loss", "reward_mean", "validation", "agreement", "invalid", "explained_variance", "approx_kl", "entropy")
    with progress(label, steps, every_s=0.0 if label == "ppo" else 5.0) as advance:
        done = max((row["step"] for row in run.metrics()), default=0)
        if done:
            advance(done)
        run.watchers.append(
            lambda _step, metrics: advance(**{name: float(metrics[name]) for name in wanted if name in metrics})
        )
        try:
            yield
        finally:
            run.watchers.pop()
