"""Several trainer processes that take a step together; with one process everything here leaves things as they are.

All of them see the whole batch, and each passes its share of the rows through the models (`team`). A loss is a part of
the whole mini-batch's, so gradients and metrics are sums over the processes. What is trained whole is sharded (FSDP2):
weights, gradients and optimiser states lie on the processes in parts. Adapters and value heads are small: every process
has them, and their gradients are summed before the step. The first process alone plays and writes; `first` tells the
others what came of it.

A process that is lost ends the others' waiting with an error that `lost` knows: at once when it died, after the
deadline when it hangs. Left out: tensor and pipeline parallelism, a batch that no process could hold as rows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

T = TypeVar("T")
DEADLINE_S = 900.0  # of one exchange within an update
PATIENCE = timedelta(days=365)  # for the first process, which may be playing
SHELL, INSIDE = "_unsharded", "_run_inside"
SIGNS = ("connection closed", "connection reset", "broken pipe", "timed out", "gloo", "nccl")

_patient: Any = None  # the group in which the others wait for the first process


@contextmanager
def joined(deadline_s: float = DEADLINE_S) -> Iterator[None]:
    """Join the processes that torchrun has started. On an error nobody is waited for."""
    global _patient
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=deadline_s))
    _patient = dist.new_group(backend="gloo", timeout=PATIENCE)
    yield
    _patient = None
    dist.destroy_process_group()


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def lost(error: BaseException) -> bool:
    """Whether this is how a process learns that another one has died or hangs."""
    text = str(error).lower()
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and any(s in text for s in SIGNS))


def first(work: Callable[[], T]) -> T:
    """What `work()` gives in the first process, in all of them."""
    if size() == 1:
        return work()
    box: list[Any] = [None if rank() else work()]
    dist.broadcast_object_list(box, src=0, group=_patient)
    return box[0]


def total(part: Tensor) -> Tensor:
    """The sum over the processes, in place."""
    if size() > 1:
        dist.all_reduce(part)
    return part


def totals(parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same for several numbers, in one exchange."""
    if size() == 1 or not parts:
        return dict(parts)
    return dict(zip(parts, total(torch.stack([part.float() for part in parts.values()])), strict=True))


def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Give every process the sum of the gradients; those of sharded parameters are summed as they are made."""
    held = [p for p in parameters if not _is_sharded(p)]
    if size() == 1 or not held:
        return
    some = torch.tensor([float(p.grad is not None) for p in held], device=held[0].device)
    flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).float().flatten() for p in held])
    together = total(torch.cat([some, flat]))
    sums = together[len(held) :].split([p.numel() for p in held])
    for parameter, given, grad in zip(held, together[: len(held)].tolist(), sums, strict=True):
        parameter.grad = grad.view_as(parameter).to(parameter.dtype) if given else None


def shard(module: nn.Module, layers: Iterable[nn.Module]) -> None:
    """Spread a model's weights over the processes, each layer a unit of its own; its passes run `inside` it."""
    if size() == 1:
        return
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(next(module.parameters()).device.type, (size(),))
    empty: dict[int, Any] = {id(b): b for b in module.buffers()}
    empty |= {id(p): nn.Parameter(p.to("meta"), requires_grad=p.requires_grad) for p in module.parameters()}
    vars(module)[SHELL] = copy.deepcopy(module, empty)
    for unit in (*layers, module):
        fully_shard(unit, mesh=mesh, reshard_after_forward=True)
        assert isinstance(unit, FSDPModule)
        unit.set_gradient_divide_factor(1.0)  # sums, not means
        unit.set_force_sum_reduction_for_comms(True)  # gloo knows no other
    setattr(module, INSIDE, lambda work: work())
    register_fsdp_forward_method(module, INSIDE)


def sharded(module: nn.Module) -> bool:
    return SHELL in vars(module)


def inside(module: Any, work: Callable[[], T]) -> T:
    """`work()`, with the module's weights there to be read, as in its forward pass."""
    return getattr(module, INSIDE)(work) if sharded(module) else work()


def whole(module: Any) -> Any:
    """The module with all of its weights, on the CPU of the first process; the others take part and get their own."""
    if module is None or not sharded(module):
        return module
    shell = vars(module)[SHELL]
    filled: dict[int, Any] = {id(b): b.cpu() for b in shell.buffers()}
    for parameter, empty in zip(module.parameters(), shell.parameters(), strict=True):
        weight = unsharded(parameter.detach())
        if not rank():
            filled[id(empty)] = nn.Parameter(weight.cpu(), requires_grad=parameter.requires_grad)
    return module if rank() else copy.deepcopy(shell, filled)


def unsharded(tensor: Tensor) -> Tensor:
    """The whole of it, in every process."""
    return tensor.full_tensor() if _is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def gathered(tree: Any) -> Any:
    """Dicts and lists with every sharded tensor made whole, on the CPU of the first process (None in the others)."""
    if isinstance(tree, dict):
        return {key: gathered(item) for key, item in tree.items()}
    if isinstance(tree, list):
        return [gathered(item) for item in tree]
    if not (isinstance(tree, Tensor) and _is_sharded(tree)):
        return tree
    tensor = unsharded(tree)
    return None if rank() else tensor.cpu()


def like(whole: Any, tensor: Tensor) -> Any:
    """The part of a whole tensor that this process holds of `tensor`."""
    if not _is_sharded(tensor):
        return whole
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(tensor, DTensor)
    return distribute_tensor(whole.to(tensor.device), tensor.device_mesh, tensor.placements, src_data_rank=None)


def load_whole(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """`load_state_dict` with whole tensors, in place."""
    own = module.state_dict()
    module.load_state_dict({name: like(value, own[name]) if name in own else value for name, value in state.items()})


def _is_sharded(tensor: Tensor) -> bool:
    return hasattr(tensor, "device_mesh")
