"""A server process that we own: started, waited for, its last words kept, ended whatever happens.

It runs under `supervise.py`, which ends its whole process group as soon as our end of a pipe closes: by `stop`, by an
exception, at exit, or because this process was killed. What it prints goes to a log file.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from scenarios.errors import EngineError, RunError
from socialrl_cli.engines import supervise

GRACE_S = 10.0  # for a server that was asked to end
POLL_S = 0.25
DYING_S = 10.0  # how long a server that broke off an answer may take to be gone
TAIL_BYTES = 64 * 1024
LAST_LINES = 3
SECONDHAND = ("root cause", "Engine core proc")
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy
PREFIX = re.compile(r"^\((?:\w+ ?)+pid=\d+\)\s*|^(?:ERROR|INFO|WARNING) \d\d-\d\d [\d:]+ \[[^\]]*\]\s*")


class Server:
    """One process behind one URL. `command` is its command line for a given port."""

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], *, port: int, log: Path,
        start_timeout_s: float,
    ) -> None:  # fmt: skip
        self.name, self.command, self.environment = name, list(command), dict(environment)
        self.url, self.port, self.log, self.start_timeout_s = f"http://127.0.0.1:{port}", port, log, start_timeout_s
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._file: IO[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers. Raises EngineError, with its last words, and RunError."""
        self.stop()
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self.log, "ab")  # noqa: SIM115  (open as long as the server)
        except OSError as error:
            raise RunError(f"{self.log}: cannot be written: {error.strerror}") from error
        script = [sys.executable, "-I", str(Path(supervise.__file__)), str(GRACE_S)]
        self.starts += 1
        try:
            self._process = subprocess.Popen(
                [*script, *self.command], stdin=subprocess.PIPE, stdout=self._file, stderr=subprocess.STDOUT,
                env=self.environment, start_new_session=True,
            )  # fmt: skip
            self._wait()
        except BaseException:
            self.stop()
            raise

    def _wait(self) -> None:
        deadline = time.monotonic() + self.start_timeout_s
        while not self._healthy():
            if self.dead:
                raise EngineError(f"{self.name}: the server did not start: {self.last_words()}")
            if time.monotonic() > deadline:
                limit = f"{self.start_timeout_s:g} s"
                raise EngineError(f"{self.name}: the server was not ready within {limit}: {self.last_words()}")
            time.sleep(POLL_S)

    def _healthy(self) -> bool:
        try:
            with OPENER.open(f"{self.url}/health", timeout=5) as answer:
                return answer.status == 200 and not self.dead
        except (OSError, ValueError):
            return False

    @property
    def dead(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def died(self, within_s: float = DYING_S) -> bool:
        """Whether it is gone, or will be in a moment: a broken answer comes before the end of a process."""
        deadline = time.monotonic() + within_s
        while not self.dead:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    def last_words(self) -> str:
        """Its likely complaint and its last lines, on one line, and where the log is."""
        code = None if self._process is None else self._process.poll()
        words = last_words(self.log)
        return f"{'' if code is None else f'exit code {code}; '}{words or 'it said nothing'} (log: {self.log})"

    def stop(self) -> None:
        """End it and all that it has started. Twice is once."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(GRACE_S + 5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._file is not None:
            self._file.close()
            self._file = None


def last_words(log: Path) -> str:
    """The last error that is not about another one, and the last lines, without time stamps."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [" ".join(_bare(line).split())[:300] for line in text.splitlines()]
    lines = [line for line in lines if line]
    lines = [line for line in lines if not any(words in line for words in SECONDHAND)]
    causes = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b.*:", line)][-1:]
    return " | ".join([*causes, *(line for line in lines[-LAST_LINES:] if line not in causes)])


def _bare(line: str) -> str:
    while (shorter := PREFIX.sub("", line)) != line:
        line = shorter
    return line


def free_port(wanted: int = 0) -> int:
    """A port of the loopback interface that nobody listens at; `wanted` when it is free. Raises EngineError."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError as error:
            raise EngineError(f"port {wanted} is in use; choose another, or 0 for a free one") from error
        return probe.getsockname()[1]


def ask(url: str, body: Mapping[str, Any] | None = None, *, key: str | None = None, timeout_s: float = 60.0) -> Any:
    """The JSON answer of a server, asked without an event loop; a refusal or silence is an EngineError."""
    import orjson

    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(url, None if body is None else orjson.dumps(body), headers)
    try:
        with OPENER.open(request, timeout=timeout_s) as answer:
            return orjson.loads(answer.read())
    except urllib.error.HTTPError as error:
        said = " ".join(error.read()[:300].decode(errors="replace").split())
        raise EngineError(f"{url}: HTTP {error.code}: {said}") from error
    except (OSError, ValueError) as error:
        raise EngineError(f"{url}: cannot be reached ({error}); is the server up?") from error
