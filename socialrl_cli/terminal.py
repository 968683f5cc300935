"""The terminal, or whatever stands in for it: shows text, and reads lines of standard input without blocking the loop.

On a terminal the text has colours; elsewhere it is plain. A regular file is read as it stands, since it never blocks.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from typing import TYPE_CHECKING, Any, TextIO

from socialrl_cli.output import console

if TYPE_CHECKING:
    from envs.agents.human import Kind

STYLES = {"rules": "", "told": "bold cyan", "turn": "", "fault": "yellow", "hint": "dim"}
CHUNK = 65_536


class Terminal:
    """Asks a person (see `envs.agents.human.Asker`). `stderr`: show everything there, to leave stdout to a result."""

    def __init__(self, *, stderr: bool = False, stdin: TextIO | None = None) -> None:
        self.console = console(stderr=stderr)
        self._stdin = stdin or sys.stdin
        self._read = b""  # what has been read of the lines to come
        self._ended = False

    def show(self, text: str, kind: Kind = "told") -> None:
        self.console.print(text, style=STYLES[kind], markup=False, highlight=False)

    async def ask(self, question: str) -> str:
        self.console.print(question, end="", markup=False, highlight=False)
        self.console.file.flush()
        line = await self._line()
        if not self._stdin.isatty():
            self.console.print(line, markup=False, highlight=False)  # what a terminal would have echoed
        return line

    async def _line(self) -> str:
        """The next line without its end. Raises EOFError."""
        handle = _waits(self._stdin)
        if handle is None:
            line = self._stdin.readline()
            if not line:
                raise EOFError
            return line.rstrip("\n")
        while b"\n" not in self._read and not self._ended:
            data = await _readable(handle)
            self._ended = not data
            self._read += data
        if not self._read:
            raise EOFError
        raw, _, self._read = self._read.partition(b"\n")
        return raw.decode("utf-8", "replace").rstrip("\r")


def _waits(stream: Any) -> int | None:
    """The descriptor of a stream that may keep a reader waiting; None for files and what has no descriptor."""
    try:
        handle = stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None
    return None if stat.S_ISREG(os.fstat(handle).st_mode) else handle


async def _readable(handle: int) -> bytes:
    """What a descriptor has to say, as soon as it says something; b"" at its end."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(handle, ready.set)
    except PermissionError:  # nothing to wait for: /dev/null, for example, has always something to say
        ready.set()
    try:
        await ready.wait()
    finally:
        loop.remove_reader(handle)
    try:
        return os.read(handle, CHUNK)
    except OSError:  # the terminal behind it is gone
        return b""
