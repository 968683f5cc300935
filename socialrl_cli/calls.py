"""One model call, and the bytes that record it.

    payload = u32 length of the header · header (zlib, JSON) · prompt and reply ids · log-probabilities

Integers are little-endian. Ids are packed with as few bits as the largest one needs, log-probabilities are float32
and come back bit for bit. A call is written against an earlier one of its session: the messages and the prompt ids
that it shares with it are stored as a count. Times are seconds of the system clock since 1970. The files are in
`callfiles.py`. Left out: top-k alternatives and the texts of single tokens.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

LENGTH = struct.Struct("<I")
COMPRESSION = 1  # zlib: 3 KB of messages in about 15 µs


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One model call as it was asked and answered. Token columns are None where the engine gave none."""

    session: str
    index: int  # in the session, by arrival, from 0
    kind: str = "play"  # or "probe"
    prompt_ids: np.ndarray | None = None  # (P,) int32
    token_ids: np.ndarray | None = None  # (T,) int32, the stop token included
    logprobs: np.ndarray | None = None  # (T,) float32, nats, as processed
    messages: tuple[Mapping[str, Any], ...] = ()
    reply: str = ""
    message: Mapping[str, Any] = field(default_factory=dict)  # the whole answer: reply, tool calls, reasoning
    tools: Sequence[Mapping[str, Any]] | None = None
    temperature: float = 1.0
    policy_version: int = 0
    finish_reason: str | None = None
    grammar: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)  # the request's other fields
    completion_tokens: int = 0  # as the engine counted them
    started_at: float = 0.0
    finished_at: float = 0.0
    error: str | None = None

    def full_ids(self) -> np.ndarray:
        """The prompt and the reply, (P + T,) int32; empty without token columns."""
        if self.prompt_ids is None or self.token_ids is None:
            return np.empty(0, np.int32)
        return np.concatenate((self.prompt_ids, self.token_ids))

    def answered(self) -> tuple[Mapping[str, Any], ...]:
        """The messages and the reply as plain text, which is what most clients send back."""
        return (*self.messages, {"role": "assistant", "content": self.reply})

    def conversation(self) -> list[Mapping[str, Any]]:
        """The messages with the reply behind them."""
        return [*self.messages, *([self.message] if self.message else [])]


def shared(a: np.ndarray, b: np.ndarray) -> int:
    """How many entries two arrays have in common from the start."""
    n = min(len(a), len(b))
    if a[:n].tobytes() == b[:n].tobytes():  # the usual case, at a third of the cost
        return n
    differs = np.flatnonzero(a[:n] != b[:n])
    return int(differs[0]) if len(differs) else n


def pack(ids: np.ndarray) -> tuple[int, bytes]:
    """(bits an entry, bytes) of non-negative int32."""
    if not len(ids):
        return 0, b""
    bits = int(ids.max()).bit_length()
    planes = np.unpackbits(ids.astype(">u4").view(np.uint8).reshape(-1, 4), axis=1)
    return bits, np.packbits(planes[:, 32 - bits :]).tobytes()


def unpack(bits: int, count: int, data: bytes) -> np.ndarray:
    """The inverse of `pack`; `data` may be longer."""
    planes = np.zeros((count, 32), np.uint8)
    if bits:
        planes[:, 32 - bits :] = np.unpackbits(np.frombuffer(data, np.uint8), count=count * bits).reshape(count, bits)
    return np.packbits(planes, axis=1).reshape(-1).view(">u4").astype(np.int32)


def encode(call: Call, base: Call | None) -> bytes:
    """The payload of `call`, written against `base`, an earlier call of the same session."""
    messages, same_messages, same_ids = call.messages, 0, 0
    prompt = call.prompt_ids
    if base is not None:
        for ours, theirs in zip(messages, base.answered(), strict=False):
            if ours != theirs:
                break
            same_messages += 1
        if prompt is not None and base.prompt_ids is not None:
            same_ids = shared(prompt, base.full_ids())
    columns = [
        column for column in (None if prompt is None else prompt[same_ids:], call.token_ids) if column is not None
    ]
    bits, ids = pack(np.concatenate(columns)) if columns else (0, b"")
    logprobs = b"" if call.logprobs is None else call.logprobs.astype("<f4").tobytes()
    header: dict[str, Any] = {
        "session": call.session,
        "index": call.index,
        "kind": call.kind,
        "base": None if base is None else (base.index, same_messages, same_ids),
        "messages": messages[same_messages:],
        "message": call.message if call.message != {"role": "assistant", "content": call.reply} else None,
        "reply": call.reply,
        "tools": call.tools,
        "temperature": call.temperature,
        "version": call.policy_version,
        "finish": call.finish_reason,
        "grammar": call.grammar,
        "params": call.params,
        "completion": call.completion_tokens,
        "times": (call.started_at, call.finished_at),
        "error": call.error,
        "columns": (
            bits,
            -1 if prompt is None else len(prompt) - same_ids,
            -1 if call.token_ids is None else len(call.token_ids),
            -1 if call.logprobs is None else len(call.logprobs),
        ),
    }
    text = zlib.compress(orjson.dumps(header, option=orjson.OPT_NON_STR_KEYS), COMPRESSION)
    return b"".join((LENGTH.pack(len(text)), text, ids, logprobs))


def decode(payload: bytes, earlier: Mapping[str, Call]) -> Call:
    """The inverse of `encode`; `earlier` has the last call of each session before this one.

    Raises ValueError, KeyError, struct.error or zlib.error when the payload is no call.
    """
    (length,) = LENGTH.unpack_from(payload)
    header = orjson.loads(zlib.decompress(payload[LENGTH.size : LENGTH.size + length]))
    columns, base = payload[LENGTH.size + length :], earlier.get(header["session"])
    bits, n_prompt, n_tokens, n_logprobs = header["columns"]
    count = max(n_prompt, 0) + max(n_tokens, 0)
    ids = unpack(bits, count, columns)
    prompt = None if n_prompt < 0 else ids[:n_prompt]
    messages = tuple(header["messages"])
    if header["base"] is not None:
        index, same_messages, same_ids = header["base"]
        if base is None or base.index != index:
            raise ValueError(f"call {header['index']} of session {header['session']} needs call {index} before it")
        messages = base.answered()[:same_messages] + messages
        if same_ids and prompt is not None:
            prompt = np.concatenate((base.full_ids()[:same_ids], prompt))
    reply = header["reply"]
    logprobs = None
    if n_logprobs >= 0:
        logprobs = np.frombuffer(columns, "<f4", n_logprobs, (bits * count + 7) // 8).astype(np.float32)
    return Call(
        session=header["session"],
        index=header["index"],
        kind=header["kind"],
        prompt_ids=prompt,
        token_ids=None if n_tokens < 0 else ids[max(n_prompt, 0) :],
        logprobs=logprobs,
        messages=messages,
        reply=reply,
        message={"role": "assistant", "content": reply} if header["message"] is None else header["message"],
        tools=header["tools"],
        temperature=header["temperature"],
        policy_version=header["version"],
        finish_reason=header["finish"],
        grammar=header["grammar"],
        params=header["params"],
        completion_tokens=header["completion"],
        started_at=header["times"][0],
        finished_at=header["times"][1],
        error=header["error"],
    )
