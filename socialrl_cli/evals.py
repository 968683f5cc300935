"""`socialrl eval`: plays held-out scenarios and reports what a policy earns.

The scripted baselines take the same seats against the same opponents with the same seeds, so that every difference
is paired. Results go to `eval/` of the run directory: `games.jsonl` (all games) and `summary.json`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from envs import module
from envs.agents.scripted import names
from scenarios.core import resolve
from scenarios.errors import ThresholdMissed, UsageError
from socialrl_cli.cast import Cast, check_participants
from socialrl_cli.engines.config import EmbeddedConfig
from socialrl_cli.episodes import PlayConfig, Played, play_all
from socialrl_cli.evaluation import DEFAULT_OPPONENTS, Game, GameResult, difference, plan, read_results, summary
from socialrl_cli.output import progress
from socialrl_cli.runs import Run, write_text
from socialrl_cli.store import Store

BASELINES = ("scripted:demand_all", "scripted:first_offer")


@dataclass(frozen=True)
class EvalConfig:
    """What is evaluated on what. `scenarios` 0 means all of the split; `seats` is "alternate" or "both"."""

    policy: str = ""
    env: str = "dnd"
    split: str = "test"
    scenarios: int = 10
    opponents: tuple[str, ...] = DEFAULT_OPPONENTS
    baselines: tuple[str, ...] = BASELINES
    trials: int = 5
    repeats: int = 1
    seats: str = "alternate"
    seed: int = 0
    temperature: float | None = None
    max_tokens: int | None = None
    play: PlayConfig = field(default_factory=PlayConfig)
    engine: EmbeddedConfig = field(default_factory=EmbeddedConfig)

    def __post_init__(self) -> None:
        for name in ("trials", "repeats"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}, got {getattr(self, name)}, expected at least 1")
        if self.scenarios < 0:
            raise ValueError(f"scenarios, got {self.scenarios}, expected 0 (all) or more")
        if self.seats not in ("alternate", "both"):
            raise ValueError(f"seats, got {self.seats!r}, expected alternate or both")
        if not self.opponents:
            raise ValueError("opponents, got none, expected at least one participant")
        for name in self.baselines:
            if name in ("all", "none") and len(self.baselines) > 1:
                raise ValueError(f"baselines, got {name!r} among others, expected it alone")

    def all_baselines(self) -> tuple[str, ...]:
        """The baselines with "all" spelt out."""
        if self.baselines == ("all",):
            return tuple(f"scripted:{name}" for name in names())
        return () if self.baselines == ("none",) else self.baselines


def games_of(config: EvalConfig, policy: str) -> list[Game]:
    """The games of one policy under this configuration."""
    scenarios = resolve(config.env, config.split)
    if config.scenarios > len(scenarios):
        raise UsageError(f"{config.scenarios} scenarios wanted, {config.env} {config.split} has {len(scenarios)}")
    taken = scenarios[: config.scenarios] if config.scenarios else scenarios
    seats = module(config.env).SEATS
    return plan(
        taken, policy, config.opponents, seats=seats, both_seats=config.seats == "both", trials=config.trials,
        repeats=config.repeats, seed=config.seed,
    )  # fmt: skip


def check(config: EvalConfig) -> None:
    """Refuse, before anything is written, what would fail later."""
    if not config.policy:
        raise UsageError("nobody to evaluate: give --policy, for example --policy scripted:boulware")
    games_of(config, config.policy)
    check_participants((config.policy, *config.opponents, *config.all_baselines()), config.env)


def thresholds(given: Sequence[str], env: str) -> dict[str, float]:
    """`--fail-under` values by environment; a bare number is the evaluated one's."""
    found = {}
    for text in given:
        name, equals, number = text.rpartition("=")
        try:
            found[name if equals else env] = float(number)
        except ValueError:
            raise UsageError(f"--fail-under {text}: write a number or ENV=NUMBER, for example dnd=0.5") from None
        if equals and name != env:
            raise UsageError(f"--fail-under {text}: {name} is not evaluated here, {env} is")
    return found


