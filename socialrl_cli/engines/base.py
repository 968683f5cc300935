"""What an engine is: where tokens come from, behind one small protocol.

A request is an OpenAI chat-completions body. Besides the usual fields an engine that declares
`token_input` takes `prompt_token_ids` (the exact prompt; nothing is rendered) and every engine takes
`logprobs` (true, or "tokens" for a plain list of floats). The answer has vLLM's shape: `prompt_token_ids`
at the top, `token_ids` in the choice, the stop token among them. Log-probabilities are natural, as
processed: log_softmax(logits / temperature) over the support that was sampled from; at temperature 0
(greedy) those of temperature 1.

Where a request has `tools`, calls in the answer's text come as OpenAI's `tool_calls`.

Left out: streaming (the proxy re-streams), several choices.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from algos.messages import plain
from scenarios.errors import ModelError, UsageError
from socialrl_cli.engines import toolcalls
from socialrl_cli.grammars import text_of

# What a plain sampler does not do, with the values that ask for nothing.
OFF: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "top_p": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "tool_choice": ("auto",),
    "stop": ([],),
    "stream": (False,),
}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine declares; callers ask here, never by name or type."""

    token_ids: bool = False  # answers carry prompt_token_ids and token_ids
    logprobs: bool = False  # answers carry log-probabilities of the sampled tokens, as processed
    scoring: bool = False  # score() works
    publishing: bool = False  # publish() changes the weights and policy_version
    adapters: bool = False  # LoRA adapters are served
    grammars: bool = False  # response_format with a JSON schema constrains the sampling
    token_input: bool = False  # prompt_token_ids is accepted
    deterministic: bool = False  # an answer is the same bit for bit whatever else runs beside it


@dataclass(frozen=True, slots=True)
class Scored:
    """How a model rates given tokens (T of them, K alternatives): entry i is about token i + 1, given all before it."""

    logprobs: np.ndarray  # (T-1,) float32, of the tokens themselves, at temperature 1
    top_ids: np.ndarray  # (T-1, K) int32, best first
    top_logprobs: np.ndarray  # (T-1, K) float32


class Engine(Protocol):
    """Raises EngineError (died, too late), ModelError (cannot, with this model) and UsageError (a bad field)."""

    @property
    def capabilities(self) -> Capabilities: ...
    @property
    def model(self) -> str: ...
    @property
    def policy_version(self) -> int: ...
    @property
    def tokenizer(self) -> Any: ...

    async def chat(self, request: Mapping[str, Any]) -> dict[str, Any]: ...
    async def score(self, token_ids: Sequence[int], top_k: int = 0) -> Scored: ...
    async def publish(self, version: int, weights: Mapping[str, Any] | None = None) -> None: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Sampling:
    """What a chat request asks of an engine that samples by itself."""

    prompt: np.ndarray  # (n,) int32
    limit: int  # most tokens of prompt and answer
    temperature: float  # 0: greedy
    seed: int
    stops: frozenset[int]
    grammar: str | None = None  # the text of what the answer must match


def read_request(
    request: Mapping[str, Any], tokenizer: Any, capacity: int, vocabulary: int, ends: frozenset[int]
) -> Sampling:
    """`capacity`: how many tokens prompt and answer may have; `ends`: tokens that end any answer.

    A request without a seed gets a random one. Raises UsageError for a field, ModelError for a prompt too long.
    """
    for name, values in OFF.items():
        if (value := request.get(name)) is not None and value not in values:
            raise UsageError(f"{name}: this engine cannot do {value!r}; leave it out")
    prompt = request.get("prompt_token_ids")
    if prompt is None:
        if getattr(tokenizer, "chat_template", None) is None:
            raise ModelError("the tokenizer has no chat template; give prompt_token_ids, or a model with one")
        told = [plain(message) for message in request["messages"]]
        prompt = tokenizer.apply_chat_template(
            told, tools=request.get("tools"), add_generation_prompt=True, return_dict=False
        )
    ids = token_array(prompt, "prompt_token_ids", vocabulary)
    if not 1 <= len(ids) < capacity:
        raise ModelError(
            f"a prompt of {len(ids)} tokens does not fit: prompt and answer share {capacity} tokens; "
            "shorten it, or raise the engine's capacity"
        )
    most = request.get("max_completion_tokens", request.get("max_tokens"))
    most = capacity if most is None else int(most)
    temperature, seed = request.get("temperature"), request.get("seed")
    temperature = 1.0 if temperature is None else float(temperature)
    if most < 1 or not 0 <= temperature < float("inf"):
        raise UsageError(f"max_tokens must be at least 1 and temperature at least 0, got {most} and {temperature}")
    seed = random.getrandbits(63) if seed is None else int(seed)
    stops = ends.union(request.get("stop_token_ids") or ())
    grammar = text_of(request.get("response_format"))
    return Sampling(ids, min(len(ids) + most, capacity), temperature, seed, stops, grammar)


