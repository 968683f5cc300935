"""What is kept of each episode of a run, written as it ends, so that a kill loses no finished one.

    events/episodes-*.jsonl   what the agents saw (`envs.replay`)
    buffer/                   rows to learn from (`buffer.py`)
    games.jsonl               one `GameResult` a line; an episode is finished when it stands here

On resume the finished games are known from `games.jsonl`. An episode that was cut off between the files is played
again and its rows, if they were written, are not written twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from envs.agents import tom
from envs.replay import EpisodeLog
from envs.replay import plain as as_plain
from scenarios.errors import RunError
from socialrl_cli.episodes import Played
from socialrl_cli.evaluation import GameResult

if TYPE_CHECKING:
    from algos.grammars import Grammar
    from socialrl_cli.buffer import EpisodeRecord
    from socialrl_cli.grammars import GrammarFile

GAMES = "games.jsonl"
EPISODES_PER_FILE = 2000


class Store:
    """One writer of a run's episodes. `rows`: write the buffer too (an evaluation of scripted policies need not)."""

    def __init__(self, run: Path, *, rows: bool = True) -> None:
        self.run = run
        found = read_games(run)
        self.finished = {result.episode_id: result for result in found}
        self.results = {(result.episode_id, result.policy): result for result in found}
        self._known: set[str] = set()
        self._buffer = None
        self._grammars: GrammarFile | None = None
        if rows:
            from socialrl_cli.buffer import BufferWriter, read
            from socialrl_cli.grammars import GrammarFile

            self._buffer, self._grammars = BufferWriter(run / "buffer"), GrammarFile(run / "buffer")
            self._known = set(read(run / "buffer", columns=["episode_id"])["episode_id"].to_pylist())
        (run / "events").mkdir(parents=True, exist_ok=True)
        self._events: IO[str] | None = None
        self._logged, self._failed = 0, False
        _end_line(run / GAMES)
        self._games = open(run / GAMES, "a", encoding="utf-8")  # noqa: SIM115  (open as long as the store)

    def add(self, played: Played, *, reported: Sequence[str] = ()) -> Sequence[Mapping[str, Any]]:
        """Write an episode; returns its rows. `reported` are participants whose figures are kept beside those of the
        game's own."""
        game = played.game
        results = [played.result(seat) for seat in played.seats if game.who(seat) in reported] + [played.result()]
        names = {seat: game.who(seat) for seat in played.seats}
        found: list[Mapping[str, Any]] = []
        if self._buffer is not None:
            from socialrl_cli.buffer import rows

            found = [row for record in records(played, self.run.name) for row in rows(record)]
        try:
            self._log(EpisodeLog.of(played.env, episode_id=game.episode_id, agents=names).line())
            if self._buffer is not None and self._grammars is not None and game.episode_id not in self._known:
                self._grammars.add(call for taken in played.seats.values() for call in taken.calls or ())
                self._buffer.add(found)
            self._games.write("".join(json.dumps(asdict(result)) + "\n" for result in results))
            self._games.flush()
        except OSError as error:
            self._failed = True
            raise self._refused("an episode", error) from error
        self.finished[game.episode_id] = results[-1]
        self.results |= {(result.episode_id, result.policy): result for result in results}
        return found

    @property
    def grammars(self) -> Mapping[str, Grammar]:
        """What the rows' spans name as grammars."""
        return {} if self._grammars is None else self._grammars.known

    def _log(self, line: str) -> None:
        """Append to the newest file of events; a process begins a file of its own."""
        if self._events is None or self._logged % EPISODES_PER_FILE == 0:
            if self._events is not None:
                self._events.close()
            number = len(list((self.run / "events").glob("episodes-*.jsonl"))) + 1
            self._events = open(self.run / "events" / f"episodes-{number:05d}.jsonl", "x", encoding="utf-8")  # noqa: SIM115
        self._events.write(line)
        self._events.flush()
        self._logged += 1

    def flush(self) -> None:
        """Make whole shards of what was added."""
        if self._buffer is not None:
            self._buffer.flush()

    def close(self) -> None:
        """Close every file. Raises RunError where the disk refuses the rest, unless it has before."""
        faults: list[OSError | RunError] = []
        for end in (self.flush, *(file.close for file in (self._events, self._games) if file is not None)):
            try:
                end()
            except (OSError, RunError) as error:
                faults.append(error)
        if faults and not self._failed:
            raise self._refused("the last episodes", faults[0]) from faults[0]

    def _refused(self, what: str, error: OSError | RunError) -> RunError:
        reason = getattr(error, "strerror", None) or error
        return RunError(f"{self.run}: {what} could not be written: {reason}; mend it, then continue with --resume")

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def records(played: Played, run: str) -> list[EpisodeRecord]:
    """One record for each seat that has model calls or a transcript."""
    from socialrl_cli.buffer import EpisodeRecord

    game, out = played.game, []
    for seat, taken in played.seats.items():
        if taken.calls is None and taken.messages is None:
            continue
        scored = played.outcome.seats.get(seat)
        paid = scored is not None and played.status == "finished"
        out.append(
            EpisodeRecord(
                run=run,
                episode_id=game.episode_id,
                session_key=f"{game.episode_id}-{seat}",
                env=game.scenario.env,
                scenario_id=game.scenario.id,
                split=game.scenario.split,
                group_id=game.group_id,
                sample=game.trial,
                seat=seat,
                agent=game.who(seat),
                opponent=game.opponent if game.who(seat) == game.policy else game.policy,
                calls=taken.calls,
                messages=taken.messages,
                tools=taken.tools,
                turn_probes=tom.probes(
                    taken.notes, scenario=game.scenario, seat=seat, events=played.env.channels[seat].events
                ),
                reward=scored.reward if paid and scored else 0.0,
                utility=scored.utility if paid and scored else 0.0,
                reward_parts={"outcome": scored.reward} if paid and scored else {},
                outcome={
                    "status": played.outcome.status,
                    "by": played.outcome.by,
                    "agreement": as_plain(played.outcome.agreement),
                },
                status=played.status,
                error=played.error,
                started_at=played.started_at,
                finished_at=played.finished_at,
            )
        )
    return out


def read_games(run: Path) -> list[GameResult]:
    """The finished games of a run; a last line torn by a kill is left out."""
    path = run / GAMES
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(GameResult(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return found


def _end_line(path: Path) -> None:
    """A torn last line is ended, so that the next one begins on its own."""
    if path.exists() and (text := path.read_bytes()) and not text.endswith(b"\n"):
        with open(path, "ab") as file:
            file.write(b"\n")
