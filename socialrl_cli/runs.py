"""The writer of a run directory: a kill at any moment loses nothing that was finished.

`Run.open` refuses a folder that is not empty unless it is told to `resume` it or to `clean` it, and `clean` refuses a
folder that no run has written. One process writes a run at a time: the lock is the operating system's, so it goes
with the process. A checkpoint is written under another name, flushed and renamed. On resume, metrics after the newest
whole checkpoint are dropped, because those steps are done again. As a context manager the run listens for Ctrl-C (see
`interrupt.py`). What the folder holds, and how it is read, is in `rundir.py`.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Self

from scenarios.errors import RunError, SocialRLError, UsageError
from socialrl_cli import rundir
from socialrl_cli.interrupt import Interrupt
from socialrl_cli.output import note, plain

LOCK = ".lock"
RESUME = "mend it, then continue with --resume"
TINY_DISK_BYTES = 1 << 20  # less free space than this, and whatever failed has failed because the disk is full


class Run:
    """One writer of one run directory; make it with `Run.open`."""

    def __init__(
        self, path: Path, lock: IO[str], *, attempt: int, keep: int, changes: Mapping[str, tuple[Any, Any]]
    ) -> None:
        self.path = path
        self.attempt = attempt
        self.keep = keep
        self.changes = changes  # configuration keys that a resume has changed: (before, now)
        self.watchers: list[Callable[[int, Mapping[str, Any]], None]] = []  # hear of every line of metrics
        self.finished = False  # set by `done`: an interrupt after the last step changes nothing
        self._made = False  # whether the folder itself is ours
        self._lock = lock
        self._interrupt = Interrupt()
        self._log = _opened(path / "attempts" / f"{attempt}.log", "a")
        self._metrics = _opened(path / "metrics.jsonl", "a")

    @classmethod
    def open(
        cls, path: str | Path, config: str = "", *, resume: bool = False, clean: bool = False, keep: int = 3
    ) -> Self:
        """Create, resume or clean a run directory and take its lock.

        `config` is the resolved configuration as TOML; `keep` is how many of the newest checkpoints stay (the best
        one always does; 0 keeps all). Raises RunError when the folder must not or cannot be written, UsageError for
        resume together with clean.
        """
        path = Path(path)
        if resume and clean:
            raise UsageError("--resume continues a run and --clean starts it over: give one of them")
        if resume and not rundir.is_run(path):
            raise UsageError(f"{path}: there is no run to resume; start it without --resume")
        with _disk(path, "cannot be opened", "choose another --run"):
            made = not path.exists()
            path.mkdir(parents=True, exist_ok=True)
            first = not (path / LOCK).exists()
            lock = _locked(path)
            try:
                run = cls._begin(path, lock, config, resume, clean, keep)
                run._made = made
                return run
            except BaseException:
                if first:  # a folder that is not ours stays as it was
                    (path / LOCK).unlink(missing_ok=True)
                lock.close()
                raise

    @classmethod
    def _begin(cls, path: Path, lock: IO[str], config: str, resume: bool, clean: bool, keep: int) -> Self:
        if clean:
            _clean(path)
        elif not resume and any(not item.name.startswith(".") for item in path.iterdir()):
            raise RunError(f"{path} is not empty{_state(path)}")
        changes = rundir.differences(rundir.read_config(path), config) if resume else {}
        write_text(path / "config.toml", f"{rundir.MARK}\n{config}")  # first: from here on the folder is a run's
        for name in ("checkpoints", "attempts"):
            (path / name).mkdir(exist_ok=True)
        for folder in (path, path / "checkpoints"):
            _sweep(folder)
        (path / rundir.RESULT).unlink(missing_ok=True)
        if resume:
            _truncate(path, max(rundir.steps(path), default=0))
        attempts = [int(log.stem) for log in (path / "attempts").glob("*.log") if log.stem.isdigit()]
        run = cls(path, lock, attempt=max(attempts, default=0) + 1, keep=keep, changes=changes)
        for key, (before, now) in changes.items():
            run.say(f"resuming with {key} = {now!r}, it was {before!r}")
        return run

    def say(self, message: str) -> None:
        """A message for people: on stderr and, with the time, in this attempt's log."""
        note(message)
        self._write(self._log, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {message}\n")

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Append one line of metrics; numbers that are not finite become null."""
        self._write(self._metrics, json.dumps({"step": step, **plain(metrics)}) + "\n")
        for watch in self.watchers:
            watch(step, metrics)

    def metrics(self) -> list[dict[str, Any]]:
        """Every line of metrics.jsonl so far."""
        return rundir.read_metrics(self.path)

    def save(self, step: int, write: Callable[[Path], None]) -> Path:
        """Make checkpoint `step`: `write(folder)` fills it; it appears under its name only when it is whole."""
        folder = self.path / "checkpoints"
        new, old, target = folder / f".new-{step}", folder / f".old-{step}", rundir.checkpoint(self.path, step)
        with _disk(self.path, f"checkpoint step-{step} could not be written"):
            try:
                new.mkdir()
                write(new)
                for file in new.rglob("*"):
                    _flush(file)
                if target.exists():
                    target.rename(old)
                new.rename(target)
                _flush(folder)
            finally:
                _sweep(folder)
            self._prune()
        return target

    def _prune(self) -> None:
        best = rundir.all_best(self.path)
        for step in rundir.steps(self.path)[: -self.keep] if self.keep else []:
            if rundir.checkpoint(self.path, step) not in best:
                _remove(rundir.checkpoint(self.path, step))

    def latest(self) -> Path | None:
        """The newest whole checkpoint."""
        steps = rundir.steps(self.path)
        return rundir.checkpoint(self.path, steps[-1]) if steps else None

    def mark_best(self, step: int, score: float, delegate: str = "") -> bool:
        """Remember checkpoint `step` as the best (of one delegate of several, where named) if its score is higher than
        the best so far; says whether it is."""
        best = rundir.best(self.path, delegate)
        if best is not None and not score > best["score"]:
            return False
        file = rundir.best_file(self.path, delegate)
        with _disk(self.path, f"{file.name} could not be written"):
            write_text(file, json.dumps({"step": step, "score": score}) + "\n")
        return True

    def best(self, delegate: str = "") -> Path | None:
        """The checkpoint that was marked best."""
        best = rundir.best(self.path, delegate)
        return None if best is None else rundir.checkpoint(self.path, int(best["step"]))

    def should_stop(self) -> bool:
        """Whether somebody asked to stop after the current step."""
        return self._interrupt.asked

    def done(self) -> None:
        """All the work is done: leaving the run is not an interruption any more."""
        self.finished = True

    def keep_result(self, document: Mapping[str, Any]) -> None:
        """Leave what a finished command has to say, for a resume that finds nothing left to do."""
        if self.finished:
            with _disk(self.path, f"{rundir.RESULT} could not be written"):
                write_text(self.path / rundir.RESULT, json.dumps(plain(document)) + "\n")

    def _write(self, file: IO[str], text: str) -> None:
        with _disk(self.path, f"{Path(file.name).name} could not be written"):
            file.write(text)
            file.flush()

    def close(self) -> None:
        for file in (self._log, self._metrics, self._lock):
            with suppress(OSError):  # what could not be written has been reported by the write
                file.close()

    def __enter__(self) -> Self:
        self._interrupt.listen()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        self._interrupt.stop_listening()
        try:
            if error is not None and not self._log.closed:
                self._log.writelines(traceback.format_exception(error))
        except OSError:
            pass  # the error itself matters more than its copy in the log
        finally:
            self.close()
        if isinstance(error, SocialRLError) and self.attempt == 1 and _is_bare(self.path):
            with suppress(OSError):  # refused before it began: the same command must work once that is mended
                for item in self.path.iterdir():
                    _remove(item)
                if self._made:
                    self.path.rmdir()
        if error is None and self.should_stop() and not self.finished:
            raise KeyboardInterrupt


def write_text(path: Path, text: str) -> None:
    """Replace a file whole: no reader, and no kill, ever sees half of it."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, encoding="utf-8")
    _flush(new)
    new.replace(path)


def _truncate(path: Path, step: int) -> None:
    rows = [row for row in rundir.read_metrics(path) if row.get("step", 0) <= step]
    write_text(path / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def _state(path: Path) -> str:
    if not rundir.is_run(path):
        return " and holds no run: choose another --run"
    steps = rundir.steps(path)
    reached = f"a checkpoint of step {steps[-1]}" if steps else "no checkpoint"
    return f": it holds a run with {reached}; --resume continues it, --clean starts it over"


def _is_bare(path: Path) -> bool:
    """Whether a first attempt has left nothing but its own frame: no call, row, metric or checkpoint."""
    frame = {path / "config.toml", path / LOCK, path / "attempts" / "1.log", *path.glob("attempts/1.rank*.log")}
    files = {item for item in path.rglob("*") if not item.is_dir()}
    return all(item in frame or item.stat().st_size == 0 for item in files) and not rundir.steps(path)


def _sweep(folder: Path) -> None:
    """Mend what a kill has left: a checkpoint that was set aside for its successor comes back, halves go."""
    for old in folder.glob(".old-*"):
        target = rundir.checkpoint(folder.parent, int(old.name.removeprefix(".old-")))
        if not target.exists():
            old.rename(target)
    for pattern in (".old-*", ".new-*", ".gone-*"):
        for leftover in folder.glob(pattern):
            shutil.rmtree(leftover)


def _clean(path: Path) -> None:
    items = [item for item in path.iterdir() if item.name != LOCK]
    if any(not item.name.startswith(".") for item in items) and not rundir.is_run(path):
        raise RunError(f"{path}: --clean removes only what a run has written, and no run has written this folder")
    for item in sorted(items, key=lambda item: item.name == "config.toml"):  # the mark goes last
        _remove(item)


def _remove(path: Path) -> None:
    """Delete a file, a link or a folder; a folder leaves its name first, so that no half of it looks whole."""
    if path.is_dir() and not path.is_symlink():
        gone = path.with_name(f".gone-{path.name.removeprefix('.gone-')}")
        shutil.rmtree(path.rename(gone))
    else:
        path.unlink()


def _locked(path: Path) -> IO[str]:
    lock = open(path / LOCK, "a+", encoding="utf-8")  # noqa: SIM115  (held open as long as the run)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise RunError(f"{path} is in use by process {holder}; wait for it, or choose another --run") from error
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def _opened(path: Path, mode: str) -> IO[str]:
    return open(path, mode, encoding="utf-8")


def _flush(path: Path) -> None:
    """Ask the disk to hold what was written, so that a rename never outruns its contents."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _disk(path: Path, what: str, remedy: str = RESUME) -> Iterator[None]:
    """Turn what the disk refuses into one line; a library that hides a full disk in its own error is seen through."""
    try:
        yield
    except SocialRLError:
        raise
    except OSError as error:
        raise RunError(f"{path}: {what}: {error.strerror or error}; {remedy}") from error
    except Exception as error:
        if path.exists() and shutil.disk_usage(path).free < TINY_DISK_BYTES:
            raise RunError(f"{path}: {what}: the disk is full; {remedy}") from error
        raise
