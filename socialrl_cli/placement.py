"""Which GPUs a command uses, said in the recipe: `train_gpus`, one for each trainer process of this machine, and
`engine.vllm.infer_gpus`, for the server that it starts. Without them the trainers take the first ones, or the CPU where
there are none. Numbers are those that torch sees (CUDA_VISIBLE_DEVICES counts).
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from scenarios.errors import UsageError


def check_gpus(train: Sequence[int], infer: Sequence[int] = (), *, device: str = "auto", nproc: int = 0) -> None:
    """Refuse GPUs that are not there, are named twice, or are too few for `nproc` trainer processes. Raises
    UsageError."""
    if not train and not infer and nproc < 2:
        return
    import torch

    there = torch.cuda.device_count()
    for name, chosen in (("train_gpus", train), ("infer_gpus", infer)):
        absent = [number for number in chosen if not 0 <= number < there]
        if absent:
            has = f"has {there}, numbered from 0" if there else "has none; leave it empty to use the CPU"
            raise UsageError(f"{name}: no GPU {absent[0]} here: this machine {has}")
        if len(set(chosen)) < len(chosen):
            raise UsageError(f"{name}: {list(chosen)} names a GPU twice; each process needs its own")
    if train and device not in ("auto", "cuda"):
        raise UsageError(f"train_gpus: {list(train)} does not go with model.device = {device!r}; give one of them")
    taken = train or range(nproc if device != "cpu" else 0)
    if set(taken) & set(infer):
        both = min(set(taken) & set(infer))
        raise UsageError(f"infer_gpus: GPU {both} is a trainer's; say train_gpus and infer_gpus, and none in both")
    if train and len(train) != nproc:
        raise UsageError(f"train_gpus: {len(train)} for --nproc {nproc}; name one for each trainer process")
    if not train and nproc > 1 and device != "cpu" and 0 < there < nproc:
        raise UsageError(f"--nproc {nproc}: this machine has {there} GPUs; take fewer, or --set model.device=cpu")


def use_gpu(train: Sequence[int], device: str = "auto") -> None:
    """Let torch's own GPU be the one that is this trainer process's."""
    import torch

    number = int(os.environ.get("LOCAL_RANK", "0"))
    if torch.cuda.is_available() and device in ("auto", "cuda"):
        torch.cuda.set_device(train[number] if train else number)


def visible(gpus: Sequence[int]) -> dict[str, str]:
    """The environment in which a server sees these GPUs alone; as it is for none."""
    if not gpus:
        return {}
    ours = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    names = [ours[number] if number < len(ours) and ours[0] else str(number) for number in gpus]
    return {"CUDA_VISIBLE_DEVICES": ",".join(names)}
