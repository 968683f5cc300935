"""`bench engine`: tokens a second of the embedded engine, beside transformers' own two ways, in one run.

equal   a batch of requests of one length that arrive together, where a static batch is at its best: the
        engine, `generate` (static) and `generate_batch` (transformers' continuous batching) in turn
mixed   CLIENTS clients with requests of mixed lengths one after the other, so that at every moment some
        leave and others come; beside `generate` at its best batch and `generate_batch` at CLIENTS
turns   TALKS conversations at once; a turn appends about NEW prompt tokens and samples about ANSWER, and the
        counterpart answers in no time; beside the engine's own decode rate of as many requests
games   real games of dnd, as many at once, of a model that can play (`games.py`), beside the same decode rate
busy    `equal` at the first batch while another process keeps one core busy, beside the same without it

Rates are sampled tokens / seconds, prefill included except in the decode rate; `mixed` and `turns` count
while every client is busy. Nothing ends early. Only the engine also returns log-probabilities. Figures of a
shared machine say little: compare the ratios, which are medians over the rounds.
"""

from __future__ import annotations

import asyncio
import copy
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import transformers

from socialrl_cli.bench.games import games_rate
from socialrl_cli.engines.config import EmbeddedConfig
from socialrl_cli.engines.embedded import EmbeddedEngine

PARTS = ("equal", "mixed", "turns", "games", "busy")
PROMPT, TOKENS = 64, 64  # of a request in `equal`; the means in `mixed`, plus or minus SPREAD
CLIENTS, EACH, SPREAD = 64, 5, 32  # requests a client
TALKS, GAMES = 128, 4  # conversations at once, and one after the other
OPENING, NEW, ANSWER, MOVES = 30, 25, 10, 8  # a conversation: first prompt, later ones, answers; most turns
PAGE = 32  # tokens of a page of `generate_batch`
GENERATION = {"max_new_tokens": TOKENS, "do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}

Play = Callable[[EmbeddedEngine], Awaitable[float]]  # returns sampled tokens a second


def engine_bench(
    model: str = "",
    *,
    threads: int = 1,
    batches: Sequence[int] = (32, 64, 128),
    rounds: int = 3,
    parts: Sequence[str] = PARTS,
    continuous: bool = True,
) -> dict[str, Any]:
    """`model`: a folder, or empty for a random one of 2 M parameters, which plays no games. `continuous`: run
    `generate_batch` too (slow)."""
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    ours = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32) if model else random_model()
    ours.generation_config = transformers.GenerationConfig()  # a folder's own end token and samplers do not count
    theirs = copy.deepcopy(ours.eval())
    report: dict[str, Any] = {
        "bench": "engine",
        "model": model or "random",
        "parameters": ours.num_parameters(),
        "settings": {"threads": threads, "batches": list(batches), "rounds": rounds, "parts": list(parts)},
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    rows: list[dict[str, Any]] = []
    ways: dict[str, Callable[[], float]]
    for batch in batches if {"equal", "mixed"} & set(parts) else ():
        ways = {"engine": partial(rate, ours, batch, partial(equal, batch)), "generate": partial(static, theirs, batch)}
        if continuous and "equal" in parts:
            ways["generate_batch"] = partial(paged, theirs, batch)
        rows.append({"batch": batch} | in_turn(ways, rounds))
    if "equal" in parts:
        report["equal"] = rows
    if "mixed" in parts:
        best = max(rows, key=lambda row: row["generate_tok_s"])["batch"]
        ways = {"engine": partial(rate, ours, CLIENTS, mixed), "generate": partial(static, theirs, best)}
        if continuous:
            ways["generate_batch"] = partial(paged, theirs, CLIENTS)
        report["mixed"] = {"clients": CLIENTS, "generate_at": best} | in_turn(ways, rounds)
    if "turns" in parts:
        ways = {"turns": partial(rate, ours, TALKS, turns), "decode": partial(rate, ours, TALKS, decode)}
        report["turns"] = {"conversations": TALKS} | in_turn(ways, rounds)
    if "games" in parts and model:
        ways = {"games": partial(games_rate, ours, model, TALKS), "decode": partial(rate, ours, TALKS, decode)}
        report["games"] = {"at_once": TALKS} | in_turn(ways, rounds)
    if "busy" in parts:
        quiet = partial(rate, ours, batches[0], partial(equal, batches[0]))
        report["busy"] = {"batch": batches[0]} | in_turn(
            {"busy": partial(beside_a_busy_core, quiet), "quiet": quiet}, rounds
        )
    return report


def in_turn(ways: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Any]:
    """Medians of each way over the rounds, and of the ratios first / other within a round. One more round warms up."""
    first, *others = ways
    seen = [{name: way() for name, way in ways.items()} for _ in range(rounds + 1)][1:]
    row: dict[str, Any] = {f"{name}_tok_s": round(statistics.median(r[name] for r in seen), 1) for name in ways}
    for name in others:
        ratios = [round(r[first] / r[name], 3) for r in seen]
        row |= {f"{first}/{name}": statistics.median(ratios), f"{first}/{name} by round": ratios}
    return row


def random_model() -> Any:
    """A Qwen3 of 2 M parameters."""
    sizes = {"vocab_size": 2048, "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 4}
    heads = {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 4096}
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**sizes, **heads, tie_word_embeddings=True)).float()


