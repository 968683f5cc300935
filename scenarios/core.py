"""Scenarios: what one game starts from, how a file of them is read, checked, generated and written.

A scenario file holds one JSON object a line: `id`, `env`, `split`, `source` and the environment's own fields.
Each environment is a module `scenarios/NAME.py` (names in `scenarios.ENVIRONMENTS`) with

    FIELDS          names of its fields, in the order in which they are written
    REWARD_FIELDS   those of them that the reward needs
    check(fields)   -> list[str]: what is wrong with the fields, given that REWARD_FIELDS are all there
    groups(fields)  -> tuple[str, ...]: what must not stand in two splits (the game up to symmetry, a listing, …)
    generate(n, seed, split) -> Iterator[Scenario]: the same arguments give the same scenarios
    summary(fields) -> str: one line for people

Splits are made by content: `split_of(group)` says where a generated or imported group belongs, whatever the
seed, so that two generator runs, or a generator and an importer, never put one game into two splits.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from scenarios import ENVIRONMENTS, jsonfile
from scenarios.errors import DataError, UsageError, nearest
from scenarios.jsonfile import shown

SPLITS = ("train", "val", "test")
SHARES = {"train": 10, "val": 1, "test": 2}  # of 13, as 500 : 50 : 100
HEAD = ("id", "env", "split", "source")


class Problem(NamedTuple):
    """An offending line of a file; `line` counts from 1 and is None for the file as a whole."""

    path: str
    line: int | None
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.line is None else f"{self.path}:{self.line}: {self.reason}"


@dataclass(frozen=True)
class Scenario:
    """One game's public and private facts; `fields` are the environment's own, as in the file."""

    id: str
    env: str
    split: str
    source: str
    fields: Mapping[str, Any] = field(hash=False)

    def __getitem__(self, key: str) -> Any:
        return self.fields[key]

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "env": self.env, "split": self.split, "source": self.source, **self.fields}

    @classmethod
    def from_json(cls, row: Any, *, lenient: bool = False, env: str | None = None) -> Scenario:
        """The scenario of a JSON object; `DataError` says all that is wrong with it.

        `env`, where given, is what the scenario must be of. `lenient` asks only for what the reward needs,
        takes a missing `env` from the argument and ignores keys that it does not know.
        """
        reasons = faults(row, lenient=lenient, env=env)
        if reasons:
            raise DataError("; ".join(reasons))
        name = row.get("env", env)
        known = module(name).FIELDS
        head = [row[key] if isinstance(row.get(key), str) else "" for key in ("id", "split", "source")]
        return cls(head[0], name, head[1], head[2], {key: row[key] for key in known if key in row})


def module(env: str) -> Any:
    """The module `scenarios/ENV.py`. Raises `UsageError` for an unknown name."""
    if env not in ENVIRONMENTS:
        raise UsageError(f"unknown environment {shown(env)}; {nearest(str(env), ENVIRONMENTS)}")
    return importlib.import_module(f"scenarios.{env}")


def split_of(group: str) -> str:
    """The split that a group belongs to by its content, in the shares 10 : 1 : 2."""
    place = int.from_bytes(hashlib.blake2b(group.encode(), digest_size=8).digest(), "big") % sum(SHARES.values())
    for split, share in SHARES.items():
        if place < share:
            return split
        place -= share
    raise AssertionError("shares add up")


def faults(row: Any, *, lenient: bool = False, env: str | None = None) -> list[str]:
    """Everything that is wrong with a scenario's JSON object, one reason each."""
    if not isinstance(row, Mapping):
        return [f"a scenario is a JSON object, got {shown(row)}"]
    found = [] if lenient else _head_faults(row)
    name = row.get("env", env)
    if not isinstance(name, str):
        return found or ["env is missing" if name is None else f"env is {shown(name)}, expected a text"]
    if name not in ENVIRONMENTS:
        return [*found, f"env is {shown(name)}; {nearest(name, ENVIRONMENTS)}"]
    if env is not None and name != env:
        return [*found, f"env is {name!r}, expected {env!r}"]
    rules = module(name)
    needed = rules.REWARD_FIELDS if lenient else rules.FIELDS
    found += [f"{key} is missing" for key in needed if key not in row]
    if not lenient:
        found += [f"{shown(key)} is not a field of {name}" for key in row if key not in (*HEAD, *rules.FIELDS)]
    if all(key in row for key in rules.REWARD_FIELDS):
        found += rules.check({key: row[key] for key in rules.FIELDS if key in row})
    return found


def _head_faults(row: Mapping[str, Any]) -> list[str]:
    found = [f"{key} is missing" for key in HEAD if key not in row]
    for key in HEAD:
        if key in row and not (isinstance(row[key], str) and row[key].strip() and row[key].isprintable()):
            found.append(f"{key} is {shown(row[key])}, expected a text of one line")
    if isinstance(row.get("split"), str) and row["split"].isprintable() and row["split"] not in SPLITS:
        found.append(f"split is {shown(row['split'])}, expected train, val or test")
    return found


