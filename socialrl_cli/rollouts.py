"""`socialrl rollout`: plays episodes and keeps them, to learn from or to look at.

The games are scenarios × opponents × trials, as many as asked for, in a seeded order; the policy's seat alternates.
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
from socialrl_cli.evaluation import USUAL, Game, sides, spelt_out, summary
from socialrl_cli.output import progress
from socialrl_cli.runs import Run
from socialrl_cli.store import Store


@dataclass(frozen=True)
class RolloutConfig:
    """What to play. `policies` take the seat that is reported, in turn; so do `opponents` in all others. With `seats`
    "team" a policy takes all seats of a team, in games that have teams."""

    env: str = "dnd"
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
        object.__setattr__(self, "opponents", spelt_out(self.opponents, opponents(self.env)))


def check(config: RolloutConfig) -> None:
    """Refuse, before anything is written, what would fail later."""
    if not config.policies:
        raise UsageError("nobody to watch: give --policy, for example --policy scripted:boulware")
    scenarios = resolve(config.env, config.split)
    if config.seats == "team":
        sides(scenarios[0])
    check_engine(config.engine)
    check_harness(config.harness, (config.env,))
    check_participants((*config.policies, *config.opponents), config.env)


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
    scenarios = resolve(config.env, config.split)
    seats = module(config.env).TRAINABLE
    games = draw(
        scenarios, config.policies, config.opponents, seats=seats, team=config.seats == "team",
        episodes=config.episodes, seed=config.seed,
    )  # fmt: skip
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
    return {
        "run": str(run.path), "env": config.env, "policies": list(config.policies), "episodes": len(results),
        "left": len(games) - len(results), **summary(results),
    }  # fmt: skip
