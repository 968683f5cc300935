"""`socialrl eval`: plays held-out scenarios of one or several environments and reports what a policy earns.

The scripted baselines take the same seats against the same opponents with the same seeds, so that every difference
is paired. All environments' games of a policy are played together. The score is the plain mean over environments of
the mean reward. Results go to `eval/` of the run directory: `games.jsonl` (all games) and `summary.json`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envs import module
from envs.agents.harness import HarnessOverride
from envs.agents.scripted import baselines, names, opponents
from scenarios.core import resolve
from scenarios.errors import UsageError
from socialrl_cli.cast import Cast, check_harness, check_participants
from socialrl_cli.engines.config import EngineConfig, check_engine
from socialrl_cli.episodes import PlayConfig, Played, play_all
from socialrl_cli.evaluation import (
    USUAL,
    Game,
    GameResult,
    all_envs,
    averaged,
    check_envs,
    difference,
    plan,
    read_results,
    spelt_out,
    summary,
    write_results,
)
from socialrl_cli.output import plain, progress
from socialrl_cli.runs import Run, write_text
from socialrl_cli.store import Store


@dataclass(frozen=True)
class EvalConfig:
    """What is evaluated on what. `envs` may be "all", which means the negotiations; a game of more than two stands
    alone. `scenarios` 0 means all of the split; `seats` is "alternate" (those that count for the score, in turn),
    "both" (all that can be trained, in games of their own) or "team" (all seats of a team, the teams in turn)."""

    policy: str = ""
    envs: tuple[str, ...] = ("dnd",)
    split: str = "test"
    scenarios: int = 10
    opponents: tuple[str, ...] = USUAL
    baselines: tuple[str, ...] = USUAL
    trials: int = 5
    repeats: int = 1
    seats: str = "alternate"
    seed: int = 0
    temperature: float | None = None
    max_tokens: int | None = None
    harness: HarnessOverride = field(default_factory=HarnessOverride)
    play: PlayConfig = field(default_factory=PlayConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)

    def __post_init__(self) -> None:
        for name in ("trials", "repeats"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}, got {getattr(self, name)}, expected at least 1")
        if self.scenarios < 0:
            raise ValueError(f"scenarios, got {self.scenarios}, expected 0 (all) or more")
        if self.seats not in ("alternate", "both", "team"):
            raise ValueError(f"seats, got {self.seats!r}, expected alternate, both or team")
        if not self.opponents:
            raise ValueError("opponents, got none, expected at least one")
        check_envs(self.envs)
        for name in self.baselines:
            if name in ("all", "none", *USUAL) and len(self.baselines) > 1:
                raise ValueError(f"baselines, got {name!r} among others, expected it alone")
        env = self.envs[0]
        object.__setattr__(self, "opponents", spelt_out(self.opponents, opponents(env)))
        object.__setattr__(self, "baselines", spelt_out(self.baselines, baselines(env)))

    def all_envs(self) -> tuple[str, ...]:
        """The environments with "all" spelt out, each once."""
        return all_envs(self.envs)

    def all_baselines(self) -> tuple[str, ...]:
        """The baselines with "all" spelt out."""
        if self.baselines == ("all",):
            return tuple(f"scripted:{name}" for name in names(self.envs[0]))
        return () if self.baselines == ("none",) else self.baselines


def games_of(config: EvalConfig, policy: str) -> list[Game]:
    """The games of one policy under this configuration, environment by environment."""
    games = []
    for env in config.all_envs():
        rules, scenarios = module(env), resolve(env, config.split)
        if config.scenarios > len(scenarios):
            raise UsageError(f"{config.scenarios} scenarios wanted, {env} {config.split} has {len(scenarios)}")
        both = config.seats == "both"
        games += plan(
            scenarios[: config.scenarios or None], policy, config.opponents, both_seats=both,
            team=config.seats == "team", seats=rules.TRAINABLE if both else rules.EVALUATED,
            trials=config.trials, repeats=config.repeats, seed=config.seed,
        )  # fmt: skip
    return games


def check(config: EvalConfig) -> None:
    """Refuse, before anything is written, what would fail later."""
    if not config.policy:
        raise UsageError("nobody to evaluate: give --policy, for example --policy scripted:boulware")
    games_of(config, config.policy)
    check_engine(config.engine)
    check_harness(config.harness, config.all_envs())
    for env in config.all_envs():
        check_participants((config.policy, *config.opponents, *config.all_baselines()), env)


def run_eval(config: EvalConfig, run: Run) -> dict[str, Any]:
    """Play what is not played yet; returns and writes the document that `--json` prints."""
    policies = list(dict.fromkeys((config.policy, *config.all_baselines())))
    results = {}
    for policy in policies:
        results[policy] = play_eval(config, policy, run)
    document = report(config, results)
    folder = run.path / "eval"
    folder.mkdir(exist_ok=True)
    write_results(folder / "games.jsonl", [result for found in results.values() for result in found])
    write_text(folder / "summary.json", json.dumps(plain(document), indent=2) + "\n")
    return document


def run_cross_play(config: EvalConfig, run: Run) -> dict[str, Any]:
    """`run_eval` where the opponents are the policies themselves: {policies, environments: {env: {row: {mean, …,
    by_opponent: {column: {mean, low, high, …}}}}}}, rewards of the row's policy."""
    names = config.opponents

    def row(figures: Mapping[str, Any]) -> dict[str, Any]:
        return {**figures, "by_opponent": {name: figures["by_opponent"][name] for name in names}}

    found = run_eval(config, run)["environments"]
    matrix = {env: {name: row(part["policies"][name]) for name in names} for env, part in found.items()}
    return {"policies": list(names), "environments": matrix}