def check(scenario: Scenario) -> list[str]:
    """What is wrong with a scenario; empty when it keeps every rule of its environment."""
    return faults(scenario.to_json())


def check_files(paths: Iterable[str | PathLike[str]]) -> tuple[list[Scenario], list[Problem]]:
    """The good scenarios of several files and every offending line.

    Beside each line's own rules: no id twice, no group (game up to symmetry, listing, …) in two splits.
    """
    good: list[Scenario] = []
    problems: list[Problem] = []
    ids: dict[tuple[str, str], str] = {}  # (env, id) -> place
    groups: dict[tuple[str, str], tuple[str, str]] = {}  # (env, group) -> split, place
    for path in paths:
        lines = 0
        for number, value, fault in jsonfile.rows(path):
            lines += 1
            reasons = [fault] if fault else faults(value)
            if not reasons:
                scenario = Scenario.from_json(value)
                reasons = _clashes(scenario, f"{path}:{number}", ids, groups)
            if reasons:
                problems.append(Problem(str(path), number, "; ".join(reasons)))
            else:
                good.append(scenario)
        if not lines:
            problems.append(Problem(str(path), None, "holds no scenario"))
    return good, problems


def read(path: str | PathLike[str], *, skip_bad: bool = False) -> tuple[list[Scenario], list[Problem]]:
    """The scenarios of a file. Bad lines raise one `DataError`, or are left out and returned with `skip_bad`."""
    good, problems = check_files([path])
    if problems and not skip_bad:
        more = f" (and {len(problems) - 1} more bad lines)" if len(problems) > 1 else ""
        raise DataError(f"{problems[0]}{more}")
    return good, problems


def dumps(scenarios: Iterable[Scenario]) -> Iterator[str]:
    """The lines of a scenario file, each with its line end."""
    for scenario in scenarios:
        yield json.dumps(scenario.to_json(), ensure_ascii=False) + "\n"


def write(path: str | PathLike[str], scenarios: Iterable[Scenario]) -> None:
    """Writes a scenario file whole or not at all. Raises `DataError`."""
    write_text(path, "".join(dumps(scenarios)))


def write_text(path: str | PathLike[str], text: str) -> None:
    """Writes a UTF-8 file whole or not at all (temporary name, then rename). Raises `DataError`."""
    target = Path(path)
    try:
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            temporary.write_bytes(text.encode())
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be written ({getattr(error, 'strerror', None) or error})") from None


def generate(env: str, n: int, seed: int, split: str) -> list[Scenario]:
    """`n` distinct scenarios of a split. The same arguments give the same scenarios. Raises `UsageError`."""
    if split not in SPLITS:
        raise UsageError(f"unknown split {shown(split)}; {nearest(str(split), SPLITS)}")
    if n < 1:
        raise UsageError(f"cannot generate {n} scenarios; ask for at least 1")
    found = list(islice(module(env).generate(n, seed, split), n))
    if len(found) < n:
        raise UsageError(f"{env} has only {len(found)} distinct scenarios in the split {split}, {n} were asked for")
    return found


@cache
def packaged(env: str, split: str) -> tuple[Scenario, ...]:
    """The scenarios that ship with the tool (500 train, 50 val, 100 test)."""
    module(env)
    if split not in SPLITS:
        raise UsageError(f"unknown split {shown(split)}; {nearest(str(split), SPLITS)}")
    with resources.as_file(resources.files("scenarios") / "data" / env / f"{split}.jsonl") as path:
        return tuple(read(path)[0])


def resolve(env: str, split_or_path: str) -> tuple[Scenario, ...]:
    """The scenarios of a packaged split, or of a `.jsonl` file. Raises `UsageError`, `DataError`."""
    module(env)
    if split_or_path in SPLITS:
        return packaged(env, split_or_path)
    if not (split_or_path.endswith(".jsonl") or os.path.exists(split_or_path)):
        hint = nearest(split_or_path, SPLITS)
        raise UsageError(f"unknown split {shown(split_or_path)}; {hint} (or the path of a .jsonl file)")
    found, _ = read(split_or_path)
    for scenario in found:
        if scenario.env != env:
            raise DataError(f"{split_or_path}: scenario {scenario.id} is of {scenario.env}, expected {env}")
    return tuple(found)


def _clashes(
    scenario: Scenario,
    place: str,
    ids: dict[tuple[str, str], str],
    groups: dict[tuple[str, str], tuple[str, str]],
) -> list[str]:
    """What a scenario shares with an earlier one and must not; notes its id and groups when there is nothing."""
    name = (scenario.env, scenario.id)
    if name in ids:
        return [f"id {shown(scenario.id)} stands already at {ids[name]}"]
    mine = [(scenario.env, group) for group in module(scenario.env).groups(scenario.fields)]
    for key in mine:
        split, earlier = groups.get(key, (scenario.split, ""))
        if split != scenario.split:
            return [f"the same game stands in the split {split} at {earlier}"]
    ids[name] = place
    for key in mine:
        groups.setdefault(key, (scenario.split, place))
    return []
