"""An engine elsewhere: any server that speaks OpenAI's chat completions, over HTTP.

With `tokens` the server is taken for one that returns token ids and log-probabilities (vLLM); then requests ask for
them. `Upstream` is the HTTP half, for whoever asks a server: each call has one deadline for all its tries; connections
that break and answers of 429, 502, 503 and 504 are tried again a few times, anything else is the server's answer.
Failures are EngineError; `ServerRefused` keeps the status, so that a proxy can pass it on. Left out: scoring and
publishing; streaming.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import orjson

from scenarios.errors import EngineError, ModelError, UsageError
from socialrl_cli.engines.base import Capabilities, Scored
from socialrl_cli.engines.http11 import Client

TIMEOUT_S = 600.0
TRIES = 4
PAUSE_S = 0.25  # before the second try; doubles
AGAIN = frozenset((429, 502, 503, 504))
EXCERPT = 300  # characters of an answer that an error shows


class ServerRefused(EngineError):
    """The server answered with an error. `status` is HTTP's, `kind` OpenAI's error type where it gave one."""

    def __init__(self, message: str, status: int, kind: str | None = None) -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


class NoAnswer(EngineError):
    """The server could not be reached, broke off, or did not answer in time (`status` 502 or 504)."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Answer(dict):
    """A parsed answer that remembers its JSON text in `raw`, for who passes it on unchanged."""

    __slots__ = ("raw",)

    def __init__(self, parsed: dict[str, Any], raw: bytes) -> None:
        super().__init__(parsed)
        self.raw = raw


class Upstream:
    """One server: requests with a deadline, tried again where that is right. `base_url` has no slash at its end."""

    def __init__(self, base_url: str, api_key: str | None = None, *, timeout_s: float, tries: int = TRIES) -> None:
        self.base_url, self.timeout_s, self.tries = base_url, timeout_s, tries
        key = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            self._http = Client(base_url, {"Content-Type": "application/json", **key})
        except ValueError as error:
            raise UsageError(f"{base_url}: {error}") from error

    async def ask(self, method: str, path: str, data: bytes = b"", *, timeout_s: float | None = None) -> bytes:
        """The body of a 200. Raises NoAnswer, ServerRefused and EngineError."""
        limit = timeout_s or self.timeout_s
        try:
            async with asyncio.timeout(limit):
                return await self._tries(method, path, data)
        except TimeoutError as error:
            raise NoAnswer(f"{self.base_url}: no answer within {limit:g} s", 504) from error

    async def post(self, path: str, body: Mapping[str, Any], *, timeout_s: float | None = None) -> bytes:
        return await self.ask("POST", path, orjson.dumps(body), timeout_s=timeout_s)

    def close(self) -> None:
        self._http.close()

    async def _tries(self, method: str, path: str, data: bytes) -> bytes:
        for number in range(1, self.tries + 1):
            try:
                status, answer = await self._http.ask(method, path, data)
                if status == 200:
                    return answer
                if status not in AGAIN or number == self.tries:
                    raise _refused(self.base_url, status, answer)
            except ValueError as error:
                raise EngineError(f"{self.base_url}: its answer is not HTTP ({error})") from error
            except OSError as error:
                if number == self.tries:
                    reason = str(error) or type(error).__name__
                    raise NoAnswer(f"{self.base_url}: cannot be reached ({reason}); is the server up?", 502) from error
            await asyncio.sleep(PAUSE_S * 2 ** (number - 1))
        raise AssertionError("unreachable")


class RemoteEngine:
    """`model` replaces the model's name in every request; "" leaves it to the caller. `base_url` ends in /v1."""

    def __init__(
        self,
        base_url: str,
        model: str = "",
        api_key: str | None = None,
        *,
        tokens: bool = False,
        timeout_s: float = TIMEOUT_S,
        tries: int = TRIES,
        tokenizer: Any = None,
        policy_version: int = 0,
    ) -> None:
        self.base_url = checked_url(base_url)
        self.tokenizer = tokenizer
        self.policy_version = policy_version
        self.capabilities = Capabilities(
            token_ids=tokens,
            logprobs=tokens,
            scoring=False,
            publishing=False,
            adapters=False,
            grammars=True,
            token_input=False,
        )
        self._model = model
        self._server = Upstream(self.base_url, api_key, timeout_s=timeout_s, tries=tries)

    @property
    def model(self) -> str:
        return self._model or self.base_url

    async def chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        body = dict(request)
        if self._model:
            body["model"] = self._model
        if body.get("logprobs") == "tokens":
            body["logprobs"] = True
        data = await self._server.post("/chat/completions", body)
        return Answer(parsed(data, self.base_url), data)

    async def models(self) -> list[str]:
        """The names of the models that the server offers."""
        data = await self._server.ask("GET", "/models")
        try:
            return [entry["id"] for entry in orjson.loads(data)["data"]]
        except (ValueError, KeyError, TypeError) as error:
            raise EngineError(f"{self.base_url}: its list of models is not one: {_excerpt(data)}") from error

    async def score(self, token_ids: Sequence[int], top_k: int = 0) -> Scored:
        raise ModelError(f"{self.base_url}: this engine cannot score tokens")

    async def publish(self, version: int, weights: Mapping[str, Any] | None = None) -> None:
        raise ModelError(f"{self.base_url}: the weights of a server elsewhere cannot be changed")

    async def close(self) -> None:
        self._server.close()


def parsed(data: bytes, base_url: str) -> dict[str, Any]:
    """The JSON object of an answer. Raises EngineError."""
    try:
        answer = orjson.loads(data)
    except ValueError as error:
        raise EngineError(f"{base_url}: its answer is not JSON: {_excerpt(data)}") from error
    if not isinstance(answer, dict):
        raise EngineError(f"{base_url}: its answer is not an object: {_excerpt(data)}")
    return answer


def checked_url(url: str) -> str:
    """The base URL without a slash at its end, and with /v1 when it has no path."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not (url.isascii() and url.isprintable()):
        raise UsageError(f"{url!r} is not a base URL; expected something like http://127.0.0.1:8000/v1")
    url = url.rstrip("/")
    return url if parts.path.strip("/") else url + "/v1"


def _refused(base_url: str, status: int, answer: bytes) -> ServerRefused:
    message, kind = _excerpt(answer), None
    try:
        error = orjson.loads(answer)
        error = error.get("error", error)
        message, kind = error.get("message") or message, error.get("type")
    except (ValueError, AttributeError):
        pass
    return ServerRefused(f"{base_url}: HTTP {status}: {message}", status, kind if isinstance(kind, str) else None)


def _excerpt(data: bytes) -> str:
    return " ".join(data[:EXCERPT].decode(errors="replace").split())
