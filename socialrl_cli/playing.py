"""`socialrl play`: one episode in which a person takes a seat, recorded like any other.

Whatever ends it early (Ctrl-C, the end of standard input, an opponent that fails) leaves an aborted episode in the
run directory. A person may think for an hour (`limits`); everybody else has the deadlines that they always have.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envs import module
from envs import seats as seats_at
from envs.agents.harness import HarnessOverride
from envs.agents.human import Human
from envs.agents.scripted import opponents
from envs.core import Limits
from scenarios import PARTIES
from scenarios.core import Scenario, packaged, resolve
from scenarios.errors import DataError, RunError, UsageError
from scenarios.jsonfile import documents, shown
from socialrl_cli.cast import Cast, check_participants
from socialrl_cli.engines.config import EngineConfig
from socialrl_cli.episodes import Played, Table
from socialrl_cli.evaluation import Game
from socialrl_cli.interrupt import stop_asked
from socialrl_cli.store import Store
from socialrl_cli.terminal import Terminal

HUMAN = "human"
STOPPED = "interrupted"


@dataclass(frozen=True)
class SittingConfig:
    """How long a person may think, and how a model opposite is run and asked."""

    limits: Limits = field(default_factory=lambda: Limits(decide_timeout_s=3600.0, episode_timeout_s=6 * 3600.0))
    engine: EngineConfig = field(default_factory=EngineConfig)
    harness: HarnessOverride = field(default_factory=HarnessOverride)


def the_game(
    *, env: str, opponent: str, seat: str, seed: int | None, scenario: str, split: str, index: int | None
) -> Game:
    """What will be played. `scenario` is a file or the id of a packaged one; a seed that is not given is drawn, and
    the place in the split is drawn from the seed. Raises UsageError, DataError."""
    rules = module(env)
    opponent = opponent or f"scripted:{opponents(env)[0]}"
    check_participants((opponent,), env)
    seed = secrets.randbelow(2**31) if seed is None else seed
    found = _given(env, scenario) if scenario else resolve(env, split)
    if index is None:
        index = random.Random(seed).randrange(len(found))
    if not 0 <= index < len(found):
        raise UsageError(f"--index {index}: expected 0 to {len(found) - 1}")
    taken = found[index]
    seat = seat or rules.EVALUATED[0]
    if seat not in seats_at(taken):
        raise UsageError(f"--seat {seat}: {env} has {', '.join(seats_at(taken))}")
    return Game(f"{env}-{secrets.token_hex(8)}", taken, seat, HUMAN, opponent, seed)


def _given(env: str, name: str) -> Sequence[Scenario]:
    """The scenarios of a file, or the packaged one of that id."""
    if not Path(name).exists():
        known = (scenario for split in ("test", "val", "train") for scenario in packaged(env, split))
        found = next((scenario for scenario in known if scenario.id == name), None)
        if found is None:
            raise UsageError(f"--scenario {shown(name)}: no file, and no packaged scenario of {env}")
        return [found]
    rows = documents(name)
    scenarios = []
    for line, value, _ in rows:
        try:
            scenarios.append(Scenario.from_json(value, env=env))
        except DataError as error:
            raise DataError.at(name, line if len(rows) > 1 else None, str(error)) from None
    return scenarios


def play_game(game: Game, config: SittingConfig, path: Path, asker: Terminal) -> Played:
    """Play and record it. Raises KeyboardInterrupt and RunError when it was not finished, after recording."""
    people: list[Human] = []

    def sit(env: str, seat: str, failed: Any) -> Human:
        people.append(Human(env, asker, failed))
        return people[-1]

    async def play() -> Played:
        override = config.harness.given()
        async with Cast(path / "calls", engine=config.engine, override=override, human=sit) as cast:
            cast.prepare((game.opponent,))
            table = Table(game, cast, config.limits)
            return await _until_stopped(table)

    with Store(path, rows=not game.opponent.startswith("scripted:")) as store:
        played = asyncio.run(play())
        people[0].hear(played.env.channels[game.seat].events)
        store.add(played)
    if played.error == STOPPED:
        raise KeyboardInterrupt
    if played.status != "finished":
        raise RunError(f"{played.error}; the episode is kept as aborted: socialrl replay {path} {game.episode_id}")
    return played


async def _until_stopped(table: Table) -> Played:
    """Play to the end, or to Ctrl-C."""
    stop, playing = stop_asked(), asyncio.ensure_future(table.play())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait((playing, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not playing.done():
        table.env.abort(STOPPED)
    return await playing


def report(played: Played, path: Path) -> dict[str, Any]:
    """What `--json` prints: the episode, its outcome with all seats' scores and measures, who sat where."""
    game = played.game
    return {
        "episode_id": game.episode_id, "env": game.scenario.env, "scenario_id": game.scenario.id, "seed": game.seed,
        "seat": game.seat, "seats": {seat: game.who(seat) for seat in played.env.seats}, "run": str(path),
        "outcome": played.outcome.to_json(), "facts": _facts(played),
    }  # fmt: skip


def _facts(played: Played) -> dict[str, str]:
    """What each seat alone knew, in words: at the end it may be told."""
    rules = module(played.game.scenario.env)
    briefings = (event for _, event in played.env.journal if event.type == "briefing")
    return {event.payload["seat"]: rules.brief(event, "people") for event in briefings}


def verdict(score: Mapping[str, Any], *, party: bool = False) -> str:
    """How good a deal it was for a seat, or whether it has won."""
    utility, reference, reward = score["utility"], score["reference"], score["reward"]
    if party:
        return "You have won." if reward else "You have not won."
    if reference is None:
        return f"You got {reward:.0%} of what could be had."
    word = "above" if utility > reference + 1e-9 else "below" if utility < reference - 1e-9 else "exactly"
    return f"Your utility of {utility:.2f} is {word} the reference of {reference:.2f}, a fair and efficient deal's."


def show(console: Any, document: Mapping[str, Any]) -> None:
    """The end of a game for people."""
    from rich import box
    from rich.table import Table as Grid

    outcome = document["outcome"]
    by = f" by {outcome['by']}" if outcome["by"] else ""
    terms = f": {json.dumps(outcome['agreement'], ensure_ascii=False)}" if outcome["agreement"] else ""
    console.print(f"{outcome['status']}{by}{terms}", markup=False, soft_wrap=True)
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("seat", "who"):
        grid.add_column(name)
    for name in ("raw", "utility", "reference", "reward"):
        grid.add_column(name, justify="right")
    for seat, score in outcome["seats"].items():
        reference = "" if score["reference"] is None else f"{score['reference']:.2f}"
        figures = (f"{score['raw']:g}", f"{score['utility']:.2f}", reference, f"{score['reward']:.3f}")
        grid.add_row(seat, document["seats"][seat], *figures)
    console.print(grid)
    console.print(verdict(outcome["seats"][document["seat"]], party=document["env"] in PARTIES), markup=False)
    for name, value in outcome["measures"].items():
        console.print(f"{name.replace('_', ' ')}: {value:.2f}", markup=False)
    for seat, facts in document["facts"].items():
        console.print(f"{seat} knew: {facts}", markup=False, soft_wrap=True)
    console.print(f"socialrl replay {document['run']} {document['episode_id']}", markup=False, soft_wrap=True)
