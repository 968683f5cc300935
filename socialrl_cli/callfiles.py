"""The raw record: every model call of a run, in files that survive a kill.

A directory of parts, `part-000001.calls`, each one `MAGIC` and then frames (the payload is in `calls.py`):

    u32 length of the payload · u32 crc32 of the payload · payload

A call is written against the last call of its session in the same part. Every part stands alone, and a process always
begins a new one, so that only the last frame of a part can be torn. A frame goes to the operating system in one write
before its answer leaves (no fsync: what is written outlives the process, not the power). A write that fails ends the
recording: `RunError`, for that call and every later one.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from scenarios.errors import DataError, RunError
from socialrl_cli.calls import Call, decode, encode
from socialrl_cli.output import warn

MAGIC = b"srlcall1"
FRAME = struct.Struct("<II")
PART_BYTES = 256 * 2**20
REMEMBERED = 4096  # sessions whose last call is kept to write the next one against


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
        if self._file < 0:
            self._append(b"", begin=True)
        self._append(frame(encode(call, self._last.get(call.session))))
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

    def _append(self, data: bytes, begin: bool = False) -> None:
        if self.failure is not None:
            raise self.failure
        try:
            if begin:
                self._file, data = self._new_part(), MAGIC
            written = os.write(self._file, data)
            if written < len(data):  # a full disk may take a part; the rest says why
                written += os.write(self._file, data[written:])
            if written < len(data):
                raise OSError("only a part was written")
        except OSError as error:
            self.failure = RunError(
                f"{self.directory}: a model call could not be recorded ({error.strerror or error}); "
                "the run stops here: free some space or mend the directory, then resume"
            )
            raise self.failure from error
        self._size += len(data)
        self.bytes_written += len(data)

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


def parts(directory: Path | str) -> list[Path]:
    return sorted(Path(directory).glob("part-[0-9]*.calls"))


def iter_calls(directory: Path | str) -> Iterator[Call]:
    """Every call in the order in which it was written. A torn end of a part is left out with a warning."""
    for path in parts(directory):
        last: dict[str, Call] = {}
        for place, payload in frames(path):
            try:
                call = decode(payload, last)
            except (ValueError, KeyError, struct.error, zlib.error) as error:
                raise DataError(f"{path}: the frame at byte {place} is not a call: {error}") from error
            last[call.session] = call
            yield call


def read_calls(directory: Path | str) -> list[Call]:
    """All calls of a record, in the order in which they were written."""
    return list(iter_calls(directory))


def frame(payload: bytes) -> bytes:
    return FRAME.pack(len(payload), zlib.crc32(payload)) + payload


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
            if not length or end > size or (end == size and zlib.crc32(payload) != crc):
                warn(f"{path}: the last call, at byte {place}, is torn (left by a crash); set aside")
                return
            if zlib.crc32(payload) != crc:
                raise DataError(f"{path}: damaged at byte {place}; what follows it cannot be read")
            yield place, payload
            place = end
