"""Starts a command's trainer processes under torchrun's launcher, and makes one end of theirs.

On one machine they find each other by themselves. With several, the same command is given on each, with `--nnodes`, its
`--node-rank`, and one `--rdzv-endpoint`; the first machine plays and owns the run directory, and a run is resumed from
a folder that all of them see. What a process does is in `trainer.py`.

Ctrl-C once is handed to the first process, which finishes the step and saves; twice ends all of them. They end with
this process, whatever ends it. The first one that fails ends the others; its error, or its last lines, become ours.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from scenarios import errors
from scenarios.errors import RunError, UsageError

GRACE_S = 10  # between asking a process to end and ending it
LAST_LINES = 3
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Trainers:
    """How many trainer processes there are, and where: `nproc` on each of `nnodes` machines."""

    nproc: int = 1
    nnodes: int = 1
    node_rank: int = 0
    rdzv_endpoint: str = ""

    def __post_init__(self) -> None:
        if self.nproc < 1 or self.nnodes < 1:
            raise UsageError(f"--nproc {self.nproc} --nnodes {self.nnodes}: both must be at least 1")
        if not 0 <= self.node_rank < self.nnodes:
            raise UsageError(f"--node-rank {self.node_rank}: with --nnodes {self.nnodes} it is 0 to {self.nnodes - 1}")
        host, _, port = self.rdzv_endpoint.rpartition(":")
        if self.nnodes > 1 and not (host and port.isdigit()):
            raise UsageError(
                f"--nnodes {self.nnodes}: give --rdzv-endpoint HOST:PORT, the first machine's address and a free port"
            )

    @property
    def several(self) -> bool:
        return self.size > 1

    @property
    def size(self) -> int:
        return self.nproc * self.nnodes


def work_together(trainers: Trainers, task: Mapping[str, Any]) -> dict[str, Any] | None:
    """The document that the task's work gives in the first process; None on the other machines.

    `task`: `kind` and `work` (the configuration's class and the function, as module:name), `config` (TOML), `run`,
    `resume`, `clean`. Raises the error that a process ended with, and KeyboardInterrupt when asked to stop.
    """
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # we say it ourselves
    with tempfile.TemporaryDirectory(prefix="socialrl-") as name:
        folder, failed = Path(name), {}
        (folder / "work.json").write_text(json.dumps(dict(task)), encoding="utf-8")
        with _passing_signals_on(folder / "0.pid"):
            try:
                elastic_launch(_launch_config(trainers), sys.executable)("-m", "socialrl_cli.trainer", name)
            except ChildFailedError as error:
                failed = {rank: one.exitcode for rank, one in error.failures.items()}
        ends = {int(file.stem): json.loads(file.read_text(encoding="utf-8")) for file in folder.glob("[0-9]*.json")}
        logs = {rank: _last_lines(folder, Path(task["run"]), rank) for rank in failed}
    return _end_of_all(trainers.size, ends, failed, logs)


def _end_of_all(
    size: int, ends: Mapping[int, Mapping[str, Any]], failed: Mapping[int, int], logs: Mapping[int, str]
) -> dict[str, Any] | None:
    """One end out of what the processes said (`ends`), how they ended (exit codes of `failed`) and their last lines."""
    if ends.get(0, {}).get("interrupted"):
        raise KeyboardInterrupt
    said = sorted((end["at"], rank) for rank, end in ends.items() if "error" in end and not end.get("lost"))
    if said:
        rank = said[0][1]
        kind, message = ends[rank]["error"], ends[rank]["message"]
        raise getattr(errors, kind or "RunError")(
            f"trainer {rank} of {size}: {message}" if rank or not kind else message
        )
    silent = sorted(rank for rank in failed if rank not in ends)
    if silent:
        rank, code = silent[0], failed[silent[0]]
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        memory = " (out of memory?)" if code == -signal.SIGKILL else ""
        raise RunError(f"trainer {rank} of {size} {how}{memory}; continue with --resume.{logs.get(rank, '')}")
    left = sorted(rank for rank, end in ends.items() if end.get("lost"))
    if left:
        raise RunError(
            f"trainer {left[0]} of {size} lost the others ({ends[left[0]]['message']}); "
            "see attempts/*.rank*.log in the run of each machine, then continue with --resume"
        )
    return ends[0].get("document") if 0 in ends else None


def _launch_config(trainers: Trainers) -> Any:
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.launcher.api import LaunchConfig

    alone = trainers.nnodes == 1
    return LaunchConfig(
        min_nodes=trainers.nnodes,
        max_nodes=trainers.nnodes,
        nproc_per_node=trainers.nproc,
        run_id="socialrl",
        rdzv_backend="c10d" if alone else "static",
        rdzv_endpoint="localhost:0" if alone else trainers.rdzv_endpoint,
        rdzv_configs={} if alone else {"rank": trainers.node_rank},
        local_addr="localhost" if alone else None,
        max_restarts=0,
        logs_specs=DefaultLogsSpecs(log_dir=None),
        signals_to_handle="SIGHUP,SIGQUIT",  # the others are ours
        shutdown_timeout=GRACE_S,
    )


@contextmanager
def _passing_signals_on(first: Path) -> Iterator[None]:
    """Ctrl-C and SIGTERM go to the process whose number the file holds; the second one stops us."""
    asked = False

    def heard(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked or not first.exists():
            raise KeyboardInterrupt
        asked = True
        os.kill(int(first.read_text()), signal.SIGINT)

    before = {number: signal.signal(number, heard) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _last_lines(folder: Path, run: Path, rank: int) -> str:
    """How a process's log ends, as a sentence; "" for one that speaks to the console."""
    attempts = sorted(run.glob(f"attempts/*.rank{rank}.log"), key=lambda file: int(file.name.split(".")[0]))
    files = [folder / f"{rank}.log", *attempts[-1:]]
    lines = [line for file in files if file.exists() for line in file.read_text(errors="replace").splitlines()]
    shown = " | ".join(line.strip() for line in lines[-LAST_LINES:] if line.strip())
    return f" Its last lines: {shown}" if shown else ""
