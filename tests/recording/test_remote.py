"""An engine elsewhere: bounded retries, deadlines, and the server's own words in the error."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from aiohttp import web

from scenarios.errors import EngineError, ModelError, UsageError
from socialrl_cli.engines import remote
from socialrl_cli.engines.remote import NoAnswer, RemoteEngine, ServerRefused, checked_url

ANSWER = {"id": "x", "choices": [{"message": {"role": "assistant", "content": "deal"}}]}
ASK = {"model": "policy", "messages": [{"role": "user", "content": "q"}]}


@asynccontextmanager
async def server(*answers: Any) -> AsyncIterator[tuple[str, list[dict]]]:
    """A server that gives these answers in turn (status, body), the last one for ever; and what it was asked."""
    asked: list[dict] = []

    async def chat(request: web.Request) -> web.StreamResponse:
        asked.append({"headers": request.headers, **orjson.loads(await request.read())})
        status, body = answers[min(len(asked), len(answers)) - 1]
        if status == 0:
            assert request.transport is not None
            request.transport.close()
        if status < 0:
            await asyncio.sleep(-status)
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        return web.Response(status=status if status > 0 else 200, body=data, content_type="application/json")

    async def models(_: web.Request) -> web.Response:
        return web.Response(body=orjson.dumps({"data": [{"id": "a"}, {"id": "b"}]}))

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1", asked
    await runner.cleanup()


@asynccontextmanager
async def engine(url: str, **options: Any) -> AsyncIterator[RemoteEngine]:
    made = RemoteEngine(url, **options)
    yield made
    await made.close()


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PAUSE_S", 0.01)


async def test_the_answer_comes_back_with_its_text() -> None:
    async with server((200, ANSWER)) as (url, asked), engine(url, model="big", api_key="key", tokens=True) as e:
        answer = await e.chat({**ASK, "logprobs": "tokens"})
        assert answer == ANSWER
        assert orjson.loads(answer.raw) == ANSWER  # type: ignore[attr-defined]
        assert asked[0]["model"] == "big"
        assert asked[0]["logprobs"] is True  # "tokens" is ours alone
        assert asked[0]["headers"]["Authorization"] == "Bearer key"
        assert await e.models() == ["a", "b"]
        assert e.capabilities.token_ids


async def test_the_callers_model_stays_where_none_is_set() -> None:
    async with server((200, ANSWER)) as (url, asked), engine(url) as e:
        await e.chat(ASK)
        assert asked[0]["model"] == "policy"


@pytest.mark.parametrize("trouble", [503, 429, 502, 504, 0])
async def test_passing_trouble_is_tried_again(trouble: int) -> None:
    async with server((trouble, {}), (trouble, {}), (200, ANSWER)) as (url, asked), engine(url) as e:
        assert await e.chat(ASK) == ANSWER
        assert len(asked) == 3


async def test_tries_are_bounded() -> None:
    async with server((503, {"error": {"message": "warming up", "type": "busy"}})) as (url, asked), engine(url) as e:
        with pytest.raises(ServerRefused, match="HTTP 503: warming up") as refused:
            await e.chat(ASK)
        assert (refused.value.status, refused.value.kind) == (503, "busy")
        assert len(asked) == remote.TRIES


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "context too long", "type": "BadRequestError"}}, "HTTP 400: context too long"),
        ({"message": "context too long"}, "HTTP 400: context too long"),
        (b"<html>bad gateway</html>", "HTTP 400: <html>bad gateway</html>"),
        (b"[]", r"HTTP 400: \[\]"),
    ],
)
async def test_a_refusal_is_the_servers_answer_in_its_words(body: Any, message: str) -> None:
    async with server((400, body)) as (url, asked), engine(url) as e:
        with pytest.raises(ServerRefused, match=message) as refused:
            await e.chat(ASK)
        assert refused.value.status == 400
        assert len(asked) == 1


async def test_a_call_has_one_deadline() -> None:
    async with server((-5, ANSWER)) as (url, _), engine(url, timeout_s=0.1) as e:
        started = time.monotonic()
        with pytest.raises(NoAnswer, match=r"no answer within 0\.1 s") as late:
            await e.chat(ASK)
        assert late.value.status == 504
        assert time.monotonic() - started < 2


async def test_a_server_that_is_not_there_is_named() -> None:
    async with engine("http://127.0.0.1:9/v1") as e:
        with pytest.raises(NoAnswer, match=r"http://127\.0\.0\.1:9/v1: cannot be reached.*is the server up") as gone:
            await e.chat(ASK)
        assert gone.value.status == 502


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1, 2]", b'{"id": "x"'])
async def test_an_answer_that_is_no_json_object_is_an_error(body: bytes) -> None:
    async with server((200, body)) as (url, _), engine(url) as e:
        with pytest.raises(EngineError, match="its answer is not"):
            await e.chat(ASK)


async def test_what_it_cannot_do_it_says() -> None:
    async with engine("http://127.0.0.1:9") as e:
        for attempt in (e.score([1, 2]), e.publish(1)):
            with pytest.raises(ModelError):
                await attempt


@pytest.mark.parametrize(
    ("url", "checked"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1"),
        ("https://host/v1/", "https://host/v1"),
        ("https://host/openai", "https://host/openai"),
    ],
)
def test_base_urls_end_in_v1(url: str, checked: str) -> None:
    assert checked_url(url) == checked


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host/v1", "http://", "host"])
def test_what_is_no_base_url_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="not a base URL"):
        checked_url(url)
