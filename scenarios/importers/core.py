"""What an importer returns, whatever the corpus.

An importer is a module `scenarios/importers/NAME.py` (names in `scenarios.importers.IMPORTERS`) with

    ENV                             the environment of its scenarios
    FORMATS                         names of the layouts it reads
    read(paths, format) -> Imported format None: told from the content, file by file

Two kinds of row are told apart. A *bad* row cannot be used: it breaks the layout, the rules of the game, or
contradicts itself or its mirror. An *odd* row is a good scenario with something to know about its record: no
agreement, a broken connection, a mark that does not fit, a missing mirror. Bad rows are left out, and whoever
imports decides whether to go on; odd rows are imported. Both are reported with their place.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, NamedTuple

from scenarios import jsonfile
from scenarios.core import Problem, Scenario
from scenarios.errors import DataError, UsageError, nearest
from scenarios.importers import IMPORTERS
from scenarios.jsonfile import shown


class Odd(NamedTuple):
    """Something to know about an imported row. `kind` is a stable word, `reason` a sentence."""

    path: str
    line: int
    kind: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


@dataclass(frozen=True)
class Played:
    """A recorded game: its outcome in the terms of the scenario that was kept for it."""

    scenario: str  # id
    outcome: dict[str, Any]  # as in an outcome file
    record: str  # what the corpus says: agree, disagree, no_agreement, disconnect
    source: str  # importer, file and lines
    reported: Mapping[str, float]  # seat -> the reward that the corpus recorded, where it records one

    def to_json(self) -> dict[str, Any]:
        more = {"reported": dict(self.reported)} if self.reported else {}
        return {"scenario": self.scenario, **self.outcome, "record": self.record, "source": self.source, **more}


@dataclass
class Imported:
    """All that was found in the files. A scenario is kept once, however often it was played."""

    formats: dict[str, str] = field(default_factory=dict)  # path -> format
    rows: int = 0  # non-blank lines
    games: int = 0  # a game and its mirror count once
    scenarios: list[Scenario] = field(default_factory=list)
    times: Counter[str] = field(default_factory=Counter)  # scenario id -> how many games
    played: list[Played] = field(default_factory=list)  # empty where a format records no outcomes
    bad: list[Problem] = field(default_factory=list)
    odd: list[Odd] = field(default_factory=list)
    _ids: dict[str, Scenario] = field(default_factory=dict, repr=False)

    def keep(self, scenario: Scenario) -> Scenario:
        """The scenario as it is kept: once, however often it comes. Another one of the same id is named apart."""
        same = self._ids.get(scenario.id)
        if same is not None and same.fields != scenario.fields:
            text = json.dumps(dict(scenario.fields), sort_keys=True)
            digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
            scenario = replace(scenario, id=f"{scenario.id}-{digest}")
            same = self._ids.get(scenario.id)
        if same is None:
            same = self._ids[scenario.id] = scenario
            self.scenarios.append(scenario)
        self.times[same.id] += 1
        return same

    def kept(self, split: str) -> Imported:
        """The same, with the scenarios and outcomes of one split alone."""
        mine = [scenario for scenario in self.scenarios if scenario.split == split]
        ids = {scenario.id for scenario in mine}
        played = [game for game in self.played if game.scenario in ids]
        times = Counter({name: n for name, n in self.times.items() if name in ids})
        return Imported(self.formats, self.rows, self.games, mine, times, played, self.bad, self.odd)

    def to_json(self) -> dict[str, Any]:
        return {
            "formats": self.formats,
            "rows": self.rows,
            "games": self.games,
            "scenarios": len(self.scenarios),
            "repeated": sum(self.times.values()) - len(self.times),
            "splits": dict(Counter(scenario.split for scenario in self.scenarios)),
            "outcomes": dict(Counter(game.outcome["status"] for game in self.played)),
            "bad": [problem._asdict() for problem in self.bad],
            "odd_kinds": dict(Counter(odd.kind for odd in self.odd)),
            "odd": [odd._asdict() for odd in self.odd],
        }


def records(path: str) -> Iterator[jsonfile.Row]:
    """The records of a JSON list, or of a file with one on each line; `line` is then the record's number, from 1.

    A bad line is yielded with its fault. Raises `DataError` for a file that is empty or no JSON at all.
    """
    data = jsonfile.read_bytes(path).strip()
    if not data:
        raise DataError(f"{path}: is empty")
    if not data.startswith(b"["):
        yield from jsonfile.rows(path)
        return
    (whole,) = jsonfile.documents(path)
    for number, value in enumerate(whole.value, start=1):
        yield jsonfile.Row(number, value, None)


def read(corpus: str, paths: Sequence[str | PathLike[str]], format: str | None = None) -> Imported:
    """Import files of a corpus. Raises `UsageError` for an unknown name, `DataError` for an unreadable file."""
    if corpus not in IMPORTERS:
        raise UsageError(f"unknown corpus {shown(corpus)}; {nearest(corpus, IMPORTERS)}")
    importer = importlib.import_module(f"scenarios.importers.{corpus}")
    if format is not None and format not in importer.FORMATS:
        raise UsageError(f"{corpus} has no format {shown(format)}; {nearest(format, importer.FORMATS)}")
    return importer.read(paths, format)
