"""One trainer process of several (`trainers` starts them): joins the others, does a command's work, says how it ended.

The first process owns the run directory, the console and everything that plays. The others have a `Beside` for a run
and write nothing but their log, `attempts/N.rankR.log`. In the folder that it is given, process R leaves `R.pid` and,
at its end, `R.json`: a document, an error in a line, or that it was interrupted.

A process ends with its parent, and when it fails it waits for nobody.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from scenarios.errors import SocialRLError

INTERRUPTED = 130
PR_SET_PDEATHSIG = 1  # Linux: the signal that a process gets when its parent dies


def main(folder: Path) -> None:
    rank = int(os.environ["RANK"])
    _end_with_parent()
    (folder / f"{rank}.pid").write_text(str(os.getpid()))
    if rank:
        _speak_into(folder / f"{rank}.log")
    found, code = _outcome(json.loads((folder / "work.json").read_text(encoding="utf-8")), rank)
    new = folder / f".{rank}.json"
    new.write_text(json.dumps(found | {"at": time.time()}), encoding="utf-8")
    new.rename(folder / f"{rank}.json")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if code:
        os._exit(code)  # the others may hang, and threads that wait for them with them


def _outcome(task: Mapping[str, Any], rank: int) -> tuple[dict[str, Any], int]:
    """What is to be said of the end of this process, and its exit code."""
    from algos import distributed
    from socialrl_cli.output import plain

    try:
        with distributed.joined():
            return {"document": plain(_work(task, rank))}, 0
    except KeyboardInterrupt:
        return {"interrupted": True}, INTERRUPTED
    except SystemExit:
        return {"ended": True}, 1
    except SocialRLError as error:
        return {"error": type(error).__name__, "message": str(error)}, 1
    except Exception as error:
        lost = distributed.lost(error)
        if rank or not lost:  # the first process's log has it anyway
            traceback.print_exc()
        return {"error": "", "message": f"{type(error).__name__}: {error}", "lost": lost}, 1


def _work(task: Mapping[str, Any], rank: int) -> Any:
    import torch

    from algos import distributed
    from socialrl_cli.beside import Beside
    from socialrl_cli.config import loads
    from socialrl_cli.episodes import collect_seldom
    from socialrl_cli.runs import Run

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ["LOCAL_WORLD_SIZE"])))
    collect_seldom()
    config, path = loads(_named(task["kind"]), task["config"], "config.toml"), Path(task["run"])
    work = _named(task["work"])
    if rank:
        attempt = distributed.first(lambda: 0)
        (path / "attempts").mkdir(parents=True, exist_ok=True)  # another machine may not see the first one's
        _speak_into(path / "attempts" / f"{attempt}.rank{rank}.log")
        print(f"trainer {rank} of {distributed.size()}, process {os.getpid()}", flush=True)
        return work(config, Beside(path))
    with Run.open(path, task["config"], resume=task["resume"], clean=task["clean"]) as run:
        signal.signal(signal.SIGTERM, _end)  # from the launcher: another process is gone
        distributed.first(lambda: run.attempt)
        document = work(config, run)
        run.keep_result(document)
        return document


def _named(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def _end(_number: int, _frame: object) -> None:
    raise SystemExit


def _end_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _speak_into(path: Path) -> None:
    """Let everything that this process prints go to a file."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(file, stream.fileno())
    os.close(file)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