def play_eval(config: EvalConfig, policy: str, run: Run) -> list[GameResult]:
    """The results of one policy, in the order of the plan. Raises KeyboardInterrupt when stopped before the end."""
    games = games_of(config, policy)
    override = {"temperature": config.temperature, "max_tokens": config.max_tokens, **config.harness.given()}
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


def report(config: EvalConfig, results: Mapping[str, Sequence[GameResult]]) -> dict[str, Any]:
    """What `--json` prints: {policy, split, score, sd, policies: {name: {mean, sd}}, environments}.

    `policies` are plain means over the environments. `environments` holds for each {score, sd, policies: {name:
    figures}, differences: {baseline: policy − baseline}}. `sd` is over repeats.
    """
    envs = {env: _report(config.policy, _of(env, results)) for env in config.all_envs()}
    means = {name: averaged(found) for name, found in results.items()}
    head = {"policy": config.policy, "split": config.split, "score": means[config.policy]["mean"]}
    return {**head, "sd": means[config.policy]["sd"], "policies": means, "environments": envs}


def _of(env: str, results: Mapping[str, Sequence[GameResult]]) -> dict[str, list[GameResult]]:
    return {name: [result for result in found if result.env == env] for name, found in results.items()}


def _report(policy: str, results: Mapping[str, Sequence[GameResult]]) -> dict[str, Any]:
    figures = {name: summary(found) for name, found in results.items()}
    own = results[policy]
    return {
        "score": figures[policy]["mean"],
        "sd": figures[policy]["sd"],
        "policies": figures,
        "differences": {name: difference(found, own) for name, found in results.items() if name != policy},
    }


def compare(a: Path, b: Path) -> dict[str, Any]:
    """The evaluated policies of two runs, paired by game: {a, b, difference (b − a), environments, scenarios}.

    Over several environments every game weighs the same; `environments` has the difference in each.
    """
    first, second = _evaluated(a), _evaluated(b)
    shared = [key for key in first if key in second]
    if not shared:
        raise UsageError(f"{a} and {b} have no game in common: evaluate both on the same scenarios and opponents")
    before, after = [first[key] for key in shared], [second[key] for key in shared]
    totals: dict[tuple[str, str], float] = {}
    for one, two in zip(before, after, strict=True):
        scenario = one.env, one.scenario_id
        totals[scenario] = totals.get(scenario, 0.0) + two.reward - one.reward
    apart = {one.env: _of(one.env, {"a": before, "b": after}) for one in before}
    return {
        "a": {"run": str(a), **summary(before)},
        "b": {"run": str(b), **summary(after)},
        "difference": difference(before, after),
        "environments": {env: difference(found["a"], found["b"]) for env, found in apart.items()},
        "scenarios": {
            "wins": sum(total > 0 for total in totals.values()),
            "losses": sum(total < 0 for total in totals.values()),
            "ties": sum(total == 0 for total in totals.values()),
        },
    }


def _evaluated(run: Path) -> dict[Any, GameResult]:
    """The games of a run's evaluated policy, by what pairs them."""
    summary_file = run / "eval" / "summary.json"
    if not summary_file.exists():
        raise UsageError(f"{run}: no evaluation here; make one with socialrl eval --run {run}")
    policy = json.loads(summary_file.read_text(encoding="utf-8"))["policy"]
    return {result.key: result for result in read_results(run / "eval" / "games.jsonl") if result.policy == policy}
