"""AdamW, learning-rate schedules and the guarded step that every algorithm takes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from algos import distributed
from scenarios.errors import ModelError, RunError

SCHEDULES = ("constant", "linear")


def schedule(step: int, total: int, *, kind: str = "constant", warmup: int = 0) -> float:
    """The factor on the learning rate in step 1…total: rises linearly over `warmup` steps, then `constant` stays
    at 1 and `linear` falls to 0 just after the last step."""
    if step <= warmup:
        return step / (warmup + 1)
    if kind == "constant":
        return 1.0
    if kind == "linear":
        return max(0.0, (total - step + 1) / max(total - warmup, 1))
    raise ValueError(f"schedule: got {kind!r}, expected one of {SCHEDULES}")


def adamw(
    parameters: Iterable[nn.Parameter], lr: float, *, weight_decay: float = 0.0, beta2: float = 0.999
) -> torch.optim.AdamW:
    """Fused AdamW over what is trainable."""
    trainable = [p for p in parameters if p.requires_grad]
    return torch.optim.AdamW(trainable, lr=lr, betas=(0.9, beta2), weight_decay=weight_decay, fused=True)


def set_lr(optimiser: torch.optim.Optimizer, lr: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = lr


def take_step(optimiser: torch.optim.Optimizer, loss: torch.Tensor, max_norm: float, *, what: str, step: int) -> float:
    """Sum the gradients of all processes, clip to `max_norm`, step, clear; returns the norm before clipping.

    Raises ModelError, before any weight has moved, when the loss or its gradient is not finite.
    """
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    distributed.sum_gradients(parameters)
    norm = float(distributed.unsharded(nn.utils.clip_grad_norm_(parameters, max_norm)))
    if not (math.isfinite(norm) and math.isfinite(loss)):
        optimiser.zero_grad(set_to_none=True)
        raise ModelError(
            f"step {step}: the loss of the {what} is {float(loss):.4g} and its gradient's norm {norm:.4g}; the "
            "weights are as before. Lower its learning rate, then continue from the last checkpoint with --resume"
        )
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return norm


@contextmanager
def within_memory(micro_tokens: int) -> Iterator[None]:
    """Translate torch's out-of-memory into one line that names the setting to lower."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not isinstance(error, torch.OutOfMemoryError):
            text = str(error).lower()
            if "not enough memory" not in text and "out of memory" not in text and "can't allocate" not in text:
                raise
        raise RunError(
            f"out of memory in a micro-batch of up to {micro_tokens} tokens: lower micro_tokens (the result stays "
            "the same), then continue with --resume"
        ) from error
