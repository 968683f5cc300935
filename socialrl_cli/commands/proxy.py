"""`socialrl proxy`: the recorder alone, in front of a server elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from socialrl_cli.runs import Run


def proxy(
    upstream: Annotated[str, typer.Option("--upstream", metavar="URL", help="The server's base URL, ending in /v1.")],
    run: Annotated[Path, typer.Option("--run", metavar="DIR", help="Where the record goes (DIR/calls).")] = Path(
        "runs/proxy"
    ),
    port: Annotated[int, typer.Option("--port", help="The port to listen at; 0 lets the system choose.")] = 8200,
    host: Annotated[str, typer.Option("--host", help="The address to listen at; not loopback needs a token.")] = (
        "127.0.0.1"
    ),
    mode: Annotated[
        str, typer.Option("--mode", help="rl: exact tokens, whole distribution; distill: any server, any sampling.")
    ] = "rl",
    model: Annotated[str, typer.Option("--model", help="The model's name upstream, whatever the client says.")] = "",
    timeout_s: Annotated[float, typer.Option("--timeout-s", help="The deadline of one call, in seconds.")] = 600.0,
    token: Annotated[
        str, typer.Option("--token", envvar="SOCIALRL_PROXY_TOKEN", help="What clients must give as their API key.")
    ] = "",
    upstream_key: Annotated[
        str, typer.Option("--upstream-key", envvar="SOCIALRL_UPSTREAM_KEY", help="The API key for the server upstream.")
    ] = "",
    resume: Annotated[bool, typer.Option("--resume", help="Go on recording into DIR.")] = False,
    clean: Annotated[bool, typer.Option("--clean", help="Start DIR over.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Record every model call of any OpenAI client: one base URL a session.

    Point a client at http://HOST:PORT/s/SESSION/v1, with any session name; a session begins with its first call.
    Ctrl-C stops it.

    \b
    Example: socialrl proxy --upstream http://127.0.0.1:8000/v1 --port 8200 --run runs/recorded
    """
    import asyncio

    from scenarios.errors import UsageError
    from socialrl_cli.runs import Run
    from socialrl_cli.toml_writer import dump

    if mode not in ("rl", "distill"):
        raise UsageError(f"--mode {mode}: expected rl or distill")
    if timeout_s <= 0:
        raise UsageError(f"--timeout-s {timeout_s:g}: expected a positive number")
    settings = {"upstream": upstream, "host": host, "port": port, "mode": mode, "model": model, "timeout_s": timeout_s}
    asyncio.run(
        _serve(
            run / "calls",
            settings,
            token,
            upstream_key,
            json,
            lambda: Run.open(run, dump(settings), resume=resume, clean=clean),
        )
    )


async def _serve(
    calls: Path, settings: dict, token: str, upstream_key: str, as_json: bool, open_run: Callable[[], Run]
) -> None:
    """Serve until a signal, or until recording fails. The run is opened last: a wrong option leaves no folder."""
    import asyncio
    from dataclasses import asdict

    from scenarios.errors import EngineError
    from socialrl_cli.engines.remote import RemoteEngine
    from socialrl_cli.interrupt import any_of, stop_asked
    from socialrl_cli.output import emit, warn
    from socialrl_cli.proxy import Proxy
    from socialrl_cli.recorder import Recorder

    engine = RemoteEngine(
        settings["upstream"],
        settings["model"],
        upstream_key or None,
        tokens=settings["mode"] == "rl",
        timeout_s=settings["timeout_s"],
    )
    recorder = Recorder(engine, calls, mode=settings["mode"], keep=False)
    server = Proxy(recorder, settings["host"], settings["port"], token or None)
    stop = stop_asked()
    try:
        await server.start()
        run = open_run()  # before the first request is looked at: nothing was awaited since
        try:
            base = f"{server.url}/s/SESSION/v1"
            document = {"base_url": base, "upstream": engine.base_url, "calls": str(calls)}
            emit(document, as_json=as_json, show=lambda console: console.print(base, soft_wrap=True))
            try:
                async with asyncio.timeout(5):
                    await engine.models()
            except (EngineError, TimeoutError) as error:
                warn(f"{engine.base_url} does not answer yet ({error or 'no answer within 5 s'})")
            await any_of(stop, server.failed)
            await server.stop()
            counts = [f"{number} {name}" for name, number in asdict(recorder.counters).items() if number]
            run.say(f"recorded {', '.join(counts) or 'nothing'}")
        finally:
            recorder.close()
            run.close()
    finally:
        await server.stop()
        await engine.close()
    if recorder.failure is not None:
        raise recorder.failure
