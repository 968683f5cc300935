"""`socialrl quickstart`: from nothing to a small model that bargains better than it was taught, in one go.

    RUN/demos         scripted games, written down as chats (recipe quickstart-demos)
    RUN/warm_start    the small model after imitating them (quickstart-sft)
    RUN/ppo           the same model after playing (quickstart)
    RUN/eval          warm start and best checkpoint in the held-out games
    RUN/eval_scripted every scripted policy in the same games, played at the same time in a process of its own
    RUN/phases.json   seconds of each finished phase, over all attempts
    RUN/summary.json  the result

Each part is an ordinary run and can be resumed; a part that is finished is not done again. The final games are on
the test split, against the opponents of training and one that was held out of it; the checkpoint was chosen on the
validation split.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from envs.agents.scripted import names
from envs.replay import find, transcript
from scenarios.errors import RunError, UsageError
from socialrl_cli import rundir
from socialrl_cli.config import load
from socialrl_cli.engines.processes import process_context, warm_up
from socialrl_cli.evals import EvalConfig, play_eval
from socialrl_cli.evaluation import GameResult, difference, summary
from socialrl_cli.output import note, plain
from socialrl_cli.rollouts import RolloutConfig, run_rollout
from socialrl_cli.runs import Run, write_text
from socialrl_cli.toml_writer import dump

HELD_OUT = "scripted:conceder"
SCENARIOS = 100
NOT_DEMONSTRATING = ("demand_all", "first_offer", "leaky", "random")


@dataclass(slots=True)
class Quickstart:
    """One quickstart in one folder."""

    run: Path
    seed: int
    seconds: dict[str, float]

    @classmethod
    def at(cls, run: Path, seed: int, *, begun: bool = False) -> Quickstart:
        """Go on with what is there, or begin unless it must have `begun`. Raises RunError for a folder that holds
        something else."""
        phases = run / "phases.json"
        if run.is_dir() and any(run.iterdir()) and not phases.exists():
            raise RunError(f"{run} is not empty and holds no quickstart; choose another --run")
        if begun and not phases.exists():
            raise UsageError(f"{run}: no quickstart has been begun here")
        if not phases.exists():
            run.mkdir(parents=True, exist_ok=True)
            write_text(phases, json.dumps({"seed": seed, "seconds": {}}) + "\n")
        known = json.loads(phases.read_text(encoding="utf-8"))
        if known["seed"] != seed:
            raise RunError(f"{run} was begun with seed {known['seed']}; give --seed {known['seed']} or another --run")
        return cls(run, seed, known["seconds"])

    def phase(self, name: str, work: Callable[[], object]) -> None:
        """Do a phase unless it is done; its seconds are counted over all attempts."""
        if name in self.seconds:
            return
        note(f"== {name}")
        before = self.seconds.get(f".{name}", 0.0)
        started = time.monotonic()
        try:
            work()
        except BaseException:
            self._keep({**self.seconds, f".{name}": before + time.monotonic() - started})
            raise
        self.seconds.pop(f".{name}", None)
        self.seconds[name] = round(before + time.monotonic() - started, 1)
        self._keep(self.seconds)

    def _keep(self, seconds: Mapping[str, float]) -> None:
        write_text(self.run / "phases.json", json.dumps({"seed": self.seed, "seconds": seconds}) + "\n")

    def _open(self, name: str, config: Any) -> Run:
        path = self.run / name
        return Run.open(path, dump(config), resume=rundir.is_run(path))

    # ---- the phases

    def build(self) -> None:
        from socialrl_cli.tiny import ensure

        ensure(seed=self.seed)

    def demos(self) -> None:
        config = replace(load(RolloutConfig, "quickstart-demos"), seed=self.seed)
        with self._open("demos", config) as run:
            run_rollout(config, run)

    def warm_start(self) -> None:
        from socialrl_cli.tiny import ensure
        from socialrl_cli.training import SftRun, run_sft

        config = load(SftRun, "quickstart-sft")
        model = replace(config.model, actor=str(ensure(seed=self.seed) / "actor"), seed=self.seed)
        config = replace(config, data=(str(self.run / "demos"),), model=model, sft=replace(config.sft, seed=self.seed))
        with self._open("warm_start", config) as run:
            run_sft(config, run)

    def ppo(self) -> None:
        from socialrl_cli.tiny import ensure
        from socialrl_cli.training import PpoRun, run_ppo

        config = load(PpoRun, "quickstart")
        start = str(rundir.find_checkpoint(self.run / "warm_start"))
        critic = str(ensure(seed=self.seed) / "critic")
        model = replace(config.model, actor=start, critic=critic, seed=self.seed)
        config = replace(config, seed=self.seed, model=model, ppo=replace(config.ppo, seed=self.seed))
        with self._open("ppo", config) as run:
            run_ppo(config, run)

    def models(self) -> dict[str, str]:
        """The models that are evaluated, by the name that they have in the result."""
        return {"warm_start": f"run:{self.run / 'warm_start'}", "trained": f"run:{self.run / 'ppo'}"}

    def eval_config(self) -> EvalConfig:
        from socialrl_cli.training import PpoRun

        trained = load(PpoRun, "quickstart")
        return EvalConfig(
            policy=self.models()["trained"],
            scenarios=SCENARIOS,
            opponents=(*trained.games.opponents, HELD_OUT),
            trials=1,
            seats="both",
            seed=self.seed,
            play=trained.games.play,
            engine=trained.engine,
        )

    def evaluate(self) -> None:
        config = self.eval_config()
        with ProcessPoolExecutor(1, mp_context=process_context()) as beside:
            scripted = beside.submit(_play_scripted, self.run / "eval_scripted", config)
            with self._open("eval", config) as run:
                found = {name: play_eval(config, policy, run) for name, policy in self.models().items()}
                run.done()
            found |= scripted.result()
        write_text(self.run / "summary.json", json.dumps(plain(self.summarise(found)), indent=2) + "\n")

    def summarise(self, found: Mapping[str, list[GameResult]]) -> dict[str, Any]:
        """The document of summary.json, without the seconds of the evaluation itself."""
        figures = {name: summary(results) for name, results in found.items()}
        taught = [name for name in names() if name not in NOT_DEMONSTRATING]
        metrics = rundir.read_metrics(self.run / "ppo")
        return {
            "seed": self.seed,
            "held_out_opponent": HELD_OUT,
            "warm_start": figures["warm_start"],
            "trained": figures["trained"],
            "scripted": {name: figures[name] for name in names()},
            "difference": difference(found["warm_start"], found["trained"]),
            "difference_held_out": difference(*(_against(found[name], HELD_OUT) for name in ("warm_start", "trained"))),
            "demonstrators": {
                "names": taught,
                "mean": sum(figures[name]["mean"] for name in taught) / len(taught),
                "mean_held_out": sum(figures[name]["by_opponent"][HELD_OUT]["mean"] for name in taught) / len(taught),
            },
            "curve": [[row["step"], row["reward_mean"]] for row in metrics if "reward_mean" in row],
            "validation": [[row["step"], row["validation"]] for row in metrics if "validation" in row],
            "transcripts": _transcripts(found["warm_start"], found["trained"]),
        }

    def go(self) -> dict[str, Any]:
        """Do what is left and return the result."""
        if "evaluate" not in self.seconds:
            warm_up()  # imports on the other core what the engine's process will need
        for name in ("build", "demos", "warm_start", "ppo", "evaluate"):
            self.phase(name, getattr(self, name))
        return self.result()

    def result(self) -> dict[str, Any]:
        """The finished result. Raises RunError when there is none."""
        path = self.run / "summary.json"
        if not path.exists() or "evaluate" not in self.seconds:
            raise RunError(f"{self.run}: the quickstart is not finished; call it again without --show")
        document = json.loads(path.read_text(encoding="utf-8"))
        document["seconds"] = {**self.seconds, "total": round(sum(self.seconds.values()), 1)}
        write_text(path, json.dumps(plain(document), indent=2) + "\n")
        return document

    def transcript(self, episode: str) -> str:
        return transcript(find(self.run / "eval", episode))


def _play_scripted(path: Path, config: EvalConfig) -> dict[str, list[GameResult]]:
    """The scripted policies' games, with nothing on the terminal: another process has it."""
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        redirect_stderr(nowhere),
        Run.open(path, dump(config), resume=rundir.is_run(path)) as run,
    ):
        found = {name: play_eval(config, f"scripted:{name}", run) for name in names()}
        run.done()
    return found


def _against(results: list[GameResult], opponent: str) -> list[GameResult]:
    return [result for result in results if result.opponent == opponent]


def _transcripts(before: list[GameResult], after: list[GameResult]) -> dict[str, str]:
    """Episodes to read: a typical game before (the median reward), the same game after, and the worst one after."""
    typical = sorted(before, key=lambda result: (result.reward, result.key))[len(before) // 2]
    same = next(result for result in after if result.key == typical.key)
    worst = min(after, key=lambda result: (result.reward, -result.decisions, result.key))
    return {"typical_before": typical.episode_id, "same_after": same.episode_id, "worst_after": worst.episode_id}
