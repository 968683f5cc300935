"""What is played in an evaluation, and what its games amount to.

`plan` lists the games of one policy: scenarios × opponents × seats × trials × repeats. A game's seed derives from
all of these and not from the policy, so that two policies meet the same opponents in the same mood: their games
are paired by `key`. `summary` turns games into the figures of a table: the mean terminal reward with a bootstrap
95% interval, agreement and invalid-move rates, apart by opponent. Failed games count as 0 and are shown apart.
Rewards and rates are in [0, 1].
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from envs import module
from envs import seats as seats_at
from envs.core import derive_seed
from scenarios import NEGOTIATIONS, PARTIES
from scenarios.core import Scenario
from scenarios.errors import DataError, UsageError
from socialrl_cli.runs import write_text

USUAL = ("usual",)  # stands for an environment's own opponents, or baselines


@dataclass(frozen=True, slots=True)
class Game:
    """One episode to play: `policy` takes `seat`, `opponent` all others that `others` does not name. All of it is
    known before it starts."""

    episode_id: str
    scenario: Scenario
    seat: str
    policy: str
    opponent: str
    seed: int
    trial: int = 0
    repeat: int = 0
    group_id: str | None = None
    others: Mapping[str, str] = field(default_factory=dict, hash=False)

    def who(self, seat: str) -> str:
        """The participant that takes a seat."""
        return self.policy if seat == self.seat else self.others.get(seat, self.opponent)


def sides(scenario: Scenario) -> list[tuple[str, ...]]:
    """The teams at a table, each the seats that win and lose together. Raises `UsageError` where there are none."""
    team = getattr(module(scenario.env), "team", None)
    if team is None:
        raise UsageError(f"seats, got 'team', and {scenario.env} has none: every seat plays for itself")
    return list(dict.fromkeys(team(scenario, seat) for seat in seats_at(scenario)))


def spelt_out(given: tuple[str, ...], usual: Iterable[str]) -> tuple[str, ...]:
    """Participants as they were given; for the word "usual" these scripted policies."""
    return tuple(f"scripted:{name}" for name in usual) if given == USUAL else given


def check_envs(envs: tuple[str, ...]) -> None:
    """Raises ValueError for environments that cannot be played together."""
    if not envs:
        raise ValueError("envs, got none, expected at least one")
    for env in ("all", *PARTIES):
        if env in envs and len(set(envs)) > 1:
            raise ValueError(f"envs, got {env!r} among others, expected it alone")


def all_envs(envs: tuple[str, ...]) -> tuple[str, ...]:
    """The environments with "all" spelt out, each once."""
    return NEGOTIATIONS if "all" in envs else tuple(dict.fromkeys(envs))


@dataclass(frozen=True, slots=True)
class GameResult:
    """How a game went for the evaluated seat: of its `decisions`, `invalid` ones were no legal move."""

    env: str
    scenario_id: str
    opponent: str
    seat: str
    trial: int
    repeat: int
    policy: str
    reward: float
    utility: float
    outcome: str
    status: str
    decisions: int
    invalid: int
    episode_id: str
    error: str | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """What pairs the same game of two policies."""
        return (self.env, self.scenario_id, self.opponent, self.seat, self.trial, self.repeat)


def plan(
    scenarios: Sequence[Scenario],
    policy: str,
    opponents: Sequence[str],
    *,
    seats: Sequence[str],
    both_seats: bool = False,
    team: bool = False,
    trials: int = 1,
    repeats: int = 1,
    seed: int = 0,
) -> list[Game]:
    """The games of an evaluation, in an order that mixes nothing: changing it changes no game.

    `seats` are those of the environment that count; a scenario may lack some. Without `both_seats` those at its table
    alternate over scenarios and trials. With `team` the teams do, and the policy takes all seats of one.
    """
    games = []
    for repeat in range(repeats):
        for trial in range(trials):
            for number, scenario in enumerate(scenarios):
                teams = sides(scenario) if team else [(seat,) for seat in seats_at(scenario) if seat in seats]
                taken = teams if both_seats else [teams[(number + trial) % len(teams)]]
                for opponent in opponents:
                    for seat, *mates in taken:
                        parts = (seed, scenario.env, scenario.id, opponent, seat, trial, repeat)
                        name = f"{scenario.env}-{derive_seed('episode', policy, *parts):016x}"
                        games.append(
                            Game(
                                name, scenario, seat, policy, opponent, derive_seed(*parts), trial, repeat,
                                others=dict.fromkeys(mates, policy),
                            )
                        )  # fmt: skip
    return games


def summary(results: Sequence[GameResult], *, seed: int = 0) -> dict[str, Any]:
    """The figures of one policy: {mean, low, high, sd, utility, agreement, invalid, failed, games, by_opponent}."""
    figures = _figures(results, seed)
    opponents = sorted({result.opponent for result in results})
    figures["by_opponent"] = {
        name: _figures([result for result in results if result.opponent == name], seed) for name in opponents
    }
    return figures


def averaged(results: Sequence[GameResult]) -> dict[str, float]:
    """The plain mean over environments of the mean reward, and its sample sd over repeats: {mean, sd}."""
    from socialrl_cli.report.stats import mean, sample_sd

    rewards: dict[int, dict[str, list[float]]] = {}
    for result in results:
        rewards.setdefault(result.repeat, {}).setdefault(result.env, []).append(result.reward)
    of_repeats = [mean([mean(values) for values in envs.values()]) for envs in rewards.values()]
    return {"mean": mean(of_repeats), "sd": sample_sd(of_repeats)}


def _figures(results: Sequence[GameResult], seed: int) -> dict[str, Any]:
    from socialrl_cli.report.stats import interval, mean, sample_sd

    rewards = [result.reward for result in results]
    spread = interval(rewards, seed=seed)
    by_repeat: dict[int, list[float]] = {}
    for result in results:
        by_repeat.setdefault(result.repeat, []).append(result.reward)
    return {
        "mean": spread.mean,
        "low": spread.low,
        "high": spread.high,
        "sd": sample_sd([mean(values) for values in by_repeat.values()]),
        "utility": mean([result.utility for result in results]),
        "agreement": mean([result.outcome == "agreement" for result in results]),
        "invalid": sum(result.invalid for result in results) / max(1, sum(result.decisions for result in results)),
        "failed": sum(result.status != "finished" for result in results),
        "games": len(results),
    }


def difference(a: Iterable[GameResult], b: Iterable[GameResult], *, seed: int = 0) -> dict[str, Any]:
    """b − a over the games that both have played: {mean, low, high, games}, paired bootstrap."""
    from socialrl_cli.report.stats import paired_interval

    spread = paired_interval({r.key: r.reward for r in a}, {r.key: r.reward for r in b}, seed=seed)
    return {"mean": spread.mean, "low": spread.low, "high": spread.high, "games": spread.n}


def write_results(path: Path, results: Iterable[GameResult]) -> None:
    """One JSON object a line; the file appears whole."""
    write_text(path, "".join(json.dumps(asdict(result)) + "\n" for result in results))


def read_results(path: Path) -> list[GameResult]:
    """Read what `write_results` wrote. Raises DataError with the line."""
    results = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            results.append(GameResult(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise DataError.at(path, number, f"not a game of an evaluation: {error}") from error
    return results
