"""The recorder behind HTTP: an OpenAI-compatible server whose base URL names the session.

    POST /s/<key>/v1/chat/completions   recorded; re-streamed to a client that asked to stream
    GET  /s/<key>/v1/models             what the engine calls its model
    GET  /health                        200 while recording works

Any OpenAI client is recorded by changing its base URL to `session_url(key)`. In front of any engine: a server
elsewhere, or the one inside this process. Errors have OpenAI's shape; a refused request is a 400 with the field in
`param`. A retry (the same `Idempotency-Key`, or the SDK's retry header with the same body) gets the first answer.
Loopback only, unless a token is set, which every request must then carry as its bearer token.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

import orjson
from aiohttp import web

from scenarios.errors import EngineError, ModelError, RunError, SocialRLError, UsageError
from socialrl_cli.engines.remote import RemoteEngine
from socialrl_cli.recorder import Recorder
from socialrl_cli.requests import Refused
from socialrl_cli.serving import JSON, Listener, check_host, problem

BODY_BYTES = 64 * 2**20
ROUTE = re.compile(r"/s/([A-Za-z0-9._~:@-]{1,200})/v1/(chat/completions|models)")
KIND_HEADER = "X-SocialRL-Kind"  # play (default) or probe
KINDS = ("play", "probe")


class Proxy:
    """Serves one recorder. `failed` is set when recording has ended; the caller then stops."""

    def __init__(self, recorder: Recorder, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> None:
        check_host(host, token)
        self.recorder = recorder
        self.failed = asyncio.Event()
        self._token = None if not token else f"Bearer {token}".encode()
        self.listener = Listener(host, port)

    @property
    def url(self) -> str:
        return self.listener.url

    def session_url(self, key: str) -> str:
        """The base URL for a client of this session."""
        if not ROUTE.fullmatch(f"/s/{key}/v1/models"):
            raise ValueError(f"session key, got {key!r}, expected letters, digits and . _ ~ : @ -")
        return f"{self.url}/s/{key}/v1"

    async def start(self) -> Proxy:
        await self.listener.start(web.Server(self._handle, access_log=None, request_factory=_request))
        return self

    async def stop(self) -> None:
        """Stop listening; answers under way are finished."""
        await self.listener.stop()

    async def __aenter__(self) -> Proxy:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._route(request)
        except SocialRLError as error:
            if isinstance(error, RunError):
                self.failed.set()
            return failure(error)
        except web.HTTPException as error:  # aiohttp's own: a body that is too large
            return problem(error.status, error.text or error.reason, code=error.reason)

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._token is not None:
            given = request.headers.get("Authorization", "").encode()
            if not hmac.compare_digest(given, self._token):
                return problem(401, "the bearer token is missing or wrong", code="invalid_api_key")
        found = ROUTE.fullmatch(request.path)
        if found is None:
            if request.path == "/health":
                return web.Response(status=500 if self.recorder.failure else 200)
            return problem(404, f"no route {request.path}; the base URL is {self.url}/s/<session>/v1", code="not_found")
        key, what = found.groups()
        if request.method != ("GET" if what == "models" else "POST"):
            return problem(405, f"{request.method} is not answered at {request.path}", code="method_not_allowed")
        if what == "models":
            engine = self.recorder.engine
            names = await engine.models() if isinstance(engine, RemoteEngine) else [engine.model]
            data = [{"id": name, "object": "model", "created": 0, "owned_by": "socialrl"} for name in names]
            return _json({"object": "list", "data": data})
        return await self._chat(key, request)

    async def _chat(self, key: str, request: web.BaseRequest) -> web.StreamResponse:
        data = await request.read()
        try:
            body = orjson.loads(data)
        except ValueError as error:
            raise Refused("body", f"not JSON: {error}") from error
        if not isinstance(body, dict):
            raise Refused("body", "expected a JSON object")
        headers = request.headers
        kind = headers.get(KIND_HEADER, "play")
        if kind not in KINDS:
            raise Refused(KIND_HEADER, f"expected one of {', '.join(KINDS)}, got {kind!r:.40}")
        retry, first_try = headers.get("Idempotency-Key"), False
        if retry is None and (count := headers.get("x-stainless-retry-count")) is not None:
            retry, first_try = blake2b(data, digest_size=16).hexdigest(), count == "0"
        answer = await self.recorder.chat(key, body, kind=kind, idempotency_key=retry, first_try=first_try)
        if not body.get("stream"):
            return _json(answer)
        options = body.get("stream_options") or {}
        events = b"".join(_event(chunk) for chunk in chunks(answer, usage=bool(options.get("include_usage"))))
        return web.Response(body=events + b"data: [DONE]\n\n", content_type="text/event-stream")


def chunks(answer: Mapping[str, Any], *, usage: bool) -> Iterator[dict[str, Any]]:
    """A whole answer as the chunks of a stream: the role, the message, the finish, the usage when asked for."""
    head = {name: answer[name] for name in ("id", "created", "model", "system_fingerprint") if name in answer}
    head["object"] = "chat.completion.chunk"
    extra: dict[str, Any] = {"usage": None} if usage else {}
    first = {"prompt_token_ids": answer["prompt_token_ids"]} if "prompt_token_ids" in answer else {}

    for choice in answer["choices"]:
        place = {"index": choice.get("index", 0)}
        start = {**place, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        yield {**head, **extra, **first, "choices": [start]}
        message = choice["message"]
        delta = {name: value for name, value in message.items() if name not in ("role", "tool_calls") and value}
        if message.get("tool_calls"):
            delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(message["tool_calls"])]
        body = {**place, "delta": delta, "logprobs": choice.get("logprobs"), "finish_reason": None}
        if "token_ids" in choice:
            body["token_ids"] = choice["token_ids"]
        yield {**head, **extra, "choices": [body]}
        end = {**place, "delta": {}, "logprobs": None, "finish_reason": choice.get("finish_reason")}
        yield {**head, **extra, "choices": [end]}
    if usage:
        yield {**head, "choices": [], "usage": answer.get("usage")}


def failure(error: SocialRLError) -> web.Response:
    """An error in OpenAI's shape."""
    if isinstance(error, Refused):
        return problem(error.status, str(error), param=error.field)
    if isinstance(error, RunError):  # no retry helps
        return problem(500, str(error), kind="recorder_error", headers={"x-should-retry": "false"})
    if isinstance(error, EngineError):
        kind = getattr(error, "kind", None) or "upstream_error"
        return problem(getattr(error, "status", 502), str(error), kind=kind)
    return problem(400 if isinstance(error, (UsageError, ModelError)) else 500, str(error))


def _json(document: Mapping[str, Any]) -> web.Response:
    raw = getattr(document, "raw", None)  # an answer that nothing was taken from
    return web.Response(body=raw or orjson.dumps(document), content_type=JSON)


def _event(chunk: Mapping[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=BODY_BYTES)
