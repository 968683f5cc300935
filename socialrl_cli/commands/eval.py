"""`socialrl eval`: play held-out scenarios and report what a policy earns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

app = typer.Typer(invoke_without_command=True)


@app.callback()
def evaluate(
    ctx: typer.Context,
    policy: str = typer.Option("", "--policy", help="Who is evaluated.", show_default=False),
    env: str = typer.Option("dnd", "--env", help="The environment."),
    opponent: list[str] = typer.Option([], "--opponent", help="Who sits opposite; repeat (default: three scripted)."),
    baseline: list[str] = typer.Option(
        [], "--baseline", help="Shown beside it in the same seats: a participant, all or none; repeat."
    ),
    split: str = typer.Option("test", "--split", help="val, test, train or a scenario file."),
    scenarios: int = typer.Option(10, "--scenarios", help="How many scenarios of the split; 0: all.", min=0),
    trials: int = typer.Option(5, "--trials", help="Games of each scenario and opponent.", min=1),
    repeats: int = typer.Option(1, "--repeats", help="Whole evaluations, for a standard deviation.", min=1),
    seats: str = typer.Option("alternate", "--seats", help="alternate, or both for every game."),
    temperature: float | None = typer.Option(None, "--temperature", help="Of models (default: their own)."),
    seed: int = typer.Option(0, "--seed", help="Every game's seed derives from it."),
    engine: str = typer.Option("embedded", "--engine", help="Where local models run: embedded."),
    fail_under: list[str] = typer.Option(
        [], "--fail-under", help="Exit 3 when the score is lower: 0.5 or dnd=0.5.", metavar="[ENV=]X"
    ),
    by_opponent: bool = typer.Option(False, "--by-opponent", help="Also a column for each opponent."),
    sets: list[str] = typer.Option([], "--set", help="Any other key: --set play.retries=0.", metavar="KEY=VALUE"),
    run: Path | None = typer.Option(None, "--run", help="Keep games and results there (default: nowhere)."),
    resume: bool = typer.Option(False, "--resume", help="Play what an interrupted call has not finished."),
    clean: bool = typer.Option(False, "--clean", help="Remove what an earlier run has left there first."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the resolved configuration and stop."),
    json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> None:
    """Play held-out scenarios and report what a policy earns.

    \b
    Example: socialrl eval --policy run:runs/quickstart/ppo --scenarios 100 --trials 1 --seats both --fail-under 0.55
    """
    if ctx.invoked_subcommand is not None:
        return
    from tempfile import TemporaryDirectory

    from socialrl_cli.engines.config import check_engine
    from socialrl_cli.evals import EvalConfig, check, enforce, run_eval, thresholds
    from socialrl_cli.launch import as_list, launch

    check_engine(engine)
    wanted = thresholds(fail_under, env)
    plain: dict[str, Any] = {
        "policy": policy, "env": env, "split": split, "scenarios": scenarios, "trials": trials, "repeats": repeats,
        "seats": seats, "seed": seed, "temperature": temperature,
    }  # fmt: skip
    given = [f"{key}={value}" for key, value in plain.items() if value not in ("", None)]
    given += [f"opponents={as_list(opponent)}"] if opponent else []
    given += [f"baselines={as_list(baseline)}"] if baseline else []
    with TemporaryDirectory(prefix="socialrl-eval-") as scratch:
        document = launch(
            EvalConfig, run_eval, recipe="", sets=[*given, *sets], run=run or Path(scratch) / "eval", default="eval",
            resume=resume, clean=clean, dry_run=dry_run, as_json=json, check=check,
            show=lambda console, document: _show(console, document, by_opponent),
        )  # fmt: skip
    if document is not None:
        enforce(document, wanted)


@app.command("compare")
def compare(
    a: Path = typer.Argument(..., help="A run with an evaluation.", metavar="A", show_default=False),
    b: Path = typer.Argument(..., help="Another, over the same games.", metavar="B", show_default=False),
    json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> None:
    """Compare two evaluations, paired by game: is B better than A?

    \b
    Example: socialrl eval compare runs/eval-before runs/eval-after
    """
    from socialrl_cli import evals
    from socialrl_cli.output import emit
    from socialrl_cli.report.tables import difference_line, score_table

    document = evals.compare(a, b)

    def show(console: Any) -> None:
        console.print(score_table({str(a): document["a"], str(b): document["b"]}))
        console.print(difference_line(document["difference"], a=str(a), b=str(b)))
        console.print("by scenario: {wins} won, {losses} lost, {ties} even".format(**document["scenarios"]))

    emit(document, as_json=json, show=show)


def _show(console: Any, document: dict[str, Any], by_opponent: bool) -> None:
    from socialrl_cli.report.tables import difference_line, opponent_table, score_table

    rows = document["policies"]
    console.print(score_table(rows, title=f"{document['env']}, {document['split']}", star=document["policy"]))
    if by_opponent:
        console.print(opponent_table(rows))
    for name, found in document["differences"].items():
        console.print(difference_line(found, a=name, b=document["policy"]))
