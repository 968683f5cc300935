"""What the commands that own a run directory share: resolve the configuration, open the run, work, print.

On `--resume` without a recipe the run's own `config.toml` is the recipe. What decides the data of a run cannot be
changed on resume; how fast it is worked on can.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from scenarios.errors import RunError, UsageError
from socialrl_cli import rundir
from socialrl_cli.config import find_recipe, load, recipe_info
from socialrl_cli.episodes import collect_seldom
from socialrl_cli.output import emit, note
from socialrl_cli.runs import Run
from socialrl_cli.toml_writer import dump
from socialrl_cli.trainers import Trainers, work_together

T = TypeVar("T")
# Keys that a resume may change: they move no game and no mini-batch.
FREE = (
    *("threads", "train_gpus", "engine.", "play.", "games.play."),
    *("ppo.steps", "ppo.save_every", "ppo.micro_tokens", "ppo.workers"),
    *("sft.save_every", "sft.micro_tokens", "sft.workers", "sft.evaluate_every"),
)


def resolved(
    kind: type[T], recipe: str, sets: Sequence[str], run: Path | None, default: str, resume: bool, table: str = ""
) -> tuple[T, Path]:
    """The configuration and the run directory. `table`: where a bare `--set` key belongs that is no top-level one."""
    if recipe:
        _check_recipe(recipe, default)
    path = run or Path("runs") / (Path(recipe).stem if recipe else default)
    sets = [_in_table(kind, item, table) for item in sets] if table else sets
    kept = path / "config.toml" if resume and not recipe and rundir.is_run(path) else None
    return load(kind, kept or recipe or None, sets), path


def _check_recipe(recipe: str, command: str) -> None:
    """Refuse a recipe that says it is another command's. Raises UsageError."""
    meant = recipe_info(find_recipe(recipe)).command
    if meant and command not in meant.split():
        raise UsageError(f"{recipe} is a recipe for another command: socialrl {meant} {recipe}")


def _in_table(kind: Any, item: str, table: str) -> str:
    key = item.partition("=")[0].strip()
    return item if "." in key or key in {field.name for field in fields(kind)} else f"{table}.{item}"


def launch(
    kind: type[T],
    work: Callable[[T, Run], dict[str, Any]],
    *,
    recipe: str,
    sets: Sequence[str],
    run: Path | None,
    default: str,
    resume: bool,
    clean: bool,
    dry_run: bool,
    as_json: bool,
    show: Callable[[Any, dict[str, Any]], None],
    table: str = "",
    check: Callable[[T], None] = lambda config: None,
    trainers: Trainers | None = None,
) -> dict[str, Any] | None:
    """Run one command's work in its run directory; `check` refuses a configuration before anything is written.
    With several `trainers` it is the work of as many processes, and None where the first of them is elsewhere."""
    config, path = resolved(kind, recipe, sets, run, default, resume, table)
    if resume and not rundir.is_run(path):
        raise UsageError(f"{path}: there is no run to resume; start it without --resume")
    if dry_run:
        print(dump(config), end="")
        return None
    check(config)
    if resume:
        refuse_changes(path, dump(config))
    if resume and (document := _finished(path, dump(config))) is not None:
        note(f"{path}: finished already, nothing is left to do")
    elif trainers is not None and trainers.several:
        task = {"kind": _name(kind), "work": _name(work), "config": dump(config), "run": str(path)}
        found = work_together(trainers, task | {"resume": resume, "clean": clean})
        if found is None:
            return None
        document = found
    else:
        collect_seldom()
        with Run.open(path, dump(config), resume=resume, clean=clean) as opened:
            document = work(config, opened)
            opened.keep_result(document)
    emit(document, as_json=as_json, show=lambda console: show(console, document))
    return document


def _name(thing: Any) -> str:
    return f"{thing.__module__}:{thing.__qualname__}"


def _finished(path: Path, config: str) -> dict[str, Any] | None:
    """What is to be printed again, where a resume with this configuration has nothing to do."""
    found = rundir.result(path)
    return None if found is None or rundir.differences(rundir.read_config(path), config) else found


def refuse_changes(path: Path, config: str) -> None:
    """Refuse a resume that would mix two experiments in one run. Raises RunError that names the key."""
    for key, (before, now) in rundir.differences(rundir.read_config(path), config).items():
        if not key.startswith(FREE):
            raise RunError(
                f"{path}: {key} is {before!r} in this run and would become {now!r}; "
                "resume with what it was begun with, or begin another run"
            )


def as_list(names: Sequence[str]) -> str:
    """Texts as a TOML list for --set."""
    return json.dumps(list(names))
