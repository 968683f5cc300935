"""`socialrl rollout`: plays episodes and keeps them, to learn from or to look at.

The games are scenarios × opponents × trials, as many as asked for, in a seeded order; the policy's seat alternates.
Of several environments each has its share of the episodes, and all rows stand in one buffer.
A scripted seat is written down as the chat that a model would have had in its place (`transcript`), a model's seat
with its exact tokens.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from envs import module
from envs import seats as seats_at
from envs.agents.harness import HarnessConfig, HarnessOverride
from envs.agents.scripted import opponents
from envs.core import derive_seed
from scenarios.core import Scenario, resolve
from scenarios.errors import UsageError
from socialrl_cli.cast import Cast, check_harness, check_participants
from socialrl_cli.engines.config import EngineConfig, check_engine
from socialrl_cli.episodes import PlayConfig, Played, play_all
from socialrl_cli.evaluation import USUAL, Game, all_envs, check_envs, sides, spelt_out, summary
from socialrl_cli.output import progress
from socialrl_cli.runs import Run
from socialrl_cli.store import Store


@dataclass(frozen=True)
class RolloutConfig:
    """What to play. `envs` may be "all", which means the negotiations; a game of more than two stands alone.
    `policies` take the seat that is reported, in turn; so do `opponents` in all others. With `seats` "team" a policy
    takes all seats of a team, in games that have teams. `episodes` are over all environments."""

    envs: tuple[str, ...] = ("dnd",)
    split: str = "train"
    policies: tuple[str, ...] = ()
    opponents: tuple[str, ...] = USUAL
    seats: str = "alternate"
    episodes: int = 100
    seed: int = 0
    temperature: float | None = None
    max_tokens: int | None = None
    harness: HarnessOverride = field(default_factory=HarnessOverride)
    transcript: HarnessConfig = field(default_factory=HarnessConfig)
    play: PlayConfig = field(default_factory=PlayConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise ValueError(f"episodes, got {self.episodes}, expected at least 1")
        if self.seats not in ("alternate", "team"):
            raise ValueError(f"seats, got {self.seats!r}, expected alternate or team")
        if not self.opponents:
            raise ValueError("opponents, got none, expected at least one participant")
        check_envs(self.envs)
        object.__setattr__(self, "opponents", spelt_out(self.opponents, opponents(self.envs[0])))


def check(config: RolloutConfig) -> None:
    """Refuse, before anything is written, what would fail later."""
    if not config.policies:
        raise UsageError("nobody to watch: give --policy, for example --policy scripted:boulware")
    envs = all_envs(config.envs)
    if config.episodes < len(envs):
        raise UsageError(
            f"episodes, got {config.episodes}, expected at least one of each of the {len(envs)} environments"
        )
    games_of(config)
    check_engine(config.engine)
    check_harness(config.harness, envs)
    for env in envs:
        check_participants((*config.policies, *config.opponents), env)


def games_of(config: RolloutConfig) -> list[Game]:
    """The games of all environments, environment by environment; the first ones have the rest of an uneven share."""
    envs, games = all_envs(config.envs), []
    share, rest = divmod(config.episodes, len(envs))
    for number, env in enumerate(envs):
        games += draw(
            resolve(env, config.split), config.policies, config.opponents, seats=module(env).TRAINABLE,
            team=config.seats == "team", seed=config.seed, label="episode" if len(envs) == 1 else env,
            episodes=share + (number < rest),
        )  # fmt: skip
    return games


def draw(
    scenarios: Sequence[Scenario],
    policies: Sequence[str],
    opponents: Sequence[str],
    *,
    seats: Sequence[str],
    episodes: int,
    seed: int,
    team: bool = False,
    label: str = "episode",
) -> list[Game]:
    """`episodes` games: scenarios in a seeded order without repetition as long as there are any, everybody in turn.

    `seats` are those of the environment that may be taken; a scenario may lack some. With `team` a policy takes all
    seats of a team.
    """
    order: list[Scenario] = []
    rng = random.Random(derive_seed("draw", seed, label))
    while len(order) < episodes:
        order += rng.sample(scenarios, len(scenarios))
    games = []
    for number, scenario in enumerate(order[:episodes]):
        policy = policies[number % len(policies)]
        teams = sides(scenario) if team else [(seat,) for seat in seats_at(scenario) if seat in seats]
        seat, *mates = teams[number // len(policies) % len(teams)]
        opponent = opponents[number // (len(policies) * len(seats)) % len(opponents)]
        name = f"{label}-{seed}-{number:06d}"
        others = dict.fromkeys(mates, policy)
        games.append(Game(name, scenario, seat, policy, opponent, derive_seed(seed, label, number), others=others))
    return games


def run_rollout(config: RolloutConfig, run: Run) -> dict[str, Any]:
    """Play what is not played yet; returns the figures of all games of the run."""
    games = games_of(config)
    override = {"temperature": config.temperature, "max_tokens": config.max_tokens, **config.harness.given()}
    with Store(run.path) as store:
        left = [game for game in games if game.episode_id not in store.finished]
        with progress("episodes", len(left)) as advance:
            rewards: list[float] = []

            def done(played: Played) -> None:
                store.add(played)
                rewards.append(played.result().reward)
                advance(reward=sum(rewards) / len(rewards))

            async def play() -> None:
                cast = Cast(
                    run.path / "calls",
                    engine=config.engine,
                    transcript=config.transcript,
                    override={key: value for key, value in override.items() if value is not None},
                )
                async with cast:
                    cast.prepare(tuple({name for game in games for name in (game.policy, game.opponent)}))
                    await play_all(left, cast, config.play, done=done, should_stop=run.should_stop)

            asyncio.run(play())
        results = [store.finished[game.episode_id] for game in games if game.episode_id in store.finished]
        if len(results) == len(games):
            run.done()
    if not results:
        raise KeyboardInterrupt
    envs = all_envs(config.envs)
    return {
        "run": str(run.path), "envs": list(envs), "policies": list(config.policies), "episodes": len(results),
        "left": len(games) - len(results), **summary(results),
        "environments": {env: summary(of) for env in envs if (of := [r for r in results if r.env == env])},
    }  # fmt: skip