class NoText:
    """In a tokenizer's place: the requests are token ids."""

    eos_token_id = chat_template = None

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return ""


def rate(model: Any, slots: int, play: Play) -> float:
    """What `play` returns on a fresh engine."""
    capacity = min(OPENING + SPREAD + MOVES * (NEW + ANSWER) + 128, model.config.max_position_embeddings)

    async def played() -> float:
        engine = EmbeddedEngine(model, NoText(), EmbeddedConfig(slots=slots, capacity=capacity))
        try:
            return await play(engine)
        finally:
            await engine.close()

    return asyncio.run(played())


async def equal(batch: int, engine: EmbeddedEngine) -> float:
    prompts = [tokens(engine, n, PROMPT) for n in range(batch)]
    started = time.perf_counter()
    await asyncio.gather(*(ask(engine, prompt, TOKENS) for prompt in prompts))
    return batch * TOKENS / (time.perf_counter() - started)


async def decode(engine: EmbeddedEngine) -> float:
    """Decoding alone, at the mean length of `turns`: the prompts are in their slots already."""
    prompts = [tokens(engine, n, OPENING + MOVES * (NEW + ANSWER) // 2 - TOKENS // 2) for n in range(TALKS)]
    await asyncio.gather(*(ask(engine, prompt, 1) for prompt in prompts))
    started = time.perf_counter()
    await asyncio.gather(*(ask(engine, prompt, TOKENS) for prompt in prompts))
    return TALKS * TOKENS / (time.perf_counter() - started)


async def mixed(engine: EmbeddedEngine) -> float:
    async def request(number: int) -> None:
        draw = random.Random(number)
        prompt = tokens(engine, number, PROMPT + draw.randint(-SPREAD, SPREAD))
        await ask(engine, prompt, TOKENS + draw.randint(-SPREAD, SPREAD))

    return await sustained(engine, CLIENTS, EACH, request)


async def turns(engine: EmbeddedEngine) -> float:
    async def talk(number: int) -> None:
        draw = random.Random(number)
        ids = tokens(engine, number, OPENING + draw.randint(-10, 10))
        for turn in range(MOVES - draw.randint(0, 3)):
            answer = await ask(engine, ids, ANSWER + draw.randint(-3, 3))
            ids = ids + answer + tokens(engine, (number, turn), NEW + draw.randint(-4, 4))

    return await sustained(engine, TALKS, GAMES, talk)


async def sustained(engine: EmbeddedEngine, clients: int, each: int, job: Callable[[int], Awaitable[None]]) -> float:
    """Tokens a second from when every client is past its first job until the first finds none left."""
    numbers, marks = iter(range(clients * each)), []

    async def client() -> None:
        for number in numbers:
            if number in (2 * clients, clients * each - 1):
                marks.append((time.perf_counter(), engine.counters["decoded"]))
            await job(number)

    await asyncio.gather(*(client() for _ in range(clients)))
    (start, before), (end, after) = marks
    return (after - before) / (end - start)


def tokens(engine: EmbeddedEngine, seed: Any, length: int) -> list[int]:
    draw, vocabulary = random.Random(repr(seed)), engine.vocabulary
    return [draw.randrange(vocabulary) for _ in range(length)]


async def ask(engine: EmbeddedEngine, prompt: list[int], most: int) -> list[int]:
    request = {"prompt_token_ids": prompt, "max_tokens": most, "logprobs": "tokens", "seed": len(prompt)}
    choice = (await engine.chat(request))["choices"][0]
    assert len(choice["token_ids"]) == len(choice["token_logprobs"]) == most
    return choice["token_ids"]


def static(model: Any, batch: int) -> float:
    """`generate`: one batch, nothing to pad."""
    ids = torch.randint(10, model.config.vocab_size, (batch, PROMPT))  # (B, prompt)
    config = transformers.GenerationConfig(**GENERATION, pad_token_id=0)
    started = time.perf_counter()
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
    seconds = time.perf_counter() - started
    assert out.shape == (batch, PROMPT + TOKENS)
    return batch * TOKENS / seconds


def paged(model: Any, batch: int) -> float:
    """`generate_batch`, its cache sized for the batch, which is faster than its default."""
    prompts = torch.randint(10, model.config.vocab_size, (batch, PROMPT)).tolist()
    config = transformers.GenerationConfig(**GENERATION, pad_token_id=0, eos_token_id=-1)
    blocks, most = batch * (2 + (PROMPT + TOKENS) // PAGE), max(512, batch)
    sizes = transformers.ContinuousBatchingConfig(
        page_size=PAGE, num_blocks=blocks, max_batch_tokens=most, allow_block_sharing=False
    )
    started = time.perf_counter()
    out = model.generate_batch(inputs=prompts, generation_config=config, continuous_batching_config=sizes)
    seconds = time.perf_counter() - started
    assert sum(len(answer.generated_tokens) for answer in out.values()) == batch * TOKENS
    return batch * TOKENS / seconds


def beside_a_busy_core(way: Callable[[], float]) -> float:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        return way()
    finally:
        process.kill()
        process.wait()
