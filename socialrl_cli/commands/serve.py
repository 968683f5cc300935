"""`socialrl serve`: episodes over HTTP, for participants that are programs elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from socialrl_cli.hosting import ServeConfig


def serve(
    run: Path = typer.Option(Path("runs/serve"), "--run", metavar="DIR", help="Where the episodes are recorded."),
    port: int | None = typer.Option(
        None, "--port", help="The port to listen at; 0: any (default 8300).", min=0, max=65535, show_default=False
    ),
    host: str = typer.Option("", "--host", help="The address to listen at; not loopback needs a token."),
    token: str = typer.Option(
        "", "--token", envvar="SOCIALRL_SERVE_TOKEN", help="What opening an episode takes, as the bearer token."
    ),
    participant: list[str] = typer.Option(
        [], "--participant", help="Who may be seated beside scripted: and remote; opened at the start; repeat."
    ),
    max_open: int | None = typer.Option(
        None, "--max-open", help="Episodes at a time (default 64).", min=1, show_default=False
    ),
    sets: list[str] = typer.Option(
        [], "--set", help="Any other key: --set limits.decide_timeout_s=60.", metavar="KEY=VALUE"
    ),
    resume: bool = typer.Option(False, "--resume", help="Go on recording into DIR."),
    clean: bool = typer.Option(False, "--clean", help="Start DIR over."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the resolved configuration and stop."),
    json: bool = typer.Option(False, "--json", help="Print one JSON document and nothing else."),
) -> None:
    """Play episodes over HTTP: remote programs take seats, each with its own secret.

    The API is described at /openapi.json. Ctrl-C aborts what is open, records it and ends the server.

    \b
    Example: socialrl serve --port 8300 --run runs/serve
    """
    import asyncio

    from socialrl_cli.config import load
    from socialrl_cli.hosting import ServeConfig, check
    from socialrl_cli.launch import as_list
    from socialrl_cli.toml_writer import dump

    plain = {"port": port, "host": host, "max_open": max_open}
    given = [f"{key}={value}" for key, value in plain.items() if value not in ("", None)]
    given += [f"participants={as_list(participant)}"] if participant else []
    config = load(ServeConfig, None, [*given, *sets])
    if dry_run:
        print(dump(config), end="")
        return
    check(config, token)
    asyncio.run(_serve(config, run, token, resume=resume, clean=clean, as_json=json))


async def _serve(config: ServeConfig, path: Path, token: str, *, resume: bool, clean: bool, as_json: bool) -> None:
    """Serve until a signal, or until recording fails."""

    from socialrl_cli.cast import Cast
    from socialrl_cli.episode_server import EpisodeServer
    from socialrl_cli.hosting import Host
    from socialrl_cli.interrupt import any_of, stop_asked
    from socialrl_cli.output import emit
    from socialrl_cli.runs import Run
    from socialrl_cli.serving import Listener
    from socialrl_cli.store import Store
    from socialrl_cli.toml_writer import dump

    with Run.open(path, dump(config), resume=resume, clean=clean) as opened:
        stop = stop_asked()
        async with Cast(path / "calls", engine=config.engine, override=config.harness.given()) as cast:
            cast.prepare(config.participants)
            with Store(path, rows=bool(config.participants)) as store:
                host = Host(config, cast, store)
                listener = Listener(config.host, config.port)
                await listener.start(EpisodeServer(host, token or None).app)
                try:
                    shown = {"url": listener.url, "openapi": f"{listener.url}/openapi.json", "run": str(path)}
                    emit(shown, as_json=as_json, show=lambda console: console.print(listener.url, soft_wrap=True))
                    await any_of(stop, host.failed)
                finally:
                    await host.close()
                    await listener.stop()
                if host.failure is not None:
                    raise host.failure
                opened.say(f"{len(store.finished)} episodes in {path}")
