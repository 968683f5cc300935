"""`bench proxy`: what recording a model call costs, in process and over HTTP.

in_process   milliseconds that a call spends in the recorder (the engine answers at once); `render` is the same with
             the prompt rendered and extended turn by turn, as for an engine that takes token ids
http         requests a second through `socialrl proxy` and straight to the server behind it, in turn (A B A B), with
             their ratio, at one call and at many in flight; the server is a stub that answers 14 KB

Bytes are those of the raw record, of distinct replies with 500 prompt and 128 new tokens. On a shared machine the
ratios and the best conversation hold still, the rest does not.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from socialrl_cli.bench import gateway
from socialrl_cli.callfiles import read_calls
from socialrl_cli.engines.base import Capabilities, Scored, chat_response
from socialrl_cli.recorder import Recorder

TURNS, CONTEXT_TOKENS, REPLY_TOKENS = 8, 62, 64  # of a conversation in process: 500 prompt tokens on average
CONTEXT = "They offer: book 1, hat 1, ball 0. Round {turn}: you may propose, accept or walk away. "
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{{ '<|im_start|>assistant\n' }}"
)


class Ready:
    """An engine that has its answers before it is asked, so that only the recorder's time is measured."""

    def __init__(self, tokenizer: Any, replies: list[dict[str, Any]]) -> None:
        self.model, self.policy_version = "ready", 0
        self.tokenizer, self.replies, self.seconds = tokenizer, iter(replies), 0.0
        self.capabilities = Capabilities(True, True, False, False, False, False, token_input=tokenizer is not None)

    async def chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        started = time.perf_counter()
        answer = next(self.replies)
        if "prompt_token_ids" in request:
            answer["prompt_token_ids"] = request["prompt_token_ids"]
        self.seconds += time.perf_counter() - started
        return answer

    async def score(self, token_ids: Sequence[int], top_k: int = 0) -> Scored:
        raise NotImplementedError

    async def publish(self, version: int, weights: Mapping[str, Any] | None = None) -> None:
        raise NotImplementedError

    async def close(self) -> None: ...


def proxy_bench(
    requests: int = 2000, rounds: int = 3, concurrency: tuple[int, ...] = (1, 32), conversations: int = 150
) -> dict[str, Any]:
    """All of it. `requests` over HTTP in each measurement (a quarter at one in flight), `conversations` in process."""
    in_process = {
        "record": asyncio.run(_in_process(conversations, None)),
        "render": asyncio.run(_in_process(conversations, _tokenizer())),
    }
    return {"bench": "proxy", "in_process": in_process, "http": _over_http(requests, rounds, concurrency)}


async def _in_process(conversations: int, tokenizer: Any) -> dict[str, float]:
    """Milliseconds a call in the best and in the median conversation; bytes a call."""
    replies = [reply for number in range(conversations) for reply in _replies(number, tokenizer)]
    engine, costs = Ready(tokenizer, replies), []
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(engine, folder)
        for number in range(conversations):
            messages = [{"role": "system", "content": "You negotiate over books, hats and balls. " * 6}]
            spent, engine.seconds = 0.0, 0.0
            for turn in range(TURNS):
                messages = [*messages, {"role": "user", "content": CONTEXT.format(turn=turn)}]
                asked = {"model": "policy", "messages": messages, "max_tokens": 128, "temperature": 1.0, "seed": 1}
                started = time.perf_counter()
                answer = await recorder.chat(f"{number}", asked)
                spent += time.perf_counter() - started
                messages = [*messages, {"role": "assistant", "content": answer["choices"][0]["message"]["content"]}]
            costs.append((spent - engine.seconds) / TURNS * 1000)
            recorder.finish(f"{number}")
        recorder.close()
        size = recorder.writer.bytes_written / len(replies)
    return {"best_ms": round(min(costs), 4), "median_ms": round(statistics.median(costs), 4), "bytes": round(size)}


