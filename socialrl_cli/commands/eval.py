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
    env: list[str] = typer.Option(
        [], "--env", help="An environment, repeat for several; all: the six negotiations (default dnd)."
    ),
    opponent: list[str] = typer.Option(
        [], "--opponent", help="Who sits opposite; repeat (default: the usual scripted)."
    ),
    baseline: list[str] = typer.Option(
        [], "--baseline", help="Shown beside it in the same seats: a participant, all or none; repeat."
    ),
    split: str = typer.Option("", "--split", help="val, test, train or a scenario file (default test)."),
    scenarios: int | None = typer.Option(
        None, "--scenarios", help="How many of each split; 0: all (default 10).", min=0, show_default=False
    ),
    trials: int | None = typer.Option(
        None, "--trials", help="Games of each scenario and opponent (default 5).", min=1, show_default=False
    ),
    repeats: int | None = typer.Option(
        None, "--repeats", help="Whole evaluations, for a standard deviation (default 1).", min=1, show_default=False
    ),
    seats: str = typer.Option(
        "", "--seats", help="alternate; both: every trained seat; team: all of a team (default alternate)."
    ),
    temperature: float | None = typer.Option(None, "--temperature", help="Of models (default: their own)."),
    seed: int | None = typer.Option(
        None, "--seed", help="Every game's seed derives from it (default 0).", show_default=False
    ),
    engine: str = typer.Option("", "--engine", help="Where local models run (default embedded).", show_default=False),
    fail_under: list[str] = typer.Option(
        [], "--fail-under", help="Exit 3 when the score is lower: 0.5 or dnd=0.5; repeat.", metavar="[ENV=]X"
    ),
    junit: Path | None = typer.Option(None, "--junit", help="Write the verdict there, a test case an environment."),
    by_opponent: bool = typer.Option(False, "--by-opponent", help="Also a column for each opponent."),
    sets: list[str] = typer.Option(
        [], "--set", help="Any other key: --set harness.format=schema.", metavar="KEY=VALUE"
    ),
    run: Path | None = typer.Option(None, "--run", help="Keep games and results there (default: nowhere)."),
    resume: bool = typer.Option(False, "--resume", help="Play what an interrupted call has not finished."),
    clean: bool = typer.Option(False, "--clean", help="Remove what an earlier run has left there first."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the resolved configuration and stop."),
    json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> None:
    """Play held-out scenarios and report what a policy earns.

    \b
    Example: socialrl eval --policy run:runs/quickstart/ppo --scenarios 100 --trials 1 --seats both --fail-under 0.55
    Example: socialrl eval --env all --policy scripted:planner --repeats 3 --fail-under dnd=0.6 --junit eval.xml
    """
    if ctx.invoked_subcommand is not None:
        return
    from tempfile import TemporaryDirectory

    from socialrl_cli.config import options
    from socialrl_cli.engines.config import engine_sets
    from socialrl_cli.evals import EvalConfig, check, run_eval
    from socialrl_cli.launch import as_list, launch
    from socialrl_cli.runs import write_text
    from socialrl_cli.thresholds import check_junit, enforce, thresholds
    from socialrl_cli.thresholds import junit as as_junit

    if junit is not None:
        check_junit(junit)
    wanted: dict[str, float] = {}

    def checked(config: EvalConfig) -> None:
        check(config)
        wanted.update(thresholds(fail_under, config.all_envs()))

    plain: dict[str, Any] = {
        "policy": policy, "split": split, "scenarios": scenarios, "trials": trials, "repeats": repeats,
        "seats": seats, "seed": seed, "temperature": temperature,
    }  # fmt: skip
    given = options(plain)
    given += [f"envs={as_list(env)}"] if env else []
    given += engine_sets(engine)
    given += [f"opponents={as_list(opponent)}"] if opponent else []
    given += [f"baselines={as_list(baseline)}"] if baseline else []
    with TemporaryDirectory(prefix="socialrl-eval-") as scratch:
        document = launch(
            EvalConfig, run_eval, recipe="", sets=[*given, *sets], run=run or Path(scratch) / "eval", default="eval",
            resume=resume, clean=clean, dry_run=dry_run, as_json=json, check=checked,
            show=lambda console, document: _show(console, document, by_opponent),
        )  # fmt: skip
    if document is not None:
        if junit is not None:
            write_text(junit, as_junit(document, wanted))
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
        for env, found in document["environments"].items() if len(document["environments"]) > 1 else ():
            console.print(f"{env}: {difference_line(found, a=str(a), b=str(b))}")
        console.print("by scenario: {wins} won, {losses} lost, {ties} even".format(**document["scenarios"]))

    emit(document, as_json=json, show=show)


@app.command("cross-play")
def cross_play(
    policies: list[str] = typer.Argument(..., help="Participants, two or more.", metavar="POLICY…", show_default=False),
    env: list[str] = typer.Option([], "--env", help="An environment, repeat for several (default dnd)."),
    split: str = typer.Option("test", "--split", help="val, test, train or a scenario file."),
    scenarios: int = typer.Option(10, "--scenarios", help="How many of each split; 0: all.", min=0),
    trials: int = typer.Option(1, "--trials", help="Games of each scenario, seat and opponent.", min=1),
    seed: int = typer.Option(0, "--seed", help="Every game's seed derives from it."),
    engine: str = typer.Option("", "--engine", help="Where local models run (default embedded).", show_default=False),
    sets: list[str] = typer.Option([], "--set", help="Any other key of eval.", metavar="KEY=VALUE"),
    run: Path | None = typer.Option(None, "--run", help="Keep games and results there (default: nowhere)."),
    resume: bool = typer.Option(False, "--resume", help="Play what an interrupted call has not finished."),
    clean: bool = typer.Option(False, "--clean", help="Remove what an earlier run has left there first."),
    json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> None:
    """Every policy against every policy, itself among them, in all seats: the matrix of what each earns.

    \b
    Example: socialrl eval cross-play run:runs/ppo run:runs/ppo@18 scripted:planner --scenarios 50
    """
    from tempfile import TemporaryDirectory

    from scenarios.errors import UsageError
    from socialrl_cli.engines.config import engine_sets
    from socialrl_cli.evals import EvalConfig, check, run_cross_play
    from socialrl_cli.launch import as_list, launch
    from socialrl_cli.report.tables import opponent_table

    names = list(dict.fromkeys(policies))
    if len(names) < 2:
        raise UsageError(f"cross-play is between two policies or more, got {', '.join(names)} alone")
    given = [f"policy={names[0]}", f"baselines={as_list(names[1:])}", f"opponents={as_list(names)}", "seats=both"]
    given += [f"split={split}", f"scenarios={scenarios}", f"trials={trials}", f"seed={seed}", *engine_sets(engine)]
    given += [f"envs={as_list(env)}"] if env else []

    def show(console: Any, document: dict[str, Any]) -> None:
        for name, rows in document["environments"].items():
            console.print(opponent_table(rows, title=f"{name}, {split}: reward of the row against the column"))

    with TemporaryDirectory(prefix="socialrl-eval-") as scratch:
        launch(
            EvalConfig, run_cross_play, recipe="", sets=[*given, *sets], run=run or Path(scratch) / "eval",
            default="cross-play", resume=resume, clean=clean, dry_run=False, as_json=json, check=check, show=show,
        )  # fmt: skip


def _show(console: Any, document: dict[str, Any], by_opponent: bool) -> None:
    from socialrl_cli.report.tables import difference_line, environment_table, opponent_table, score_table

    policy, environments = document["policy"], document["environments"]
    if len(environments) > 1:
        own = {env: found["policies"][policy] for env, found in environments.items()}
        console.print(environment_table(document, title=f"{document['split']}, mean reward", star=policy))
        console.print(score_table(own, title=policy, first="environment"))
        if by_opponent:
            console.print(opponent_table(own, title=policy, first="environment"))
        return
    for env, found in environments.items():
        console.print(score_table(found["policies"], title=f"{env}, {document['split']}", star=policy))
        if by_opponent:
            console.print(opponent_table(found["policies"]))
        for name, difference in found["differences"].items():
            console.print(difference_line(difference, a=name, b=policy))
