"""Function calls in a model's own text → OpenAI's `tool_calls`, for engines that give text alone.

How a model writes a call is up to its chat template and training; three ways are read:

    <tool_call>{"name": …, "arguments": {…}}</tool_call>     Hermes, Qwen, SmolLM
    [TOOL_CALLS] [{"name": …, "arguments": {…}}]             Mistral
    {"name": …, "parameters": {…}}                           Llama; nothing else in the answer

What cannot be read stays text. Pure functions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

_BLOCK = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_LIST = re.compile(r"\[TOOL_CALLS\](.*)\Z", re.DOTALL)


def split(text: str, token_ids: Sequence[int]) -> tuple[str, list[dict[str, Any]]]:
    """(what stands beside the calls, the calls). `token_ids`, prompt and answer, name the calls."""
    blocks = _BLOCK.findall(text) or _LIST.findall(text)
    read = [_functions(block) for block in blocks or [text]]
    functions = [function for found in read for function in found or ()]
    if not functions or None in read:
        return text, []
    beside = _LIST.sub("", _BLOCK.sub("", text)).strip() if blocks else ""
    name = blake2b(repr(list(token_ids)).encode(), digest_size=16).hexdigest()
    return beside, [
        {"id": f"{name[:7]}{number:02d}", "type": "function", "function": function}
        for number, function in enumerate(functions)
    ]


def _functions(text: str) -> list[dict[str, str]] | None:
    """The functions that a JSON text calls; None when it is no call."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    out = []
    for call in found if isinstance(found, list) else [found]:
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            return None
        arguments = call.get("arguments", call.get("parameters", {}))
        if not isinstance(arguments, (dict, str)):
            return None
        written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        out.append({"name": call["name"], "arguments": written})
    return out