def enforce(document: Mapping[str, Any], wanted: Mapping[str, float]) -> None:
    """Raises ThresholdMissed when the score is under what was wanted."""
    for env, least in wanted.items():
        if document["score"] < least:
            raise ThresholdMissed(f"{env}: {document['policy']} scored {document['score']:.4f}, under {least:g}")


def run_eval(config: EvalConfig, run: Run) -> dict[str, Any]:
    """Play what is not played yet; returns and writes the document that `--json` prints."""
    policies = list(dict.fromkeys((config.policy, *config.all_baselines())))
    results = {}
    for policy in policies:
        results[policy] = play_eval(config, policy, run)
    document = report(config, results)
    folder = run.path / "eval"
    folder.mkdir(exist_ok=True)
    lines = "".join(json.dumps(asdict(result)) + "\n" for found in results.values() for result in found)
    write_text(folder / "games.jsonl", lines)
    write_text(folder / "summary.json", json.dumps(document, indent=2) + "\n")
    return document


def play_eval(config: EvalConfig, policy: str, run: Run) -> list[GameResult]:
    """The results of one policy, in the order of the plan. Raises KeyboardInterrupt when stopped before the end."""
    games = games_of(config, policy)
    override = {"temperature": config.temperature, "max_tokens": config.max_tokens}
    with Store(run.path, rows=not policy.startswith("scripted:")) as store:
        ids = {game.episode_id for game in games}
        left = [game for game in games if game.episode_id not in store.finished]
        with progress(policy, len(left)) as advance:

            def done(played: Played) -> None:
                store.add(played)
                advance()

            async def play() -> None:
                cast = Cast(
                    run.path / "calls",
                    engine=config.engine,
                    override={key: value for key, value in override.items() if value is not None},
                )
                async with cast:
                    cast.prepare((policy, *config.opponents))
                    await play_all(left, cast, config.play, done=done, should_stop=run.should_stop)

            if left:
                asyncio.run(play())
        if not ids <= set(store.finished):
            raise KeyboardInterrupt
        return [store.finished[game.episode_id] for game in games]


def report(config: EvalConfig, results: dict[str, list[GameResult]]) -> dict[str, Any]:
    """{env, policy, score, policies: {name: figures}, differences: {baseline: policy − baseline}}."""
    own = results[config.policy]
    return {
        "env": config.env,
        "split": config.split,
        "policy": config.policy,
        "score": summary(own)["mean"],
        "policies": {name: summary(found) for name, found in results.items()},
        "differences": {name: difference(found, own) for name, found in results.items() if name != config.policy},
    }


def compare(a: Path, b: Path) -> dict[str, Any]:
    """The evaluated policies of two runs, paired by game: {a, b, difference (b − a), wins, losses, ties}."""
    found = []
    for run in (a, b):
        if not (run / "eval" / "summary.json").exists():
            raise UsageError(f"{run}: no evaluation here; make one with socialrl eval --run {run}")
        policy = json.loads((run / "eval" / "summary.json").read_text(encoding="utf-8"))["policy"]
        found.append([r for r in read_results(run / "eval" / "games.jsonl") if r.policy == policy])
    first, second = ({result.key: result for result in results} for results in found)
    shared = first.keys() & second.keys()
    if not shared:
        raise UsageError(f"{a} and {b} have no game in common: evaluate both on the same scenarios and opponents")
    scenario: dict[str, list[float]] = {}
    for key in shared:
        scenario.setdefault(first[key].scenario_id, []).append(second[key].reward - first[key].reward)
    totals = [sum(values) for values in scenario.values()]
    return {
        "a": {"run": str(a), **summary([first[key] for key in shared])},
        "b": {"run": str(b), **summary([second[key] for key in shared])},
        "difference": difference([first[key] for key in shared], [second[key] for key in shared]),
        "scenarios": {
            "wins": sum(total > 0 for total in totals),
            "losses": sum(total < 0 for total in totals),
            "ties": sum(total == 0 for total in totals),
        },
    }
