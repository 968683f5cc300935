"""Processes of our own kind: forked from one that has imported what they need and has run nothing yet.

So they start in half a second, and forking hurts no thread of torch. Light to import.
"""

from __future__ import annotations

from typing import Any

NEEDED = "socialrl_cli.engines.hosts"


def process_context() -> Any:
    """A multiprocessing context whose messages carry tensors through shared memory."""
    import torch.multiprocessing as mp

    context = mp.get_context("forkserver")
    context.set_forkserver_preload([NEEDED])
    return context


def warm_up() -> None:
    """Start the process that the others are forked from; it imports in the background."""
    from multiprocessing import forkserver

    process_context()
    forkserver.ensure_running()
