"""`socialrl quickstart`: build, warm-start, improve and evaluate a small model in one go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from socialrl_cli.quickstart import Quickstart


def quickstart(
    seed: int | None = typer.Option(None, "--seed", help="Another seed, in a folder of its own.", show_default=False),
    run: Path | None = typer.Option(None, "--run", help="The folder (default runs/quickstart, with a seed -SEED)."),
    show: bool = typer.Option(False, "--show", help="Show the finished result and do nothing else."),
    json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> None:
    """Build a small model, warm-start it, improve it by playing, and show that it got better.

    Called again it goes on where it was interrupted, or shows the finished result.

    \b
    Example: socialrl quickstart --seed 1
    """
    from socialrl_cli.output import emit
    from socialrl_cli.quickstart import Quickstart

    folder = run or Path("runs") / ("quickstart" if seed is None else f"quickstart-{seed}")
    work = Quickstart.at(folder, 0 if seed is None else seed, begun=show)
    document = work.result() if show else work.go()
    emit(document, as_json=json, show=lambda console: _show(console, document, work))


def _show(console: Any, document: dict[str, Any], work: Quickstart) -> None:
    from socialrl_cli.report.tables import curve, difference_line, opponent_table, score_table

    held_out = document["held_out_opponent"]
    rows = {"trained": document["trained"], "warm start": document["warm_start"], **document["scripted"]}
    console.print(score_table(rows, title="100 held-out scenarios × 4 opponents, both seats", star="trained"))
    console.print(
        opponent_table(rows, title=f"by opponent († {held_out} was held out of training)", marks={held_out: "†"})
    )
    console.print(difference_line(document["difference"], a="warm start", b="trained"))
    console.print(difference_line(document["difference_held_out"], a="warm start", b="trained, held-out opponent only"))
    taught = document["demonstrators"]
    console.print(
        f"mean of the policies that demonstrated: {taught['mean']:.3f} (held-out {taught['mean_held_out']:.3f})"
    )
    console.print(curve(document["curve"], title="mean reward of the training games"), markup=False)
    for name, title in (
        ("typical_before", "a typical game before training"),
        ("same_after", "the same scenario after"),
        ("worst_after", "the worst game after"),
    ):
        console.rule(title)
        console.print(work.transcript(document["transcripts"][name]), markup=False)
    console.rule("time")
    console.print(", ".join(f"{name} {seconds:.0f} s" for name, seconds in document["seconds"].items()))
    console.print(f"everything is in {work.run}", markup=False)