def _replies(number: int, tokenizer: Any) -> Iterator[dict[str, Any]]:
    """The answers of a conversation as an engine in this process gives them; each prompt goes on from the last.

    Prompts have 500 tokens on average, replies 64; with a tokenizer the prompts are the recorder's own.
    """
    past: list[int] = []
    for turn in range(TURNS):
        choice = (made := gateway.answer(number * TURNS + turn, tokens=True))["choices"][0]
        ids, text = choice["token_ids"][:REPLY_TOKENS], choice["message"]["content"][: REPLY_TOKENS * 3]
        if tokenizer is not None:
            ids = [*tokenizer.encode(text, add_special_tokens=False)[: REPLY_TOKENS - 1], tokenizer.eos_token_id]
            text = tokenizer.decode(ids[:-1])
        past = past + made["prompt_token_ids"][:CONTEXT_TOKENS]
        yield chat_response(
            request_id=f"{number}-{turn}",
            model="ready",
            policy_version=0,
            prompt_ids=past,
            token_ids=ids,
            text=text,
            finish_reason="stop",
            token_logprobs=[entry["logprob"] for entry in choice["logprobs"]["content"][: len(ids)]],
        )
        past = past + ids


def _tokenizer() -> Any:
    """A byte-level tokenizer with a ChatML template, trained in a moment."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator([CONTEXT, " ".join(gateway.WORDS)] * 5, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|im_end|>", chat_template=TEMPLATE)


def _over_http(requests: int, rounds: int, concurrency: tuple[int, ...]) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp())
    try:
        counts = {many: max(many, requests // (4 if many == 1 else 1)) for many in concurrency}
        distinct = min(20_000, rounds * sum(counts.values()))
        words = ["proxy", "--port", "0", "--run", str(folder / "run"), "--json", "--upstream"]
        with (
            _child("socialrl_cli.bench.gateway", str(distinct)) as stub,
            _child("socialrl_cli.main", *words, direct := stub.strip()) as printed,
        ):
            proxied = json.loads(printed)["base_url"]
            measured = asyncio.run(_pairs(proxied, direct, counts, rounds))
        recorded = sum(part.stat().st_size for part in (folder / "run" / "calls").iterdir())
        calls = len(read_calls(folder / "run" / "calls"))
        return {**measured, "calls": calls, "bytes_per_call": round(recorded / calls)}
    finally:
        shutil.rmtree(folder)


async def _pairs(proxied: str, direct: str, counts: Mapping[int, int], rounds: int) -> dict[str, Any]:
    for url in (proxied, direct):
        await gateway.load(url, 100, 4)
    out: dict[str, Any] = {}
    for many, count in counts.items():
        pairs = [
            (await gateway.load(proxied, count, many), await gateway.load(direct, count, many)) for _ in range(rounds)
        ]
        ratios = [round(ours["req_s"] / theirs["req_s"], 3) for ours, theirs in pairs]
        out[f"{many}_in_flight"] = {
            "req_s": statistics.median(ours["req_s"] for ours, _ in pairs),
            "direct_req_s": statistics.median(theirs["req_s"] for _, theirs in pairs),
            "ratios": ratios,
            "ratio": statistics.median(ratios),
            "p50_added_ms": round(statistics.median(ours["p50_ms"] - theirs["p50_ms"] for ours, theirs in pairs), 3),
        }
    return out


@contextmanager
def _child(module: str, *words: str) -> Iterator[str]:
    """A process of ours while the block runs; yields what it prints first: a line, or a JSON document."""
    child = subprocess.Popen([sys.executable, "-m", module, *words], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        printed = child.stdout.readline()
        while printed.startswith("{") and not printed.endswith("}\n"):
            line = child.stdout.readline()
            printed += line
            if not line:
                break
        if not printed.strip():
            raise RuntimeError(f"{module} did not start")
        yield printed
    finally:
        child.terminate()
        child.wait()
        child.stdout.close()
