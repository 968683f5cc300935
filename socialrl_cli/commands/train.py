"""`socialrl train`: learn from a buffer (`sft`) or by playing (`ppo`)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import typer

app = typer.Typer(help="Learn from a buffer (sft) or by playing (ppo).", no_args_is_help=True)

Recipe = typer.Argument("", help="A recipe: its name or a TOML file.", metavar="RECIPE", show_default=False)
Sets = typer.Option([], "--set", help="Any key of the recipe: --set save_every=10.", metavar="KEY=VALUE")
RunDir = typer.Option(None, "--run", help="The run directory (default runs/RECIPE).")
Resume = typer.Option(False, "--resume", help="Continue an interrupted run.")
Clean = typer.Option(False, "--clean", help="Remove what an earlier run has left there first.")
DryRun = typer.Option(False, "--dry-run", help="Print the resolved configuration and stop.")
Json = typer.Option(False, "--json", help="Print one JSON document.")
Nproc = typer.Option(1, "--nproc", help="Trainer processes on this machine.", metavar="N")
Nnodes = typer.Option(1, "--nnodes", help="Machines; give the same command on each.", metavar="N")
NodeRank = typer.Option(0, "--node-rank", help="Which of them this is; the first, 0, owns the run.", metavar="N")
Endpoint = typer.Option("", "--rdzv-endpoint", help="Where they meet: HOST:PORT of the first.", show_default=False)
Seed = typer.Option(None, "--seed", help="Draws data or games, and the order of mini-batches.", show_default=False)


@app.command("sft")
def sft(
    recipe: str = Recipe,
    data: list[str] = typer.Option([], "--data", help="A run whose rows are learned from; repeat for several."),
    model: str = typer.Option(
        "", "--model", help="The model to train: tiny, a folder or a hub id.", show_default=False
    ),
    seed: int | None = Seed,
    nproc: int = Nproc,
    nnodes: int = Nnodes,
    node_rank: int = NodeRank,
    rdzv_endpoint: str = Endpoint,
    sets: list[str] = Sets,
    run: Path | None = RunDir,
    resume: bool = Resume,
    clean: bool = Clean,
    dry_run: bool = DryRun,
    json: bool = Json,
) -> None:
    """Imitate chosen rows of a buffer: supervised fine-tuning.

    \b
    Example: socialrl train sft --data runs/rollout --model tiny --set sft.lr=0.001 --run runs/warm
    Example: socialrl train sft --data runs/rollout --model tiny --nproc 2 --run runs/warm
    """
    from socialrl_cli.launch import as_list, launch
    from socialrl_cli.trainers import Trainers
    from socialrl_cli.training import SftRun, check_sft, run_sft

    trainers = Trainers(nproc, nnodes, node_rank, rdzv_endpoint)
    given = [f"data={as_list(data)}"] if data else []
    given += [f"model.actor={model}"] if model else []
    given += [f"sft.seed={seed}", f"model.seed={seed}"] if seed is not None else []
    launch(
        SftRun, run_sft, recipe=recipe, sets=[*given, *sets], run=run, default="sft", table="sft",
        check=partial(check_sft, trainers=trainers), trainers=trainers,
        resume=resume, clean=clean, dry_run=dry_run, as_json=json, show=_show,
    )  # fmt: skip


@app.command("ppo")
def ppo(
    recipe: str = Recipe,
    model: str = typer.Option(
        "", "--model", help="The actor: tiny, a folder, run:RUN or a hub id.", show_default=False
    ),
    partner: str = typer.Option(
        "", "--partner", help="Train a second model too, in the other seat: as for --model.", show_default=False
    ),
    opponent: list[str] = typer.Option([], "--opponent", help="Who sits opposite; repeat for several in turn."),
    split: str = typer.Option("", "--split", help="The scenarios to train on (default train).", show_default=False),
    seed: int | None = Seed,
    engine: str = typer.Option("", "--engine", help="Where local models run (default embedded).", show_default=False),
    nproc: int = Nproc,
    nnodes: int = Nnodes,
    node_rank: int = NodeRank,
    rdzv_endpoint: str = Endpoint,
    sets: list[str] = Sets,
    run: Path | None = RunDir,
    resume: bool = Resume,
    clean: bool = Clean,
    dry_run: bool = DryRun,
    json: bool = Json,
) -> None:
    """Improve a policy by playing: PPO with a critic. With --partner two policies, which play each other.

    \b
    Example: socialrl train ppo quickstart --model runs/warm/checkpoints/step-200 --set steps=20 --run runs/ppo
    Example: socialrl train ppo quickstart --model run:runs/warm --partner run:runs/warm --run runs/two
    Example: socialrl train ppo --run runs/ppo --resume
    """
    from socialrl_cli.engines.config import engine_sets
    from socialrl_cli.launch import as_list, launch
    from socialrl_cli.trainers import Trainers
    from socialrl_cli.training import PpoRun, check_ppo, run_ppo

    trainers = Trainers(nproc, nnodes, node_rank, rdzv_endpoint)
    given = [f"model.actor={model}"] if model else []
    given += [f"partner.actor={partner}"] if partner else []
    given += [f"games.opponents={as_list(opponent)}"] if opponent else []
    given += [f"games.split={split}"] if split else []
    given += engine_sets(engine)
    given += [f"seed={seed}", f"ppo.seed={seed}", f"model.seed={seed}"] if seed is not None else []
    launch(
        PpoRun, run_ppo, recipe=recipe, sets=[*given, *sets], run=run, default="ppo", table="ppo",
        check=partial(check_ppo, trainers=trainers), trainers=trainers,
        resume=resume, clean=clean, dry_run=dry_run, as_json=json, show=_show,
    )  # fmt: skip


def _show(console: Any, document: dict[str, Any]) -> None:
    from socialrl_cli.report.tables import figures_table

    figures = {name: value for name, value in document.items() if name != "metrics"}
    console.print(figures_table(figures, title="trained"))
    console.print(figures_table(document["metrics"], title="last step"))
