"""The recorder over HTTP: any OpenAI client is recorded by changing its base URL."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from scenarios.errors import EngineError, ModelError, RunError, UsageError
from socialrl_cli.callfiles import read_calls
from socialrl_cli.engines.remote import NoAnswer, RemoteEngine, ServerRefused
from socialrl_cli.proxy import Proxy
from socialrl_cli.recorder import Recorder

MESSAGES = [{"role": "system", "content": "be fair"}, {"role": "user", "content": "hello there"}]
ASK = {"model": "policy", "messages": MESSAGES, "max_tokens": 16}


@asynccontextmanager
async def served(engine: Any, folder: Path, **options: Any) -> AsyncIterator[Proxy]:
    recorder = Recorder(engine, folder)
    async with Proxy(recorder, **options) as proxy:
        yield proxy
    recorder.close()


@asynccontextmanager
async def client(proxy: Proxy, key: str = "k", **options: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    options = {"api_key": "none", "max_retries": 0, **options}
    async with openai.AsyncOpenAI(base_url=proxy.session_url(key), **options) as made:
        yield made


async def post(proxy: Proxy, body: Any, path: str = "/s/k/v1/chat/completions", **headers: str) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    async with aiohttp.ClientSession() as session, session.post(proxy.url + path, data=data, headers=headers) as answer:
        return answer.status, json.loads(await answer.read())


async def test_a_stock_client_is_answered_and_recorded(tmp_path: Path, scripted: Any, reply: Any) -> None:
    async with served(scripted([reply("deal")]), tmp_path) as proxy, client(proxy) as stock:
        answer = await stock.chat.completions.create(**ASK, temperature=0.5)
        assert answer.choices[0].message.content == "deal"
        assert answer.choices[0].logprobs is None
        assert "token_ids" not in (answer.choices[0].model_extra or {})
        (call,) = read_calls(tmp_path)
        assert (call.session, call.reply, call.temperature) == ("k", "deal", 0.5)
        assert call.token_ids.tolist() == reply("deal")[0]
        assert [model.id async for model in stock.models.list()] == ["scripted-engine"]


async def test_a_streaming_client_gets_a_stream(tmp_path: Path, scripted: Any, reply: Any) -> None:
    engine = scripted([reply("two hats please"), reply("two hats please")])
    async with served(engine, tmp_path) as proxy, client(proxy) as stock:
        stream = await stock.chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True})
        chunks = [chunk async for chunk in stream]
        assert chunks[0].choices[0].delta.role == "assistant"
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "two hats please"
        assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
        assert chunks[-1].usage.completion_tokens == len(reply("two hats please")[0])
        assert "stream" not in engine.asked[0]
        plain = await stock.chat.completions.create(**ASK, stream=True, logprobs=True)
        chunks = [chunk async for chunk in plain]
        assert sum(len(c.choices[0].logprobs.content) for c in chunks if c.choices[0].logprobs) > 0
        assert all(c.usage is None for c in chunks)
    assert len(read_calls(tmp_path)) == 2


async def test_streamed_tool_calls_are_numbered(tmp_path: Path, scripted: Any) -> None:
    calls = [{"id": f"t{i}", "type": "function", "function": {"name": "move", "arguments": "{}"}} for i in range(2)]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    choice = {
        "index": 0, "finish_reason": "tool_calls", "message": message,
        "token_ids": [5, 1], "token_logprobs": [-1.0, -2.0],
    }  # fmt: skip
    response = {
        "id": "x", "object": "chat.completion", "created": 1, "model": "m", "prompt_token_ids": [3], "choices": [choice]
    }  # fmt: skip
    async with served(scripted([response]), tmp_path) as proxy, client(proxy) as stock:
        chunks = [chunk async for chunk in await stock.chat.completions.create(**ASK, stream=True)]
    streamed = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    assert [(call.index, call.id, call.function.name) for call in streamed] == [(0, "t0", "move"), (1, "t1", "move")]
    (call,) = read_calls(tmp_path)
    assert call.message["tool_calls"] == calls
    assert call.reply == ""


async def test_a_field_that_bends_the_record_is_a_400_with_its_name(tmp_path: Path, scripted: Any) -> None:
    async with served(scripted([]), tmp_path) as proxy, client(proxy) as stock:
        for fields in ({"top_p": 0.9}, {"n": 2}, {"logit_bias": {"5": 1}}, {"extra_body": {"min_p": 0.1}}):
            with pytest.raises(openai.BadRequestError) as refused:
                await stock.chat.completions.create(**ASK, **fields)
            name = next(iter(fields.get("extra_body", fields)))
            assert refused.value.param == name
            assert name in refused.value.message
    assert read_calls(tmp_path) == []


async def test_a_client_that_gives_up_and_retries_is_recorded_once(tmp_path: Path, scripted: Any, reply: Any) -> None:
    engine = scripted([reply("first"), reply("second")])
    engine.gate = asyncio.Event()
    async with served(engine, tmp_path) as proxy, client(proxy, timeout=0.3, max_retries=3) as stock:
        asyncio.get_running_loop().call_later(0.6, engine.gate.set)
        answer = await stock.chat.completions.create(**ASK)
        assert answer.choices[0].message.content == "first"
        assert len(engine.asked) == 1
        assert len(read_calls(tmp_path)) == 1
        assert proxy.recorder.counters.retries >= 1
        again = await stock.chat.completions.create(**ASK)  # the same body, but no retry
        assert again.choices[0].message.content == "second"
    assert len(read_calls(tmp_path)) == 2


async def test_an_idempotency_key_gives_the_same_answer(tmp_path: Path, scripted: Any, reply: Any) -> None:
    async with served(scripted([reply("first"), reply("second")]), tmp_path) as proxy:
        first = await post(proxy, ASK, Idempotency_Key="x")
        again = await post(proxy, ASK, Idempotency_Key="x")
        other_session = await post(proxy, ASK, "/s/other/v1/chat/completions", Idempotency_Key="x")
        assert first == again
        assert other_session[1]["choices"][0]["message"]["content"] == "second"
        status, problem = await post(proxy, {**ASK, "max_tokens": 1}, Idempotency_Key="x")
        assert status == 422
        assert problem["error"]["param"] == "Idempotency-Key"
    assert len(read_calls(tmp_path)) == 2


async def test_a_client_may_ask_for_the_token_fields(tmp_path: Path, scripted: Any, reply: Any) -> None:
    async with served(scripted([reply("deal")]), tmp_path) as proxy:
        _, answer = await post(proxy, {**ASK, "return_token_ids": True, "logprobs": True})
    assert answer["choices"][0]["token_ids"] == reply("deal")[0]
    assert answer["prompt_token_ids"] == read_calls(tmp_path)[0].prompt_ids.tolist()


async def test_probes_are_marked_by_a_header(tmp_path: Path, scripted: Any, reply: Any) -> None:
    async with served(scripted([reply("deal")]), tmp_path) as proxy:
        assert (await post(proxy, ASK, X_SocialRL_Kind="probe"))[0] == 200
        assert (await post(proxy, ASK, X_SocialRL_Kind="other"))[0] == 400
    assert [call.kind for call in read_calls(tmp_path)] == ["probe"]


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (ServerRefused("too long", 400, "BadRequestError"), 400, "BadRequestError"),
        (ServerRefused("slow down", 429), 429, "upstream_error"),
        (NoAnswer("no answer within 5 s", 504), 504, "upstream_error"),
        (EngineError("the engine died"), 502, "upstream_error"),
        (ModelError("a prompt of 99 tokens leaves no room"), 400, "invalid_request_error"),
        (UsageError("no such field"), 400, "invalid_request_error"),
        (ValueError("surprise"), 502, "upstream_error"),
    ],
)
async def test_upstream_failures_have_openais_shape_and_are_recorded(
    tmp_path: Path, scripted: Any, error: Exception, status: int, kind: str
) -> None:
    async with served(scripted([error]), tmp_path) as proxy:
        got, body = await post(proxy, ASK)
    assert (got, body["error"]["type"]) == (status, kind)
    assert str(error) in body["error"]["message"]
    assert body["error"].keys() == {"message", "type", "param", "code"}
    assert str(error) in read_calls(tmp_path)[0].error


@pytest.mark.parametrize(
    ("body", "path", "status"),
    [
        (b"{not json", "/s/k/v1/chat/completions", 400),
        (b"[1]", "/s/k/v1/chat/completions", 400),
        (ASK, "/v1/chat/completions", 404),
        (ASK, "/s/k/v1/completions", 404),
        (ASK, "/s/k%20k/v1/chat/completions", 404),
        (ASK, "/s//v1/chat/completions", 404),
        (ASK, "/s/k/v1/models", 405),
    ],
)
async def test_wrong_routes_and_bodies_are_json_errors(
    tmp_path: Path, scripted: Any, body: Any, path: str, status: int
) -> None:
    async with served(scripted([]), tmp_path) as proxy:
        got, problem = await post(proxy, body, path)
        assert got == status
        assert problem["error"]["message"]
        if status == 404:
            assert f"{proxy.url}/s/<session>/v1" in problem["error"]["message"]


async def test_a_body_beyond_the_limit_is_a_json_413(tmp_path: Path, scripted: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("socialrl_cli.proxy.BODY_BYTES", 1000)
    async with served(scripted([]), tmp_path) as proxy:
        assert (await post(proxy, {**ASK, "user": "x" * 2000}))[0] == 413


async def test_a_failed_write_is_a_500_that_ends_the_proxy(tmp_path: Path, scripted: Any, reply: Any) -> None:
    (tmp_path / "calls").write_text("a file where the directory should be")
    engine = scripted([reply("deal")] * 2)
    async with served(engine, tmp_path / "calls") as proxy, client(proxy, max_retries=2) as stock:
        with pytest.raises(openai.InternalServerError, match="could not be recorded"):
            await stock.chat.completions.create(**ASK)
        assert proxy.failed.is_set()
        assert len(engine.asked) == 1  # the client was told not to retry
        async with aiohttp.ClientSession() as session, session.get(proxy.url + "/health") as health:
            assert health.status == 500


async def test_only_loopback_is_served_without_a_token(tmp_path: Path, scripted: Any, reply: Any) -> None:
    recorder = Recorder(scripted([reply("deal")]), tmp_path)
    for host in ("0.0.0.0", "192.168.1.5", "example.com", "::"):
        with pytest.raises(UsageError, match="token"):
            Proxy(recorder, host=host)
    async with Proxy(recorder, host="0.0.0.0", token="secret") as proxy:
        assert (await post(proxy, ASK))[0] == 401
        assert (await post(proxy, ASK, Authorization="Bearer wrong"))[0] == 401
        async with client(proxy, api_key="secret") as stock:
            assert (await stock.chat.completions.create(**ASK)).choices[0].message.content == "deal"


async def test_a_port_in_use_is_named(tmp_path: Path, scripted: Any) -> None:
    async with served(scripted([]), tmp_path) as first:
        with pytest.raises(RunError, match=f"127.0.0.1:{first.listener.port}: cannot listen.*in use"):
            async with served(scripted([]), tmp_path, port=first.listener.port):
                pass


async def test_the_models_are_those_upstream(tmp_path: Path, monkeypatch: Any) -> None:
    async def models(self: Any) -> list[str]:
        return ["big", "small"]

    monkeypatch.setattr(RemoteEngine, "models", models)
    async with served(RemoteEngine("http://localhost:9", tokens=True), tmp_path) as proxy, client(proxy) as stock:
        assert [model.id async for model in stock.models.list()] == ["big", "small"]


async def test_sessions_are_taken_from_the_url(tmp_path: Path, scripted: Any, reply: Any) -> None:
    async with served(scripted([reply("a"), reply("b")]), tmp_path) as proxy:
        for key in ("ep-1:a", "ep-1:b"):
            async with client(proxy, key) as stock:
                await stock.chat.completions.create(**ASK)
        assert [len(proxy.recorder.finish(key)) for key in ("ep-1:a", "ep-1:b")] == [1, 1]
        with pytest.raises(ValueError, match="session key"):
            proxy.session_url("a/b")
