"""Where a decoder runs: on a thread of this process, or in a process of its own, so that its steps and the event
loop of the games do not take turns at one interpreter lock.

A host takes numbered messages and hands the answers back as `answered([(number, answer), …])`, from a thread of its
own. The process gets the model through shared memory: what the trainer changes in place, it has changed there too.
It ends when it is closed or when this process is gone.
"""

from __future__ import annotations

import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from scenarios.errors import EngineError, SocialRLError
from socialrl_cli.engines.config import EmbeddedConfig
from socialrl_cli.engines.decoder import Decoder, Work
from socialrl_cli.engines.processes import process_context

Answers = list[tuple[int, Any]]
START_S = 120.0  # for a process to import what it needs and take the model
CLOSED = "the engine was closed before it answered"


class Host(Protocol):
    @property
    def counters(self) -> Mapping[str, int]: ...
    def send(self, number: int, work: Work | None) -> None: ...
    def close(self, timeout_s: float) -> None: ...


class ThreadHost:
    """The decoder shares the caller's module."""

    def __init__(
        self, model: Any, tokenizer: Any, config: EmbeddedConfig, name: str, answered: Callable[[Answers], None]
    ) -> None:
        self._answers: Answers = []
        self._answered = answered
        self._decoder = Decoder(model, tokenizer, config, name, lambda *answer: self._answers.append(answer))
        self._inbox: deque[tuple[int, Work | None]] = deque()
        self._wake, self._closed = threading.Condition(), False
        self._thread = threading.Thread(target=self._run, name="socialrl-engine", daemon=True)
        self._thread.start()

    @property
    def counters(self) -> Mapping[str, int]:
        return self._decoder.counters

    def send(self, number: int, work: Work | None) -> None:
        with self._wake:
            self._inbox.append((number, work))
            self._wake.notify()

    def close(self, timeout_s: float) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join(timeout_s)
        self._decoder.close()

    def _run(self) -> None:
        import torch

        decoder = self._decoder
        torch.set_num_threads(decoder.threads)
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._closed or self._inbox or not decoder.idle)
                messages = [self._inbox.popleft() for _ in range(len(self._inbox))]
            for number, work in messages:
                decoder.accept(number, work)
            if self._closed:
                break
            decoder.advance()
            self._flush()
        decoder.fail(EngineError(f"{decoder.name}: {CLOSED}"))
        self._flush()

    def _flush(self) -> None:
        if self._answers:
            given, self._answers = self._answers, []
            self._answered(given)


class ProcessHost:
    """The decoder has modules of its own around the same weights."""

    def __init__(
        self, model: Any, tokenizer: Any, config: EmbeddedConfig, name: str, answered: Callable[[Answers], None]
    ) -> None:
        self.name, self.counters = name, dict.fromkeys(("steps", "decoded", "prefilled", "reused"), 0)
        self._answered, self._lock, self._closed = answered, threading.Lock(), False
        context = process_context()
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), name="socialrl-engine", daemon=True)
        self._process.start()
        theirs.close()
        try:
            self._pipe.send((model.share_memory(), tokenizer, config, name))
            ready = self._received(START_S)
        except BaseException:
            self._end(0)
            raise
        if isinstance(ready, Exception):
            self._end(0)
            raise ready
        self._reader = threading.Thread(target=self._read, name="socialrl-engine-answers", daemon=True)
        self._reader.start()

    def send(self, number: int, work: Work | None) -> None:
        try:
            with self._lock:
                self._pipe.send((number, work))
        except OSError as error:
            raise EngineError(f"{self.name}: {self._gone()}") from error

    def close(self, timeout_s: float) -> None:
        self._closed = True
        with self._lock:
            self._end(timeout_s)
        self._reader.join(timeout_s)

    def _received(self, timeout_s: float | None) -> Any:
        try:
            if self._pipe.poll(timeout_s):
                return self._pipe.recv()
        except (OSError, EOFError):
            return EngineError(f"{self.name}: {self._gone()}")
        return EngineError(f"{self.name}: the engine's process was not ready in {timeout_s:g} s")

    def _read(self) -> None:
        while True:
            got = self._received(None)
            if isinstance(got, Exception):
                self._answered([(-1, got if not self._closed else EngineError(f"{self.name}: {CLOSED}"))])
                return
            answers, counters = got
            self.counters.update(counters)
            self._answered(answers)

    def _gone(self) -> str:
        self._process.join(1)
        return f"the engine's process has ended (exit code {self._process.exitcode})"

    def _end(self, timeout_s: float) -> None:
        """Ask it to end, then make it."""
        with suppress(OSError):
            self._pipe.send(None)
        self._process.join(timeout_s)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._pipe.close()


def _serve(pipe: Any) -> None:
    """The process: its first message is the model, the others calls, None the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its owner ends it
    try:
        answers: Answers = []
        model, tokenizer, config, name = pipe.recv()
        decoder = Decoder(
            model, tokenizer, config, name, lambda number, answer: answers.append((number, _portable(answer)))
        )
    except Exception as error:
        pipe.send(_portable(error))
        return
    pipe.send(None)
    try:
        while True:
            while decoder.idle or pipe.poll():
                message = pipe.recv()
                if message is None:
                    return
                decoder.accept(*message)
                if answers:
                    break
            decoder.advance()
            if answers:
                pipe.send((answers, decoder.counters))
                answers.clear()
    except (EOFError, OSError):
        return  # its owner is gone


def _portable(answer: Any) -> Any:
    """What arrives on the other side as it is: an exception whose state does not travel becomes an EngineError."""
    if not isinstance(answer, Exception):
        return answer
    if isinstance(answer, SocialRLError):
        try:
            pickle.loads(pickle.dumps(answer))
            return answer
        except Exception:
            return EngineError(str(answer))
    return EngineError(f"the engine failed: {type(answer).__name__}: {answer}")
