"""Episodes over HTTP: `hosting.Host` behind an aiohttp application. The routes are described by `openapi.py`.

    POST   /v1/episodes                               open one (the admin's token, where there is one)
    GET    /v1/episodes/{episode}                     how it stands, and all of its outcome (the episode's secret)
    DELETE /v1/episodes/{episode}                     abort it (the episode's secret)
    GET    /v1/episodes/{episode}/seats/{seat}/events?cursor=0&wait_s=20      (this and the next: the seat's secret)
    POST   /v1/episodes/{episode}/seats/{seat}/actions
    GET    /v1/episodes/{episode}/seats/{seat}/outcome
    GET    /openapi.json, /health                     open to all

Secrets and the token are bearer tokens. What is wrong with a request is an error of one line (`serving.problem`); what
becomes of an action is an answer, never an error. A body is a JSON object, sent as application/json: a page in
somebody's browser cannot send that to another address unasked.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import math
import re
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from envs.answers import described
from scenarios import jsonfile
from scenarios.errors import DataError, SocialRLError, UsageError
from scenarios.jsonfile import shown
from socialrl_cli.hosting import Full, Host, Hosted
from socialrl_cli.openapi import document
from socialrl_cli.output import plain
from socialrl_cli.serving import JSON, problem

BODY_BYTES = 256 * 1024
BODY_S = 30.0  # for a body to arrive
LONGEST_WAIT_S = 60.0
WHOLE = re.compile(r"\d{1,9}")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class EpisodeServer:
    """The application over one host; `token` is what opening an episode takes (None: nothing)."""

    def __init__(self, host: Host, token: str | None = None) -> None:
        self.host, self._token = host, token
        self.app = web.Application(client_max_size=BODY_BYTES, middlewares=[answered])
        episode, seat = "/v1/episodes/{episode}", "/v1/episodes/{episode}/seats/{seat}"
        routes: tuple[tuple[str, str, Handler], ...] = (
            ("POST", "/v1/episodes", self.create),
            ("GET", episode, self.show),
            ("DELETE", episode, self.abort),
            ("GET", seat + "/events", self.events),
            ("POST", seat + "/actions", self.act),
            ("GET", seat + "/outcome", self.outcome),
            ("GET", "/openapi.json", self.describe),
            ("GET", "/health", self.health),
        )
        for method, path, handler in routes:
            self.app.router.add_route(method, path, handler)

    async def create(self, request: web.Request) -> web.Response:
        if self._token is not None and not hmac.compare_digest(bearer(request).encode(), self._token.encode()):
            raise unauthorised("opening an episode takes the server's token")
        hosted = self.host.create(await body_of(request), request.headers.get("Idempotency-Key"))
        return _json({**_state(hosted), "secret": hosted.secret, "secrets": hosted.secrets}, status=201)

    async def show(self, request: web.Request) -> web.Response:
        return _json(_state(self._episode(request)))

    async def abort(self, request: web.Request) -> web.Response:
        hosted = self._episode(request)
        if hosted.table.env.outcome is None:
            hosted.table.env.abort("ended by whoever opened it")
        await _recorded(hosted)
        return _json(_state(hosted))

    async def events(self, request: web.Request) -> web.Response:
        hosted, seat = self._seat(request)
        cursor, wait_s = _whole(request, "cursor"), _seconds(request, "wait_s")
        return _json(await hosted.ports[seat].events(cursor, wait_s))

    async def act(self, request: web.Request) -> web.Response:
        hosted, seat = self._seat(request)
        return _json(hosted.ports[seat].act(await body_of(request)))

    async def outcome(self, request: web.Request) -> web.Response:
        hosted, seat = self._seat(request)
        found = hosted.ports[seat].outcome()
        if found is None:
            return problem(409, "the episode has not ended", code="not_ended")
        await _recorded(hosted)
        return _json(found)

    async def describe(self, request: web.Request) -> web.Response:
        return _json(document())

    async def health(self, request: web.Request) -> web.Response:
        failed = self.host.failure is not None
        return _json({"open": len(self.host.open), "recording": not failed}, status=500 if failed else 200)

    def _found(self, request: web.Request) -> Hosted:
        name = request.match_info["episode"]
        hosted = self.host.find(name)
        if hosted is not None:
            return hosted
        if name in self.host.store.finished:
            raise Wrong(410, f"episode {name} has ended and is not kept here any more; the run directory holds it")
        raise Wrong(404, f"no episode {shown(name)} here")

    def _episode(self, request: web.Request) -> Hosted:
        hosted = self._found(request)
        if not hosted.opens(bearer(request)):
            raise unauthorised("this takes the episode's secret")
        return hosted

    def _seat(self, request: web.Request) -> tuple[Hosted, str]:
        hosted, seat = self._found(request), request.match_info["seat"]
        if seat not in hosted.ports:
            raise Wrong(404, f"{shown(seat)} is no remote seat of this episode; {', '.join(hosted.ports) or 'none'} is")
        if not hosted.opens(bearer(request), seat):
            raise unauthorised(f"this takes the secret of seat {seat}")
        return hosted, seat


class Wrong(SocialRLError):
    """A request that is answered with an HTTP status of its own."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers


