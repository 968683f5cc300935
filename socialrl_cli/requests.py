"""What a recorded request may ask, and what goes to the engine instead. Pure functions over OpenAI-shaped dicts.

In `rl` mode the record must say from which distribution each token came, so whatever cuts or bends it is refused by
its field's name, and its neutral value is sent instead of left to the model's own generation defaults. In `distill`
mode any request passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
import orjson

from scenarios.errors import UsageError
from socialrl_cli.calls import Call

NEUTRAL: Mapping[str, Any] = {
    "n": 1,
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
}
ALSO_NEUTRAL: Mapping[str, tuple[Any, ...]] = {  # other spellings of "off"
    "top_k": (-1, 0),
    "best_of": (1,),
    "min_tokens": (0,),
    "min_new_tokens": (0,),
    "length_penalty": (1.0,),
    "typical_p": (1.0,),
    "top_a": (0.0,),
    "use_beam_search": (False,),
}
EMPTY = (
    "logit_bias",
    "bad_words",
    "allowed_token_ids",
    "suppress_tokens",
    "logits_processors",
    "custom_logit_processor",
)
BENDING = frozenset((*NEUTRAL, *ALSO_NEUTRAL, *EMPTY))
RENDERING = ("chat_template", "chat_template_kwargs", "continue_final_message", "documents", "mm_processor_kwargs")
GRAMMARS = (
    "response_format",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "json_schema",
    "regex",
    "ebnf",
)
NOT_SENT = ("stream", "stream_options")
EXTRAS = ("prompt_token_ids", "policy_version")


class Refused(UsageError):
    """A request that must not be recorded as it is. `field` names the part to change; `status` is HTTP's."""

    def __init__(self, field: str, reason: str, status: int = 400) -> None:
        super().__init__(f"{field}: {reason}")
        self.field, self.status = field, status


def check(request: Mapping[str, Any], mode: str, *, rendered_here: bool) -> None:
    """Raise Refused when the request cannot be recorded. `rendered_here`: its prompt is ours to write."""
    messages = request.get("messages")
    if not isinstance(messages, (list, tuple)) or not messages:
        raise Refused("messages", f"expected a non-empty list, got {messages!r:.60}")
    if not all(isinstance(message, dict) and isinstance(message.get("role"), str) for message in messages):
        raise Refused("messages", "each message must be an object with a role")
    temperature = request.get("temperature")
    if temperature is not None and (isinstance(temperature, bool) or not isinstance(temperature, (int, float))):
        raise Refused("temperature", f"expected a number, got {temperature!r:.60}")
    if temperature is not None and not 0 <= temperature < float("inf"):
        raise Refused("temperature", f"expected a number of at least 0, got {temperature!r}")
    if request.get("n") not in (None, 1):
        raise Refused("n", f"one answer a call is recorded, got {request['n']!r:.60}; ask n times")
    if rendered_here:
        for name in RENDERING:
            if request.get(name):
                raise Refused(name, "this engine's prompts are rendered by the recorder with the model's own template")
        if request.get("add_generation_prompt") is False:
            raise Refused("add_generation_prompt", "the recorder renders every prompt up to the assistant's reply")
    if mode == "rl" and not BENDING.isdisjoint(request):
        _check_sampling(request)


def _check_sampling(request: Mapping[str, Any]) -> None:
    for name, neutral in NEUTRAL.items():
        if name in request and request[name] is not None and request[name] not in ALSO_NEUTRAL.get(name, (neutral,)):
            raise Refused(name, _bent(request[name], neutral))
    for name, values in ALSO_NEUTRAL.items():
        if name in request and request[name] is not None and request[name] not in values:
            raise Refused(name, _bent(request[name], values[0]))
    for name in EMPTY:
        if request.get(name):
            raise Refused(name, _bent(request[name], None))


