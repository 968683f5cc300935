"""Joins play to learning: what `train sft` and `train ppo` set up around the loops of `algos`.

How the games of `train ppo` are played is in `player.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from algos import distributed, ppo, sft
from algos.loop import labelled, learn
from algos.messages import rows as message_rows
from algos.models import VALUE_HEAD, LoraConfig, ModelConfig, Models, load
from algos.rows import Row
from envs import module
from envs.agents.harness import HarnessOverride
from scenarios import NEGOTIATIONS
from scenarios.core import resolve
from scenarios.errors import ModelError, UsageError
from socialrl_cli import buffer, grammars
from socialrl_cli.beside import Beside
from socialrl_cli.cast import HARNESS_FILE, check_harness, check_participants, harness_text, read_harness
from socialrl_cli.delegate import PARTNER, POLICY
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
class PartnerConfig:
    """A second delegate, which takes the other seat of every game and is trained for that seat's reward. It has an
    actor, adapter, critic and optimisers of its own; what is left out here is as for the first (`model`, `ppo`)."""

    actor: str = ""
    critic: str | None = None
    lora: LoraConfig | None = None
    actor_lr: float | None = None
    critic_lr: float | None = None
    value_head_lr: float | None = None

    def over(self, model: ModelConfig, how: ppo.Config) -> tuple[ModelConfig, ppo.Config]:
        """The first one's settings with these laid over them."""
        critic = model.critic if self.critic is None else self.critic
        rates = {name: getattr(self, name) for name in ("actor_lr", "critic_lr", "value_head_lr")}
        return (
            replace(model, actor=self.actor or model.actor, critic=critic, lora=self.lora or model.lora),
            replace(how, **{name: rate for name, rate in rates.items() if rate is not None}),
        )


@dataclass(frozen=True)
class PpoRun:
    """`train ppo`. `seed` draws games and samples; `ppo.seed` orders mini-batches. With a `partner` two delegates are
    trained, which play each other."""

    seed: int = 0
    threads: int = 0
    train_gpus: tuple[int, ...] = ()
    model: ModelConfig = field(default_factory=ModelConfig)
    partner: PartnerConfig | None = None
    games: GamesConfig = field(default_factory=GamesConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    ppo: ppo.Config = field(default_factory=ppo.Config)


def delegates(config: PpoRun) -> dict[str, tuple[ModelConfig, ppo.Config]]:
    """Who is trained, from what and how."""
    found = {POLICY: (config.model, config.ppo)}
    return found if config.partner is None else found | {PARTNER: config.partner.over(config.model, config.ppo)}


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
    for model, _ in delegates(config).values():
        check_model(model)
    if config.partner is not None:
        check_partner(config, trainers)
    check_engine(config.engine)
    resolve(config.games.env, config.games.split)
    check_harness(config.games.harness, (config.games.env,))
    check_participants(config.games.opponents, config.games.env)


def check_partner(config: PpoRun, trainers: Trainers) -> None:
    """Refuse what two delegates cannot do together. Raises UsageError."""
    env, vllm = config.games.env, config.engine.vllm
    trainable = module(env).TRAINABLE
    if env not in NEGOTIATIONS or len(trainable) < 2:
        fit = ", ".join(name for name in NEGOTIATIONS if len(module(name).TRAINABLE) > 1)
        raise UsageError(f"--partner: {env} has no two seats that are trained; games that have: {fit}")
    if trainers.several:
        raise UsageError(
            f"{trainers.size} trainer processes: two delegates are trained by one; leave --nproc and --nnodes out"
        )
    if config.engine.kind == "vllm" and not vllm.urls and vllm.port:
        raise UsageError(f"engine.vllm.port: {vllm.port} is one, and two delegates start two servers; leave it at 0")


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
    """Train a policy, or two, by playing; returns counters, best checkpoints and the last metrics."""
    quiet()
    use_threads(config.threads)
    use_gpu(config.train_gpus, config.model.device)
    wanted, models = delegates(config), {}
    for name, (model, how) in wanted.items():
        models[name] = load(located(model), critic=True, reference=how.eta > 0)
        keep_harness(models[name], config.games.harness)
    _check_shared_server(config.engine, models)
    loop: dict[str, Any] = {"steps": config.ppo.steps, "save_every": config.ppo.save_every, "run": run}
    if isinstance(run, Beside):  # the first process plays
        (learner,) = (ppo.Learner(config.ppo, own) for own in models.values())
        learn({POLICY: learner}, play=_nothing, publish=_nothing, **loop)
        return asdict(learner.counters)
    player = Player(config.games, config.validation, models, run, engine=config.engine, batch=config.ppo.batch,
                    steps=config.ppo.steps, seed=config.seed)  # fmt: skip
    try:
        learners = {name: ppo.Learner(how, models[name]) for name, (_, how) in wanted.items()}
        validate = player.validate if config.validation.scenarios else None
        with shown(run, "ppo", config.ppo.steps, list(learners)):
            learn(learners, play=player.play, publish=player.publish, validate=validate, **loop)
    finally:
        player.close()
    return _result(run, learners, config.ppo.steps)


def _check_shared_server(engine: EngineConfig, models: Mapping[str, Models]) -> None:
    """Servers that run already hold one set of full weights, and as many adapters as they like."""
    if len(models) > 1 and engine.kind == "vllm" and engine.vllm.urls and not all(one.lora for one in models.values()):
        raise ModelError(
            "two delegates on one server are two adapters: give both one (--set model.lora.rank=32), or let "
            "--engine vllm start a server for each"
        )


def _result(run: Run, learners: Mapping[str, ppo.Learner], steps: int) -> dict[str, Any]:
    """What `--json` prints; of several delegates, NAME/figure for what is each one's own."""
    found: dict[str, Any] = {"run": str(run.path)}
    for name, learner in learners.items():
        label = name if len(learners) > 1 else ""
        best = run.best(label) or run.latest()
        own = {**asdict(learner.counters), "best": None if best is None else str(best / label)}
        found |= {key if key == "step" else labelled(label, key): value for key, value in own.items()}
    if found["step"] >= steps:
        run.done()
    return found | {"metrics": (run.metrics() or [{}])[-1]}


def _nothing(*_: object) -> Any:
    """What a process beside the first plays and publishes."""


@contextmanager
def shown(run: Run | Beside, label: str, steps: int | None = None, names: Sequence[str] = ()) -> Iterator[None]:
    """A line of progress for each step that the run logs."""
    wanted = ["loss", "reward_mean", "validation", "agreement", "invalid", "explained_variance", "approx_kl", "entropy"]
    if len(names) > 1:
        wanted = [labelled(name, metric) for metric in wanted[1:5] for name in names]
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