def unauthorised(message: str) -> Wrong:
    return Wrong(401, f"{message}, as the bearer token", **{"WWW-Authenticate": "Bearer"})


@web.middleware
async def answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors as JSON of one line."""
    try:
        return await handler(request)
    except Wrong as error:
        return problem(error.status, str(error), headers=error.headers)
    except Full as error:
        return problem(429, str(error), kind="full", headers={"Retry-After": "10"})
    except (UsageError, DataError) as error:
        return problem(400, str(error))
    except RecursionError:  # a nest that could be read and no more
        return problem(400, "the body is nested too deeply")
    except web.HTTPException as error:  # aiohttp's own: no such route or method, a body that is too large
        allowed = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        said = f"{request.method} {request.path}: {error.reason}"
        return problem(error.status, said, code=error.reason, headers=allowed)
    except Exception as error:
        traceback.print_exception(error)
        return problem(500, f"a fault of the server: {described(error)}", kind="server_error")


def bearer(request: web.Request) -> str:
    """The bearer token that a request carries; "" when it carries none."""
    kind, _, given = request.headers.get("Authorization", "").partition(" ")
    return given.strip() if kind.lower() == "bearer" else ""


async def body_of(request: web.Request) -> Any:
    """The JSON of a request. Raises Wrong, DataError."""
    if request.content_type != JSON:
        raise Wrong(415, f"the content type is {request.content_type}, expected {JSON}")
    try:
        async with asyncio.timeout(BODY_S):
            text = (await request.read()).decode("utf-8")
        return jsonfile.loads(text)
    except TimeoutError:
        raise Wrong(408, f"the body did not arrive within {BODY_S:g} s") from None
    except UnicodeDecodeError as error:
        raise DataError(f"the body is not UTF-8 (byte {error.start + 1})") from None
    except ValueError as error:
        raise DataError(f"the body is {error}" if str(error).startswith("not ") else f"the body: {error}") from None


def _whole(request: web.Request, name: str) -> int:
    text = request.query.get(name, "0")
    if not WHOLE.fullmatch(text):
        raise DataError(f"{name} is {shown(text)}, expected a whole number")
    return int(text)


def _seconds(request: web.Request, name: str) -> float:
    text = request.query.get(name, "0")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= LONGEST_WAIT_S:
        raise DataError(f"{name} is {shown(text)}, expected seconds from 0 to {LONGEST_WAIT_S:g}")
    return seconds


async def _recorded(hosted: Hosted) -> None:
    """Wait until an episode that has ended is in the run directory."""
    if hosted.task is not None:
        await asyncio.wait([hosted.task])


def _state(hosted: Hosted) -> dict[str, Any]:
    """An episode as whoever opened it may see it."""
    env, game = hosted.table.env, hosted.table.game
    return {
        "episode_id": game.episode_id,
        "env": game.scenario.env,
        "scenario_id": game.scenario.id,
        "seed": game.seed,
        "seats": {seat: game.who(seat) for seat in env.seats},
        "ended": env.outcome is not None,
        "outcome": None if env.outcome is None else env.outcome.to_json(),
    }


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(status=status, body=json.dumps(plain(value), ensure_ascii=False).encode(), content_type=JSON)
