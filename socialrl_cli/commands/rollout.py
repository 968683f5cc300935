"""`socialrl rollout`: play episodes and keep them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer


def rollout(
    recipe: str = typer.Argument("", help="A recipe: its name or a TOML file.", metavar="RECIPE", show_default=False),
    env: list[str] = typer.Option(
        [], "--env", help="An environment, repeat for several; all: the six negotiations (default dnd)."
    ),
    policy: list[str] = typer.Option([], "--policy", help="Who is watched; repeat for several in turn."),
    opponent: list[str] = typer.Option([], "--opponent", help="Who takes all other seats; repeat for several in turn."),
    episodes: int | None = typer.Option(
        None, "-n", "--episodes", help="How many episodes (default 100).", show_default=False, min=1
    ),
    split: str = typer.Option(
        "", "--split", help="train, val, test or a scenario file (default train).", show_default=False
    ),
    seed: int | None = typer.Option(
        None, "--seed", help="Every game's seed derives from it (default 0).", show_default=False
    ),
    engine: str = typer.Option("", "--engine", help="Where local models run (default embedded).", show_default=False),
    sets: list[str] = typer.Option(
        [], "--set", help="Any key of the recipe: --set play.concurrency=64.", metavar="KEY=VALUE"
    ),
    run: Path | None = typer.Option(None, "--run", help="The run directory (default runs/rollout)."),
    resume: bool = typer.Option(False, "--resume", help="Play what an interrupted call has not finished."),
    clean: bool = typer.Option(False, "--clean", help="Remove what an earlier run has left there first."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the resolved configuration and stop."),
    json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> None:
    """Play episodes, record every model call, write a buffer.

    \b
    Example: socialrl rollout --env dnd --policy scripted:boulware --opponent scripted:conceder -n 100
    Example: socialrl rollout --env all --policy scripted:planner -n 600
    Example: socialrl rollout --policy model:tiny -n 10 --set harness.format=schema --set harness.scaffold=tom
    """
    from socialrl_cli.config import options
    from socialrl_cli.engines.config import engine_sets
    from socialrl_cli.launch import as_list, launch
    from socialrl_cli.rollouts import RolloutConfig, check, run_rollout

    plain = {"split": split, "episodes": episodes, "seed": seed}
    given = options(plain)
    given += [f"envs={as_list(env)}"] if env else []
    given += [f"policies={as_list(policy)}"] if policy else []
    given += engine_sets(engine)
    given += [f"opponents={as_list(opponent)}"] if opponent else []
    launch(
        RolloutConfig, run_rollout, recipe=recipe, sets=[*given, *sets], run=run, default="rollout", resume=resume,
        clean=clean, dry_run=dry_run, as_json=json, show=_show, check=check,
    )  # fmt: skip


def _show(console: Any, document: dict[str, Any]) -> None:
    from socialrl_cli.report.tables import opponent_table, score_table

    rows = {", ".join(document["policies"]): document}
    console.print(score_table(rows, title=f"{document['episodes']} episodes of {', '.join(document['envs'])}"))
    if len(document["envs"]) > 1:
        console.print(score_table(document["environments"], title="apart", first="environment"))
    console.print(opponent_table(rows))
    console.print(f"kept in {document['run']}", markup=False)
