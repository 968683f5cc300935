"""Do the engine and the trainer mean the same policy? Asked at the start of every RL run and after every publish.

A few tokens are sampled, under a small grammar too where the games have one, and the trainer's own code recomputes
their log-probabilities. When they differ by more than the arithmetic explains, learning would follow wrong ratios: the
run stops, and the likely cause is found by recomputing under the settings that are usually wrong. Differences in nats.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from algos.grammars import Grammar
from algos.models import Models
from algos.packing import packs
from algos.policy import EXACT_NATS, BatchTensors, allowed, policy, reference_policy
from algos.rows import Row, actor_tokens
from scenarios.errors import EngineError
from socialrl_cli.engines.base import Engine
from socialrl_cli.grammars import text_of
from socialrl_cli.rendering import Renderer

TOKENS = 12  # of each answer
QUESTIONS = ("Hello. What do you want?", "1/10 I offer you 2 of 3. Do you accept, or what else?")
FORM = {"type": "object", "properties": {"move": {"enum": ["accept", "propose"]}, "count": {"enum": [1, 2, 3]}},
        "required": ["move", "count"], "additionalProperties": False}  # fmt: skip
SCHEMA = {"type": "json_schema", "json_schema": {"name": "move", "schema": FORM}}


@dataclass(frozen=True, slots=True)
class Answered:
    """What an engine was asked and answered."""

    request: Mapping[str, Any]
    answer: Mapping[str, Any]


async def answers(engine: Engine, temperature: float, *, constrained: bool) -> list[Answered]:
    """A few tokens from the engine; `constrained`: one answer under a grammar."""
    requests = [
        {
            "messages": [{"role": "user", "content": text}], "max_tokens": TOKENS, "temperature": temperature,
            "seed": seed, "logprobs": "tokens", "return_token_ids": True,
            **({"response_format": SCHEMA} if constrained and seed % 2 else {}),
        }
        for seed, text in enumerate(QUESTIONS)
    ]  # fmt: skip
    found = await asyncio.gather(*map(engine.chat, requests))
    return [Answered(*pair) for pair in zip(requests, found, strict=True)]


def check(models: Models, answered: Sequence[Answered], name: str, version: int) -> float:
    """The largest difference between recorded and recomputed log-probabilities, in nats.

    Raises EngineError with the likely cause when it is too large.
    """
    rows = [row_of(number, one) for number, one in enumerate(answered)]
    gap = largest_gap(models, rows)
    limit = EXACT_NATS[models.compute_dtype]
    if not gap <= limit:  # NaN as well
        raise EngineError(
            f"{name}: version {version} answers with log-probabilities that differ by {gap:.3g} nats from the "
            f"trainer's (up to {limit:g} would be rounding); {_cause(models, rows, answered, limit)}"
        )
    return gap


def row_of(number: int, one: Answered) -> Row:
    """An answer as the trainer sees one."""
    request, answer = one.request, one.answer
    prompt, choice = list(answer["prompt_token_ids"]), answer["choices"][0]
    sampled = list(choice["token_ids"])
    ids = np.array([*prompt, *sampled], np.int32)
    logprobs = np.zeros(len(ids), np.float32)
    logprobs[len(prompt) :] = choice["token_logprobs"]
    text = text_of(request.get("response_format"))
    spans = () if text is None else ((len(prompt), len(ids), Grammar("parity", text)),)
    return Row(
        f"parity-{number}", "", "", "", 0, ids, len(prompt), np.arange(len(ids)) >= len(prompt), logprobs,
        float(request["temperature"]), 0.0, grammars=spans,
    )  # fmt: skip


def largest_gap(models: Models, rows: Sequence[Row], model: Any = None) -> float:
    """Between recorded and recomputed log-probabilities of the rows' sampled tokens."""
    batch = actor_tokens(rows)
    tensors = BatchTensors.of(batch, models.device, allowed(models, batch))
    was = models.actor.training
    models.actor.eval()
    with torch.no_grad():
        (pack,) = packs(batch, range(len(batch.rows)), 1 << 20, models.device)
        ours = policy(models, models.actor if model is None else model, pack, tensors)[0]
    models.actor.train(was)
    return float((ours - tensors.behaviour[pack.tokens]).abs().max())


def _cause(models: Models, rows: Sequence[Row], answered: Sequence[Answered], limit: float) -> str:
    renderer = Renderer(models.tokenizer)
    for one in answered:
        if renderer.render(one.request["messages"]) != list(one.answer["prompt_token_ids"]):
            return "template: the server renders prompts with another chat template than the model's folder has"
    plain = [row for row in rows if not row.grammars]
    if plain != rows and largest_gap(models, plain) <= limit:
        return "grammar: only constrained answers differ; serve with the backend guidance and no free white space"
    if largest_gap(models, [replace(row, temperature=1.0) for row in plain]) <= limit:
        return "temperature: these are raw log-probabilities; start vLLM with --logprobs-mode processed_logprobs"
    if models.lora or models.reference is not None:
        with reference_policy(models) as before:
            if largest_gap(models, plain, before) <= limit:
                return "adapter: these are the log-probabilities of the model without what was published"
    if largest_gap(models, plain) <= EXACT_NATS[torch.bfloat16]:
        return "dtype: as far apart as lower precision makes them; serve in the trainer's own (engine.vllm.dtype)"
    return "the server has other weights: another model, or new ones that were not taken over"
