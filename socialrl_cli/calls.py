"""The raw record: every model call of a run, in files that survive a kill.

A directory of parts, `part-000001.calls`, each one `MAGIC` and then frames:

    u32 length of the payload · u32 crc32 of the payload · payload
    payload = u32 length of the header · header (zlib, JSON) · prompt ids · token ids · log-probabilities

Integers are little-endian. Token ids are packed with as few bits as the largest one needs, log-probabilities are
float32 and come back bit for bit. A call is written against the last call of its session in the same part: the
messages and the prompt ids that it shares with it are stored as a count. Every part stands alone, and a process
always begins a new one, so that only the last frame of a part can be torn.

A frame goes to the operating system in one write before its answer leaves (no fsync: what is written outlives the
process, not the power). A write that fails ends the recording: `RunError`, for that call and every later one.
Times are seconds of the system clock since 1970. Left out: top-k alternatives and the texts of single tokens.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from scenarios.errors import DataError, RunError
from socialrl_cli.output import warn

MAGIC = b"srlcall1"
FRAME = struct.Struct("<II")
LENGTH = struct.Struct("<I")
PART_BYTES = 256 * 2**20
REMEMBERED = 4096  # sessions whose last call is kept to write the next one against
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

    def conversation(self) -> list[Mapping[str, Any]]:
        """The messages with the reply behind them."""
        return [*self.messages, *([self.message] if self.message else [])]


def shared(a: np.ndarray, b: np.ndarray) -> int:
    """How many entries two arrays have in common from the start."""
    n = min(len(a), len(b))
    differs = a[:n] != b[:n]
    return int(differs.argmax()) if differs.any() else n


def pack(ids: np.ndarray | None) -> tuple[int, bytes]:
    """(bits an entry, bytes) of non-negative integers below 2^31; (-1, b"") stands for None."""
    if ids is None:
        return -1, b""
    if not len(ids):
        return 0, b""
    bits = int(ids.max()).bit_length()
    planes = np.unpackbits(ids.astype(">u4").view(np.uint8).reshape(-1, 4), axis=1)
    return bits, np.packbits(planes[:, 32 - bits :]).tobytes()


def unpack(bits: int, count: int, data: bytes) -> np.ndarray | None:
    """The inverse of `pack`."""
    if bits < 0:
        return None
    planes = np.zeros((count, 32), np.uint8)
    if bits:
        planes[:, 32 - bits :] = np.unpackbits(np.frombuffer(data, np.uint8), count=count * bits).reshape(count, bits)
    return np.packbits(planes, axis=1).reshape(-1).view(">u4").astype(np.int32)


def packed_bytes(bits: int, count: int) -> int:
    return (max(bits, 0) * count + 7) // 8


def encode(call: Call, base: Call | None) -> bytes:
    """One frame: `call`, written against `base`, an earlier call of the same session."""
    messages, same_messages, same_ids = call.messages, 0, 0
    prompt = call.prompt_ids
    if base is not None:
        earlier = (*base.messages, {"role": "assistant", "content": base.reply})
        for ours, theirs in zip(messages, earlier, strict=False):
            if ours != theirs:
                break
            same_messages += 1
        if prompt is not None and base.prompt_ids is not None:
            same_ids = shared(prompt, base.full_ids())
    rest = None if prompt is None else prompt[same_ids:]
    prompt_bits, prompt_data = pack(rest)
    token_bits, token_data = pack(call.token_ids)
    logprobs = b"" if call.logprobs is None else call.logprobs.astype("<f4").tobytes()
    counts = (0 if rest is None else len(rest), 0 if call.token_ids is None else len(call.token_ids))
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
        "columns": (counts[0], prompt_bits, counts[1], token_bits, -1 if call.logprobs is None else len(call.logprobs)),
    }
    return frame(header, prompt_data, token_data, logprobs)


def frame(header: Mapping[str, Any], *columns: bytes) -> bytes:
    text = zlib.compress(orjson.dumps(header, option=orjson.OPT_NON_STR_KEYS), COMPRESSION)
    payload = b"".join((LENGTH.pack(len(text)), text, *columns))
    return FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def decode(header: Mapping[str, Any], columns: bytes, base: Call | None) -> Call:
    """The inverse of `encode`; `base` is the call that the header names."""
    prompt_count, prompt_bits, token_count, token_bits, logprob_count = header["columns"]
    first = packed_bytes(prompt_bits, prompt_count)
    second = first + packed_bytes(token_bits, token_count)
    prompt = unpack(prompt_bits, prompt_count, columns[:first])
    messages = tuple(header["messages"])
    if header["base"] is not None:
        index, same_messages, same_ids = header["base"]
        if base is None or base.index != index:
            raise ValueError(f"call {header['index']} of session {header['session']} needs call {index} before it")
        earlier = (*base.messages, {"role": "assistant", "content": base.reply})
        messages = earlier[:same_messages] + messages
        if same_ids and prompt is not None:
            prompt = np.concatenate((base.full_ids()[:same_ids], prompt))
    reply = header["reply"]
    logprobs = None
    if logprob_count >= 0:
        logprobs = np.frombuffer(columns, "<f4", logprob_count, second).astype(np.float32)
    return Call(
        session=header["session"],
        index=header["index"],
        kind=header["kind"],
        prompt_ids=prompt,
        token_ids=unpack(token_bits, token_count, columns[first:second]),
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


class CallWriter:
    """Appends calls to the newest part of `directory`; makes the directory and a new part at the first call."""

    def __init__(self, directory: Path | str, *, part_bytes: int = PART_BYTES, remembered: int = REMEMBERED) -> None:
        self.directory, self.part_bytes, self.remembered = Path(directory), part_bytes, remembered
        self.bytes_written = 0
        self.failure: RunError | None = None
        self._file = -1
        self._size = 0
        self._last: OrderedDict[str, Call] = OrderedDict()

    def write(self, call: Call) -> None:
        """Append one call. Raises RunError when it could not be written, and from then on always."""
        if self._size >= self.part_bytes:
            self.close()
        self._append(lambda: encode(call, self._last.get(call.session)))
        self._last[call.session] = call
        self._last.move_to_end(call.session)
        if len(self._last) > self.remembered:
            self._last.popitem(last=False)

    def forget(self, session: str) -> None:
        self._last.pop(session, None)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._size = -1, 0
        self._last.clear()

    def _append(self, make: Any) -> None:
        if self.failure is not None:
            raise self.failure
        try:
            if self._file < 0:
                self._file = self._new_part()
                self._size = self._put(MAGIC)
            self._size += self._put(make())
        except OSError as error:
            self.failure = RunError(
                f"{self.directory}: a model call could not be recorded ({error.strerror or error}); "
                "the run stops here: free some space or mend the directory, then resume"
            )
            raise self.failure from error

    def _new_part(self) -> int:
        self.directory.mkdir(parents=True, exist_ok=True)
        number = max((int(part.stem[5:]) for part in parts(self.directory)), default=0)
        while True:
            number += 1
            path = self.directory / f"part-{number:06d}.calls"
            try:
                return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
            except FileExistsError:
                continue

    def _put(self, data: bytes) -> int:
        written = os.write(self._file, data)
        if written < len(data):  # a full disk may take the first part only
            written += os.write(self._file, data[written:])
            if written < len(data):
                raise OSError("short write")
        self.bytes_written += len(data)
        return len(data)


def parts(directory: Path | str) -> list[Path]:
    return sorted(Path(directory).glob("part-[0-9]*.calls"))


def iter_calls(directory: Path | str) -> Iterator[Call]:
    """Every call in the order in which it was written. A torn end of a part is left out with a warning."""
    for path in parts(directory):
        last: dict[str, Call] = {}
        for place, payload in frames(path):
            try:
                (length,) = LENGTH.unpack_from(payload)
                header = orjson.loads(zlib.decompress(payload[4 : 4 + length]))
                call = decode(header, payload[4 + length :], last.get(header["session"]))
            except (ValueError, KeyError, struct.error, zlib.error) as error:
                raise DataError(f"{path}: the frame at byte {place} is not a call: {error}") from error
            last[call.session] = call
            yield call


def read_calls(directory: Path | str) -> list[Call]:
    """All calls of a record, in the order in which they were written."""
    return list(iter_calls(directory))


def frames(path: Path) -> Iterator[tuple[int, bytes]]:
    """(place, payload) of each whole frame; the torn last one is named in a warning. DataError inside the file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        magic = file.read(len(MAGIC))
        if magic != MAGIC:
            if MAGIC.startswith(magic):
                warn(f"{path}: empty, left by a crash; set aside")
                return
            raise DataError(f"{path}: not a record of calls")
        place = len(MAGIC)
        while head := file.read(FRAME.size):
            length, crc = FRAME.unpack(head) if len(head) == FRAME.size else (size, 0)
            end = place + FRAME.size + length
            payload = file.read(length) if end <= size else b""
            if end > size or (end == size and zlib.crc32(payload) != crc):
                warn(f"{path}: the last call, at byte {place}, is torn (left by a crash); set aside")
                return
            if zlib.crc32(payload) != crc:
                raise DataError(f"{path}: damaged at byte {place}; what follows it cannot be read")
            yield place, payload
            place = end
