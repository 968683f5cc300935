"""`socialrl play`: a person takes a seat."""

from __future__ import annotations

from pathlib import Path

import typer


def play(
    env: str = typer.Option("dnd", "--env", help="The environment."),
    opponent: str = typer.Option(
        "", "--opponent", help="Who takes all other seats (default: the first of the usual scripted)."
    ),
    scenario: str = typer.Option("", "--scenario", help="A scenario file, or the id of a packaged scenario."),
    split: str = typer.Option("test", "--split", help="train, val, test or a scenario file."),
    index: int | None = typer.Option(
        None, "--index", help="Which one of them, from 0 (default: drawn from the seed).", show_default=False
    ),
    seat: str = typer.Option("", "--seat", help="Your seat (default: the one that is evaluated)."),
    seed: int | None = typer.Option(
        None, "--seed", help="The episode's seed (default: drawn, and shown).", show_default=False
    ),
    sets: list[str] = typer.Option([], "--set", help="Limits: --set limits.moves_per_seat=5.", metavar="KEY=VALUE"),
    run: Path = typer.Option(Path("runs/play"), "--run", help="Where the game is kept, beside earlier ones."),
    json: bool = typer.Option(False, "--json", help="Print the end as one JSON document; the talk goes to stderr."),
) -> None:
    """Take a seat yourself, in the terminal or by lines on standard input.

    Ctrl-C ends the game; it is kept as aborted.

    \b
    Example: socialrl play --env dnd --opponent scripted:boulware
    """
    from socialrl_cli import rundir
    from socialrl_cli.config import load
    from socialrl_cli.output import emit
    from socialrl_cli.playing import SittingConfig, play_game, report, show, the_game
    from socialrl_cli.runs import Run
    from socialrl_cli.terminal import Terminal
    from socialrl_cli.toml_writer import dump

    config = load(SittingConfig, None, sets)
    game = the_game(
        env=env, opponent=opponent, seat=seat, seed=seed, scenario=scenario, split=split, index=index
    )  # fmt: skip
    asker = Terminal(stderr=json)
    with Run.open(run, dump(config), resume=rundir.is_run(run)):
        head = (
            f"{env}: you are {game.seat}, opposite sits {game.opponent}; scenario {game.scenario.id}, seed {game.seed}"
        )
        asker.show(head, "hint")
        document = report(play_game(game, config, run, asker), run)
    emit(document, as_json=json, show=lambda console: show(console, document))
