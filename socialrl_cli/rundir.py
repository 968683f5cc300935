"""What a run directory holds, read without owning it.

    config.toml          resolved; its first line marks the folder as a run's
    result.json          what a command that has done all its work has printed
    metrics.jsonl        one JSON object a line, with its step
    checkpoints/step-N   whole folders; N = steps finished; where several delegates are trained, a sub-folder for each
    checkpoints/best.json  {"step", "score"} of the best validation; best-NAME.json of one delegate of several
    attempts/N.log       what the Nth attempt said, and the traceback it ended with; N.rankR.log of trainer process R
    calls/ buffer/ events/ eval/ report.html   of others

Writing is in `runs.py`.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scenarios.errors import RunError, UsageError

MARK = "# socialrl run"
RESULT = "result.json"
STEP = re.compile(r"step-(\d+)")


def is_run(path: Path) -> bool:
    """Whether a run has written this folder."""
    try:
        with open(path / "config.toml", encoding="utf-8") as file:
            return file.readline().rstrip("\n") == MARK
    except (OSError, UnicodeDecodeError):
        return False


def read_config(path: Path) -> str:
    """The resolved configuration of a run, as TOML without the mark."""
    return (path / "config.toml").read_text(encoding="utf-8").partition("\n")[2]


def result(run: Path) -> dict[str, Any] | None:
    """What the command printed that has finished this run; None while something is left to do."""
    path = run / RESULT
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def steps(run: Path) -> list[int]:
    """The steps of the whole checkpoints, ascending."""
    folder = run / "checkpoints"
    names = [item.name for item in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(match[1]) for match in map(STEP.fullmatch, names) if match)


def checkpoint(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step}"


def best_file(run: Path, delegate: str = "") -> Path:
    return run / "checkpoints" / (f"best-{delegate}.json" if delegate else "best.json")


def best(run: Path, delegate: str = "") -> dict[str, Any] | None:
    """{"step", "score"} of the best validation so far, of the only delegate or of one of several."""
    path = best_file(run, delegate)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def all_best(run: Path) -> set[Path]:
    """The checkpoints that are somebody's best."""
    files = (run / "checkpoints").glob("best*.json")
    return {checkpoint(run, int(json.loads(file.read_text(encoding="utf-8"))["step"])) for file in files}


def delegates(folder: Path) -> list[str]:
    """Whose sub-folders a checkpoint has; none where only one was trained."""
    return sorted(item.parent.name for item in folder.glob("*/actor"))


def contents(path: Path) -> str:
    """What there is instead of a checkpoint, in words."""
    if (path / "eval").is_dir():
        return "an evaluation and no checkpoint"
    if any((path / "buffer").glob("*")) or any((path / "events").glob("*")):
        return "episodes and no checkpoint"
    return "a run with no checkpoint yet" if is_run(path) else "no run"


def find_checkpoint(run: str | Path, step: int | str | None = None) -> Path:
    """The folder of what `run:DIR[/DELEGATE][@STEP]` names: a checkpoint, or a delegate's part of it. The step is a
    number, "best" or "latest"; None: best, else latest."""
    path, delegate = Path(run), ""
    if not path.is_dir() and (path.parent / "checkpoints").is_dir():
        path, delegate = path.parent, path.name
    if not path.is_dir():
        raise UsageError(f"no run directory {path}")
    known, marked = steps(path), best(path, delegate)
    if not known:
        raise UsageError(f"{path} holds {contents(path)}; a model comes from a run of socialrl train")
    there = delegates(checkpoint(path, known[-1]))
    if delegate not in (there or [""]):
        names = " or ".join(f"run:{path}/{name}" for name in there) or f"run:{path}"
        wrong = f"has no delegate {delegate!r}" if delegate else "has several delegates"
        raise UsageError(f"{path} {wrong}: name {names}")
    if step in (None, "best") and marked is not None:
        step = int(marked["step"])
    elif step in (None, "latest"):
        step = known[-1]
    if str(step) not in map(str, known):
        raise UsageError(f"{path} has no checkpoint {step!r}; it has {', '.join(map(str, known))}, best, latest")
    return checkpoint(path, int(str(step))) / delegate


def read_metrics(run: str | Path) -> list[dict[str, Any]]:
    """The whole lines of a run's metrics.jsonl; a line torn by a kill is left out."""
    path = Path(run) / "metrics.jsonl"
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def differences(before: str, after: str) -> dict[str, tuple[Any, Any]]:
    """Dotted keys whose values differ between two TOML texts, with both values (None: not there)."""
    try:
        old, new = _flat(tomllib.loads(before)), _flat(tomllib.loads(after))
    except tomllib.TOMLDecodeError as error:
        raise RunError(f"config.toml of the run is not valid TOML any more: {error}") from error
    return {key: (old.get(key), new.get(key)) for key in sorted(old | new) if old.get(key) != new.get(key)}


def _flat(tree: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{at}{key}.") if isinstance(value, Mapping) else {at + key: value}
    return flat