def _bent(got: Any, neutral: Any) -> str:
    return (
        f"got {got!r:.60}, but training needs samples from the whole distribution: leave it out"
        + (f" or send {neutral!r}" if neutral is not None else "")
        + ", or record in distill mode"
    )


def forwarded(request: Mapping[str, Any], mode: str, *, ids: bool) -> dict[str, Any]:
    """The request as the engine gets it; `ids` asks for token ids and log-probabilities as well."""
    asked = {name: value for name, value in request.items() if name not in NOT_SENT}
    if mode == "rl":
        asked.update(NEUTRAL)
        if asked.get("temperature") is None:
            asked["temperature"] = 1.0
    if ids:
        asked["return_token_ids"] = True
        asked["logprobs"] = asked.get("logprobs") or "tokens"
    return asked


def answered(request: Mapping[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    """The response without what the client did not ask for. Shares the parts that stay."""
    ids, logprobs = bool(request.get("return_token_ids")), bool(request.get("logprobs"))
    if ids and logprobs:
        return response
    answer = {name: value for name, value in response.items() if ids or name not in EXTRAS}
    choices = []
    for choice in response.get("choices", ()):
        kept = {n: v for n, v in choice.items() if (ids or n != "token_ids") and (logprobs or n != "token_logprobs")}
        if not logprobs:
            kept["logprobs"] = None
        choices.append(kept)
    answer["choices"] = choices
    return answer


def tokens(response: Mapping[str, Any]) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]:
    """(prompt ids, token ids, log-probabilities) of a response, each None where it has none."""
    choice = response["choices"][0]
    prompt, ids = response.get("prompt_token_ids"), choice.get("token_ids")
    logprobs = choice.get("token_logprobs")
    if logprobs is None:
        content = (choice.get("logprobs") or {}).get("content")
        logprobs = None if content is None else [entry["logprob"] for entry in content]
    return _ids(prompt), _ids(ids), None if logprobs is None else np.array(logprobs, np.float32)


def _ids(values: Any) -> np.ndarray | None:
    if values is None:
        return None
    ids = np.array(values, np.int32)
    if ids.ndim != 1 or (len(ids) and ids.min() < 0):
        raise ValueError("token ids must be a list of numbers from 0 on")
    return ids


def token_fault(call: Call, mode: str) -> str | None:
    """What is wrong with an answer's token columns: missing (in rl mode), or not belonging together."""
    columns = {"prompt_token_ids": call.prompt_ids, "token_ids": call.token_ids, "logprobs": call.logprobs}
    missing = [name for name, column in columns.items() if column is None]
    if missing and mode == "rl":
        return (
            f"its answer has no {' and no '.join(missing)}, which training needs; use a server that returns them "
            "(vLLM does), or record in distill mode"
        )
    if call.token_ids is None or len(call.token_ids) == call.completion_tokens == len(
        call.token_ids if call.logprobs is None else call.logprobs
    ):
        return None
    return (
        f"{len(call.token_ids)} token ids, {None if call.logprobs is None else len(call.logprobs)} log-probabilities "
        f"and {call.completion_tokens} counted tokens in one answer; they must agree"
    )


def tool_call_id(message: Mapping[str, Any]) -> str:
    """Of the message's first tool call; "" when it has none."""
    calls = message.get("tool_calls")
    first = calls[0] if isinstance(calls, (list, tuple)) and calls else None
    return str(first.get("id", "")) if isinstance(first, Mapping) else ""


def constraints(request: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a request that constrain the sampling."""
    parts = {name: request[name] for name in GRAMMARS if request.get(name)}
    if parts.get("response_format") == {"type": "text"}:
        del parts["response_format"]
    choice = request.get("tool_choice")
    if isinstance(choice, Mapping) or choice == "required":
        parts["tools"] = [choice, request.get("tools")]
    return parts


def grammar_id(request: Mapping[str, Any]) -> str | None:
    """A name for what constrains the sampling: the same constraint, the same name."""
    parts = constraints(request)
    if not parts:
        return None
    return "g-" + blake2b(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()
