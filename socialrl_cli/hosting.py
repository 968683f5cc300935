"""Episodes that remote programs play: opened, kept, recorded, ended. What carries them is `episode_server.py`.

A bounded number is open at a time, and of those that have ended the newest are kept to be read; every one is recorded
in the run directory. Each episode has a secret of its own, for whoever opened it, and one for each remote seat; a
seat's secret opens that seat alone. Times are in seconds.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from envs import module
from envs import seats as seats_at
from envs.agents.harness import HarnessOverride
from envs.core import Limits
from envs.transport import Port
from scenarios.core import SPLITS, Scenario, packaged
from scenarios.errors import DataError, RunError, UsageError, nearest
from scenarios.jsonfile import is_int, shown
from socialrl_cli.cast import Cast, check_participants
from socialrl_cli.config import build
from socialrl_cli.engines.config import EngineConfig
from socialrl_cli.episodes import Table
from socialrl_cli.evaluation import Game
from socialrl_cli.output import warn
from socialrl_cli.participants import parse
from socialrl_cli.serving import check_host

if TYPE_CHECKING:
    from socialrl_cli.store import Store

REMOTE = "remote"
ALWAYS = ("scripted", REMOTE, "human")  # kinds that are judged without having been named at the start
KEYS = ("env", "scenario", "split", "index", "seed", "seats", "limits")
ENDING_S = 10.0  # for open episodes when the host closes


@dataclass(frozen=True)
class ServeConfig:
    """`participants` are those beside scripted and remote ones that may be seated; `limits` are the most that an
    episode may ask for, and what it gets when it does not; `keep` ended episodes can still be read."""

    host: str = "127.0.0.1"
    port: int = 8300
    participants: tuple[str, ...] = ()
    max_open: int = 64
    keep: int = 256
    limits: Limits = field(default_factory=Limits)
    engine: EngineConfig = field(default_factory=EngineConfig)
    harness: HarnessOverride = field(default_factory=HarnessOverride)

    def __post_init__(self) -> None:
        if self.max_open < 1 or self.keep < 1:
            raise ValueError(f"max_open and keep, got {self.max_open} and {self.keep}, expected at least 1")
        if self.limits.decide_timeout_s is None or self.limits.episode_timeout_s is None:
            raise ValueError("limits, got a time without end, expected a deadline: nobody may be waited for forever")


class Full(UsageError):
    """As many episodes are open as may be."""


@dataclass(slots=True)
class Hosted:
    """An episode with its secrets; `ports` are its remote seats."""

    table: Table
    secret: str
    ports: dict[str, Port]
    secrets: dict[str, str]
    task: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        return self.table.game.episode_id

    def opens(self, given: str, seat: str | None = None) -> bool:
        """Whether a secret opens the episode (no seat) or one of its seats."""
        wanted = self.secret if seat is None else self.secrets[seat]
        return hmac.compare_digest(given.encode(), wanted.encode())


class Host:
    """Opens episodes and keeps them. `failed` is set when one could not be recorded; the caller then stops."""

    def __init__(self, config: ServeConfig, cast: Cast, store: Store) -> None:
        self.config, self.cast, self.store = config, cast, store
        self.failed = asyncio.Event()
        self.failure: RunError | None = None
        self.open: dict[str, Hosted] = {}
        self.ended: dict[str, Hosted] = {}  # the newest last
        self._closing = False
        self._keys: dict[str, tuple[str, Hosted]] = {}  # of creations that may be sent again

    def create(self, body: Any, key: str | None = None) -> Hosted:
        """Open the episode that a request describes; the same `key` with the same request names the same episode.

        Raises UsageError, DataError, and Full when no more may be open.
        """
        asked = json.dumps(body, sort_keys=True)
        if key is not None and key in self._keys:
            before, hosted = self._keys[key]
            if before != asked:
                raise UsageError("Idempotency-Key: it was sent before with another request")
            return hosted
        game, limits = self._game(body)
        if self._closing:
            raise Full("the server is stopping")
        if len(self.open) >= self.config.max_open:
            raise Full(f"{len(self.open)} episodes are open and no more may be; try again when one has ended")
        hosted = self._hosted(Table(game, self.cast, limits))
        self.open[hosted.id] = hosted
        hosted.task = asyncio.get_running_loop().create_task(self._play(hosted))
        if key is not None:
            self._keys[key] = asked, hosted
        return hosted

    def find(self, episode: str) -> Hosted | None:
        return self.open.get(episode) or self.ended.get(episode)

    async def close(self) -> None:
        """Abort what is open, record it, and wait for that."""
        self._closing = True
        for hosted in [*self.open.values()]:
            hosted.table.env.abort("the server was stopped")
        tasks = [hosted.task for hosted in self.open.values() if hosted.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=ENDING_S)

    def _hosted(self, table: Table) -> Hosted:
        remote = [seat for seat in table.env.seats if table.game.who(seat) == REMOTE]
        own = {seat: secrets.token_urlsafe(24) for seat in remote}
        return Hosted(table, secrets.token_urlsafe(24), {seat: Port(table.env, seat) for seat in remote}, own)

    async def _play(self, hosted: Hosted) -> None:
        try:
            self.store.add(await hosted.table.play())
        except RunError as error:
            self.failure = error
            self.failed.set()
        except Exception as error:  # the rules or a participant's own machinery; the other episodes go on
            warn(f"episode {hosted.id}: {type(error).__name__}: {error}")
            traceback.print_exception(error)
        finally:
            self._end(hosted)

    def _end(self, hosted: Hosted) -> None:
        del self.open[hosted.id]
        self.ended[hosted.id] = hosted
        while len(self.ended) > self.config.keep:
            gone = self.ended.pop(next(iter(self.ended)))
            self._keys = {key: known for key, known in self._keys.items() if known[1] is not gone}

    # ---- what a request asks for

    def _game(self, body: Any) -> tuple[Game, Limits]:
        if not isinstance(body, Mapping):
            raise DataError(f"the body is {shown(body)}, expected an object with {', '.join(KEYS)}")
        for key in body:
            if key not in KEYS:
                raise DataError(f"{shown(key)} is not a field here; {nearest(str(key), KEYS)}")
        env, seed = body.get("env"), body.get("seed", 0)
        if not isinstance(env, str):
            raise DataError(f"env is {shown(env)}, expected the name of an environment")
        module(env)
        if not is_int(seed) or not 0 <= seed < 2**63:
            raise DataError(f"seed is {shown(seed)}, expected an integer from 0 to 2**63 - 1")
        scenario, limits = _scenario(env, body), self._limits(body.get("limits", {}))
        seats = self._seats(body.get("seats"), seats_at(scenario), env)
        first = next((seat for seat, who in seats.items() if who == REMOTE), next(iter(seats)))
        others = {seat: who for seat, who in seats.items() if seat != first}
        name = f"{env}-{secrets.token_hex(8)}"
        opponent = ", ".join(dict.fromkeys(others.values()))
        return Game(name, scenario, first, seats[first], opponent, seed, others=others), limits

    def _seats(self, given: Any, wanted: tuple[str, ...], env: str) -> dict[str, str]:
        if not isinstance(given, Mapping):
            raise DataError(f"seats is {shown(given)}, expected who takes each of {', '.join(wanted)}")
        for seat in given:
            if seat not in wanted:
                raise DataError(f"seats has {shown(seat)}, and {env} has {', '.join(wanted)}")
        for seat in wanted:
            who = given.get(seat)
            if not isinstance(who, str):
                raise DataError(f"seats.{seat} is {shown(who)}, expected a participant")
            if who in self.config.participants:
                continue
            if parse(who).kind not in ALWAYS:
                raise UsageError(f"seats.{seat}: {who} sits here only if serve was started with --participant {who}")
            check_participants((who,), env, present=(REMOTE,))  # refuses people
        return {seat: given[seat] for seat in wanted}

    def _limits(self, given: Any) -> Limits:
        """The limits that are asked for, none above the host's own."""
        if not isinstance(given, Mapping):
            raise DataError(f"limits is {shown(given)}, expected an object")
        most = {item.name: getattr(self.config.limits, item.name) for item in fields(Limits)}
        limits = build(Limits, {**most, **given}, "limits")
        for name, value in most.items():
            asked = getattr(limits, name)
            if asked is None or asked > value:
                raise UsageError(f"limits.{name} is {shown(asked)}, at most {value:g} here")
        return limits


def check(config: ServeConfig, token: str) -> None:
    """Refuse, before anything is written, what would fail later. Raises UsageError."""
    check_host(config.host, token)
    for text in config.participants:
        check_participants((text,) if parse(text).kind != "scripted" else (), "")


def _scenario(env: str, body: Mapping[str, Any]) -> Scenario:
    """The scenario itself, or the one at a place of a packaged split."""
    if body.get("scenario") is not None:
        if "split" in body or "index" in body:
            raise DataError("scenario and split with index are two ways to name one game: give one of them")
        return Scenario.from_json(body["scenario"], env=env)
    split, index = body.get("split", "test"), body.get("index", 0)
    if split not in SPLITS:
        raise UsageError(f"unknown split {shown(split)}; {nearest(str(split), SPLITS)}")
    found = packaged(env, split)
    if not is_int(index) or not 0 <= index < len(found):
        raise DataError(f"index is {shown(index)}, expected 0 to {len(found) - 1}")
    return found[index]
