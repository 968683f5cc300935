"""`socialrl replay`: one episode of a run, as a conversation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def replay(
    run: Annotated[Path, typer.Argument(help="The run's directory.")],
    episode: Annotated[str, typer.Argument(help="The episode's id, or its beginning.")],
    seat: Annotated[str | None, typer.Option(help="Show only what this seat saw.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the events as one JSON document.")] = False,
) -> None:
    """Show an episode of a run as a conversation.

    The logged answers are played again under the present rules; a warning says so when the result differs.

    \b
    Example: socialrl replay runs/rollout episode-0-000017 --seat a
    """
    import asyncio
    import sys

    from envs.replay import find, transcript
    from envs.replay import replay as play_again
    from socialrl_cli.output import emit, warn

    log = find(run, episode)
    text = transcript(log, seat)  # refuses an unknown seat
    for difference in asyncio.run(play_again(log)):
        warn(difference)
    if not as_json:
        sys.stdout.write(text + "\n")
        return
    told = [event._asdict() for event in log.told(seat)]
    document = {
        "episode_id": log.episode_id,
        "env": log.env,
        "scenario_id": log.scenario.get("id"),
        "seat": seat,
        "agents": dict(log.agents),
        "events": [{key: row[key] for key in row if key not in ("actions", "deadline")} for row in told],
        "outcome": log.outcome if seat is None else {**log.outcome, "seats": {seat: log.outcome["seats"][seat]}},
    }
    emit(document, as_json=True)