def token_array(ids: Sequence[int], name: str, vocabulary: int) -> np.ndarray:
    """(n,) int32. Raises UsageError for what is not a list of token ids."""
    array = np.asarray(ids, np.int64)
    if array.ndim != 1 or (array.size and not 0 <= array.min() <= array.max() < vocabulary):
        raise UsageError(f"{name}: must be token ids from 0 to {vocabulary - 1}")
    return array.astype(np.int32)


def write_answer(
    asked: Sampling,
    token_ids: Sequence[int],
    logprobs: Sequence[float],
    tokenizer: Any,
    request: Mapping[str, Any],
    **about: Any,
) -> dict[str, Any]:
    """The answer to what was `asked` by the `request`; `about`: chat_response's other fields."""
    ended, form = token_ids[-1] in asked.stops, request.get("logprobs")
    calls: list[dict[str, Any]] = []
    text = tokenizer.decode(token_ids[: len(token_ids) - ended], skip_special_tokens=True)
    if request.get("tools"):
        text, calls = toolcalls.split(text, (*asked.prompt.tolist(), *token_ids))
    return chat_response(
        prompt_ids=asked.prompt.tolist(),
        token_ids=token_ids,
        text=text,
        calls=calls,
        finish_reason="length" if not ended else "tool_calls" if calls else "stop",
        logprobs=logprob_entries(tokenizer, token_ids, logprobs) if form is True else None,
        token_logprobs=logprobs if form == "tokens" else None,
        **about,
    )


def logprob_entries(tokenizer: Any, token_ids: Sequence[int], logprobs: Sequence[float]) -> dict[str, Any]:
    """OpenAI's `logprobs` object of a choice, without alternatives."""
    texts = [tokenizer.decode([i]) for i in token_ids]
    return {
        "content": [
            {"token": text, "logprob": logprob, "bytes": list(text.encode()), "top_logprobs": []}
            for text, logprob in zip(texts, logprobs, strict=True)
        ]
    }


def chat_response(
    *,
    request_id: str,
    model: str,
    policy_version: int,
    prompt_ids: Sequence[int],
    token_ids: Sequence[int],
    text: str,
    finish_reason: str,
    calls: Sequence[Mapping[str, Any]] = (),
    logprobs: dict[str, Any] | None = None,
    token_logprobs: Sequence[float] | None = None,
) -> dict[str, Any]:
    """A chat-completions answer with the token fields. `logprobs` is OpenAI's object, `token_logprobs` plain floats."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message = {"role": "assistant", "content": text or None, "tool_calls": calls}
    choice: dict[str, Any] = {
        "index": 0,
        "message": message,
        "finish_reason": finish_reason,
        "token_ids": token_ids,
        "logprobs": logprobs,
    }
    if token_logprobs is not None:
        choice["token_logprobs"] = token_logprobs
    usage = {"prompt_tokens": len(prompt_ids), "completion_tokens": len(token_ids)}
    return {
        "id": request_id,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "policy_version": policy_version,
        "prompt_token_ids": prompt_ids,
        "choices": [choice],
        "usage": usage | {"total_tokens": len(prompt_ids) + len(token_ids)},
    }
