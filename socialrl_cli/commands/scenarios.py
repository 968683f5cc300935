"""`socialrl scenarios`: list, show, generate, import and check what is played."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from scenarios.core import Scenario
    from scenarios.importers.core import Imported

app = typer.Typer(
    help="What is played: the packaged scenarios, generators, importers, a checker.",
    rich_markup_mode=None,
)

SHOWN_LINES = 5  # line numbers that a summary of odd rows names

Env = Annotated[str, typer.Option("--env", metavar="ENV", help="The environment, for example dnd.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that exists.")]


@app.command("list")
def list_(
    env: Annotated[str | None, typer.Option("--env", metavar="ENV", help="Only this environment.")] = None,
    split: Annotated[
        str | None, typer.Option("--split", metavar="SPLIT", help="Name the scenarios of train, val, test or a file.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Show which scenarios ship: how many of each split, or the scenarios of one split.

    \b
    Example: socialrl scenarios list --env dnd --split test
    """
    from scenarios import ENVIRONMENTS, core
    from socialrl_cli.output import emit

    names = ENVIRONMENTS if env is None else (env,)
    if split is None:
        counts = {name: {part: len(core.packaged(name, part)) for part in core.SPLITS} for name in names}
        lines = [
            f"{name:<14}" + "  ".join(f"{part} {n}" for part, n in parts.items()) for name, parts in counts.items()
        ]
        emit(counts, as_json=json, show=_printed(lines))
        return
    found = [scenario for name in names for scenario in core.resolve(name, split)]
    lines = [f"{s.id}  {core.module(s.env).summary(s.fields)}" for s in found]
    emit([scenario.to_json() for scenario in found], as_json=json, show=_printed(lines))


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="ID", help="A scenario's id.")],
    env: Env = "dnd",
    split: Annotated[
        str | None,
        typer.Option("--split", metavar="SPLIT", help="Look in train, val, test or a file; else in all three."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Show one scenario and each seat's reference m, the utility at which its reward curve is steepest.

    --json gives the scenario alone, as it stands in a file.

    \b
    Example: socialrl scenarios show dnd-1.3.1-1.1.6-0.1.7
    """
    from rewards.core import score
    from scenarios import core
    from scenarios.errors import UsageError
    from socialrl_cli.output import emit

    places = core.SPLITS if split is None else (split,)
    scenario = next((s for place in places for s in core.resolve(env, place) if s.id == name), None)
    if scenario is None:
        where = f"{env} {', '.join(places)}"
        raise UsageError(f"no scenario {name!r} in {where}; `socialrl scenarios list --env {env} --split …` names them")
    references = {seat: s.reference for seat, s in score(scenario, {"status": "aborted"}).seats.items()}
    head = [f"{key:<7}{value}" for key, value in scenario.to_json().items() if key not in scenario.fields]
    game = f"game   {core.module(env).summary(scenario.fields)}"
    lines = [*head, game]
    if None not in references.values():
        lines.append("m      " + ", ".join(f"{seat} {m}" for seat, m in references.items()))
    emit(scenario.to_json(), as_json=json, show=_printed(lines))  # as in a file, which `check` and `score` take


@app.command()
def generate(
    env: Env = "dnd",
    n: Annotated[int, typer.Option("-n", help="How many scenarios.")] = 100,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same file, byte for byte.")] = 0,
    split: Annotated[str, typer.Option("--split", metavar="SPLIT", help="train, val or test.")] = "train",
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="The file to write; - is standard output.")] = "-",
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Draw distinct scenarios. The splits share none, whatever the seeds: the content decides the split.

    \b
    Example: socialrl scenarios generate --env dnd -n 500 --split train --seed 0 --out train.jsonl
    """
    from scenarios import core
    from socialrl_cli.output import emit, note

    found = core.generate(env, n, seed, split)
    if out == "-":
        lines = [line.rstrip("\n") for line in core.dumps(found)]
        emit([scenario.to_json() for scenario in found], as_json=json, show=_printed(lines))
        return
    _refuse_to_replace(out, force)
    core.write_text(out, "".join(core.dumps(found)))
    if json:
        emit({"env": env, "split": split, "seed": seed, "n": len(found), "out": out}, as_json=True)
    else:
        note(f"{len(found)} scenarios of {env}, split {split}, seed {seed}, written to {out}")


@app.command("import")
def import_(
    corpus: Annotated[str, typer.Argument(metavar="CORPUS", help="The corpus, for example dealornodeal.")],
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Its files, as published.")],
    format: Annotated[
        str | None, typer.Option("--format", metavar="NAME", help="The layout; else it is told from the content.")
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write the scenarios here; without it only report.")
    ] = None,
    outcomes: Annotated[
        str | None, typer.Option("--outcomes", metavar="FILE", help="Write the recorded outcomes here, for `score`.")
    ] = None,
    split: Annotated[
        str | None, typer.Option("--split", metavar="SPLIT", help="Keep only what belongs to train, val or test.")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave bad rows out, count them and go on.")] = False,
    odd: Annotated[
        bool, typer.Option("--odd", help="List every odd row with its place, not only their number.")
    ] = False,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Read games from a published corpus. Each scenario is kept once; a game's two views count once.

    A bad row breaks the layout or the rules, or contradicts its mirror: each is reported, and nothing is written
    unless --skip-bad is given. An odd row (no agreement, a missing mirror, …) is a good scenario and is counted.
    The content decides which split a scenario belongs to, as with generated ones.

    \b
    Example: socialrl scenarios import dealornodeal selfplay.txt --split test --out selfplay.jsonl
    """
    import json as json_module

    from scenarios import core
    from scenarios.errors import DataError, UsageError, nearest
    from scenarios.importers import core as importers
    from socialrl_cli.output import emit, note

    if split is not None and split not in core.SPLITS:
        raise UsageError(f"unknown split {split!r}; {nearest(split, core.SPLITS)}")
    if "-" in (out, outcomes) or (out is not None and out == outcomes):
        raise UsageError("--out and --outcomes need the names of two different files")
    found = importers.read(corpus, files, format)
    kept = found if split is None else found.kept(split)
    refused = bool(found.bad) and not skip_bad
    report = {**kept.to_json(), "skipped": len(found.bad) if skip_bad else 0, "out": out, "outcomes_out": outcomes}
    if not refused:
        texts = {}
        if out is not None:
            texts[out] = "".join(core.dumps(kept.scenarios))
        if outcomes is not None:
            texts[outcomes] = "".join(
                json_module.dumps(game.to_json(), ensure_ascii=False) + "\n" for game in kept.played
            )
        for path in texts:
            _refuse_to_replace(path, force)
        for path, text in texts.items():
            core.write_text(path, text)
    if json:
        emit({**report, "written": not refused and out is not None}, as_json=True)
        if refused:
            raise typer.Exit(1)
        return
    for problem in found.bad:
        note(f"{problem}" if refused else f"{problem} (skipped)")
    for line in _odd_lines(found, odd):
        note(line)
    if refused:
        raise DataError(f"{len(found.bad)} bad rows, nothing written; mend them or leave them out with --skip-bad")
    emit(report, as_json=False, show=_printed(_import_summary(kept, report)))


@app.command()
def check(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Scenario files; - is standard input.")],
    json: AsJson = False,
) -> None:
    """Check scenario files line by line; prints each offending line and exits 1 when there is one.

    Beside each scenario's own rules: no id twice and no game in two splits, over all the files together.

    \b
    Example: socialrl scenarios check train.jsonl val.jsonl test.jsonl
    """
    from scenarios import core
    from socialrl_cli.output import emit, note

    good, problems = core.check_files(files)
    document = {
        "ok": not problems,
        "files": files,
        "scenarios": len(good),
        "envs": _by_env_and_split(good),
        "problems": [problem._asdict() for problem in problems],
    }
    emit(document, as_json=json, show=_printed([str(problem) for problem in problems]))
    if not json:
        note(f"{len(good)} good scenarios, {len(problems)} bad lines")
    if problems:
        raise typer.Exit(1)


def _printed(lines: list[str]) -> Any:
    """Prints lines as they are: rich would wrap them and read their brackets."""

    def show(_console: Any) -> None:
        for line in lines:
            typer.echo(line)

    return show


def _refuse_to_replace(path: str, force: bool) -> None:
    """Raises `DataError` where a file may not be written; one that exists is replaced only with `force`."""
    import os

    from scenarios.errors import DataError

    if not path:
        raise DataError("the name of the file to write is empty")
    if os.path.isdir(path):
        raise DataError(f"{path}: is a directory, expected the name of a file")
    if os.path.exists(path) and not force:
        raise DataError(f"{path}: exists; replace it with --force, or name another file")


def _by_env_and_split(found: list[Scenario]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for (env, split), n in sorted(Counter((s.env, s.split) for s in found).items()):
        counts.setdefault(env, {})[split] = n
    return counts


def _odd_lines(found: Imported, each: bool) -> list[str]:
    """The odd rows one by one, or a line for each kind."""
    if each:
        return [str(odd) for odd in found.odd]
    kinds: dict[tuple[str, str], list[int]] = {}
    for odd in found.odd:
        kinds.setdefault((odd.path, odd.kind), []).append(odd.line)
    return [
        f"{path}: {len(lines)} rows {kind} (lines {', '.join(map(str, lines[:SHOWN_LINES]))}"
        + (", …)" if len(lines) > SHOWN_LINES else ")")
        for (path, kind), lines in kinds.items()
    ]


def _import_summary(found: Imported, report: dict[str, Any]) -> list[str]:
    splits = ", ".join(f"{split} {n}" for split, n in sorted(report["splits"].items())) or "none"
    lines = [f"{path}: format {layout}" for path, layout in found.formats.items()]
    lines.append(f"{found.rows} rows, {found.games} games, {len(found.bad)} bad rows skipped")
    lines.append(f"{report['scenarios']} distinct scenarios kept ({splits}), {report['repeated']} repeats of them")
    if report["outcomes"]:
        lines.append("outcomes: " + ", ".join(f"{status} {n}" for status, n in sorted(report["outcomes"].items())))
    for key, what in (("out", "scenarios"), ("outcomes_out", "outcomes")):
        if report[key] is not None:
            lines.append(f"{what} written to {report[key]}")
    return lines
