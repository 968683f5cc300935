"""What our servers share: where they may listen, how they start and stop, and the shape of an error.

An error is `{"error": {"message", "type", "param", "code"}}`, as OpenAI's clients expect it and others can read it.
"""

from __future__ import annotations

import errno
import ipaddress
from collections.abc import Mapping

import orjson
from aiohttp import web

from scenarios.errors import RunError, UsageError

DRAIN_S = 10.0  # for answers under way when a server stops
JSON = "application/json"


class Listener:
    """An address that is listened at. `port` 0 lets the system choose; `url` is right after `start`."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self._runner: web.BaseRunner | None = None

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def start(self, app: web.Server | web.Application) -> None:
        """Listen. Raises RunError that names the port."""
        runner: web.BaseRunner
        if isinstance(app, web.Application):
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=DRAIN_S)
        else:
            runner = web.ServerRunner(app, shutdown_timeout=DRAIN_S)
        await runner.setup()
        try:
            await web.TCPSite(runner, self.host, self.port).start()
        except OSError as error:
            await runner.cleanup()
            reason = "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror or error
            raise RunError(f"{self.host}:{self.port}: cannot listen ({reason}); choose another --port") from error
        except OverflowError as error:
            await runner.cleanup()
            raise UsageError(f"--port {self.port}: expected 0 to 65535") from error
        self._runner, self.port = runner, runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening; answers under way have DRAIN_S seconds."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


def check_host(host: str, token: str | None) -> None:
    """Raises UsageError for an address that others can reach when there is no token."""
    if not token and not _loopback(host):
        raise UsageError(f"{host}: only loopback addresses are served without a token; set one")


def problem(
    status: int,
    message: str,
    *,
    kind: str = "invalid_request_error",
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    return web.Response(status=status, body=orjson.dumps(body), content_type=JSON, headers=headers)


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
