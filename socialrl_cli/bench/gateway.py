"""A stand-in for a model server and a load for it: what `bench proxy` measures with.

The stub answers as vLLM does when asked for token ids and log-probabilities: 500 `prompt_token_ids`, 128 `token_ids`,
as many `logprobs` entries, 14 KB; or a plain answer when asked for neither. Bodies are made before it starts, each of
`distinct` different, so that a record of them does not compress for free. It prints its base URL and serves until it
is ended. The load is `concurrency` workers that send chats of eight messages (3 KB) one after the other, with a new
session every eight calls where the URL has a place for it.

    python -m socialrl_cli.bench.gateway [DISTINCT]
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from typing import Any

import numpy as np
import orjson

PROMPT_TOKENS, NEW_TOKENS, VOCABULARY = 500, 128, 2048
WORDS = (" deal", " no", " hat", " ball", " I", " ok", " me", " 2", " all", " for", ".", ",")
CALLS_PER_SESSION = 8
SESSION = "SESSION"  # in a URL: the place of the session's name


def answer(number: int, tokens: bool) -> dict[str, Any]:
    """A model server's answer; another one for each number."""
    rng = random.Random(number)
    words = rng.choices(WORDS, k=NEW_TOKENS)
    logprobs = np.array([-rng.expovariate(1.0) for _ in words], np.float32).tolist()
    entries = [
        {"token": word, "logprob": value, "bytes": list(word.encode()), "top_logprobs": []}
        for word, value in zip(words, logprobs, strict=True)
    ]
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": "".join(words), "tool_calls": [], "reasoning": None},
        "logprobs": {"content": entries} if tokens else None,
        "finish_reason": "length",
        "stop_reason": None,
    }
    usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": NEW_TOKENS}
    body = {
        "id": f"chatcmpl-{number:032x}",
        "object": "chat.completion",
        "created": 1796000000,
        "model": "stub",
        "choices": [choice],
        "usage": usage | {"total_tokens": PROMPT_TOKENS + NEW_TOKENS},
    }
    if tokens:
        choice["token_ids"] = [rng.randrange(VOCABULARY) for _ in range(NEW_TOKENS)]
        body["prompt_token_ids"] = [rng.randrange(VOCABULARY) for _ in range(PROMPT_TOKENS)]
    return body


def question(number: int, tokens: bool) -> bytes:
    """A chat of eight messages, about 3 KB."""
    rules = "You negotiate over books, hats and balls. Your values are private: book 1, hat 3, ball 2. "
    closing = "Answer with one short sentence and, if you propose, with the full split. "
    turns = [f"Round {i}: I would like {i} of the books and every ball, you can keep the hats. " for i in range(7)]
    messages = [{"role": "system", "content": rules * 4}]
    messages += [{"role": ("user", "assistant")[i % 2], "content": t + closing * 3} for i, t in enumerate(turns)]
    messages[-1]["content"] += f"(game {number})"
    asked: dict[str, Any] = {"model": "stub", "messages": messages, "max_tokens": NEW_TOKENS, "temperature": 1.0}
    if tokens:
        asked |= {"return_token_ids": True, "logprobs": True}
    return orjson.dumps(asked)


async def serve(distinct: int) -> None:
    """The stub, until the process is ended."""
    from aiohttp import web

    bodies = {tokens: [orjson.dumps(answer(n, tokens)) for n in range(distinct)] for tokens in (False, True)}
    calls = 0

    async def handle(request: web.BaseRequest) -> web.Response:
        nonlocal calls
        if request.method == "GET":
            return web.Response(body=b'{"object":"list","data":[{"id":"stub","object":"model"}]}')
        asked = orjson.loads(await request.read())
        calls += 1
        body = bodies[bool(asked.get("return_token_ids"))][calls % distinct]
        return web.Response(body=body, content_type="application/json")

    runner = web.ServerRunner(web.Server(handle, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", flush=True)
    await asyncio.Event().wait()


async def load(base_url: str, requests: int, concurrency: int, *, tokens: bool = True) -> dict[str, float]:
    """Requests a second and the median latency of `requests` calls; any answer but 200 is an error."""
    import aiohttp

    numbers, sessions, latencies = iter(range(requests)), iter(range(10**9)), []
    bodies = [question(number, tokens) for number in range(256)]

    async def worker(client: aiohttp.ClientSession) -> None:
        url = ""
        for calls, number in enumerate(numbers):
            if calls % CALLS_PER_SESSION == 0:
                url = base_url.replace(SESSION, f"{next(sessions)}") + "/chat/completions"
            started = time.perf_counter()
            async with client.post(url, data=bodies[number % len(bodies)]) as response:
                data = await response.read()
            if response.status != 200 or b'"choices"' not in data:
                raise RuntimeError(f"{url}: {response.status} {data[:200]!r}")
            latencies.append(time.perf_counter() - started)

    timeout = aiohttp.ClientTimeout(total=60)
    headers = {"Content-Type": "application/json"}
    connector = aiohttp.TCPConnector(limit=concurrency)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=headers) as client:
        started = time.perf_counter()
        await asyncio.gather(*(worker(client) for _ in range(concurrency)))
        seconds = time.perf_counter() - started
    return {"req_s": round(requests / seconds, 1), "p50_ms": round(statistics.median(latencies) * 1000, 3)}


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]) if len(sys.argv) > 1 else 1024))
