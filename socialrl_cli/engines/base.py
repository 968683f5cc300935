"""What an engine is: where tokens come from, behind one small protocol.

A request is an OpenAI chat-completions body. Besides the usual fields an engine that declares
`token_input` takes `prompt_token_ids` (the exact prompt; nothing is rendered) and every engine takes
`logprobs` (true, or "tokens" for a plain list of floats). The answer has vLLM's shape: `prompt_token_ids`
at the top, `token_ids` in the choice, the stop token among them. Log-probabilities are natural, as
processed: log_softmax(logits / temperature) over the support that was sampled from; at temperature 0
(greedy) those of temperature 1.

Left out: streaming (the proxy re-streams), several choices, tool parsing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine declares; callers ask here, never by name or type."""

    token_ids: bool  # answers carry prompt_token_ids and token_ids
    logprobs: bool  # answers carry log-probabilities of the sampled tokens, as processed
    scoring: bool  # score() works
    publishing: bool  # publish() changes the weights and policy_version
    adapters: bool  # LoRA adapters are served
    grammars: bool  # response_format with a JSON schema constrains the sampling
    token_input: bool  # prompt_token_ids is accepted
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


def chat_response(
    *,
    request_id: str,
    model: str,
    policy_version: int,
    prompt_ids: Sequence[int],
    token_ids: Sequence[int],
    text: str,
    finish_reason: str,
    logprobs: dict[str, Any] | None = None,
    token_logprobs: Sequence[float] | None = None,
) -> dict[str, Any]:
    """A chat-completions answer with the token fields. `logprobs` is OpenAI's object, `token_logprobs` plain floats."""
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
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
