"""Micro-batches side by side on the CPU: `workers` threads, each with its share of the packs.

torch's own threads meet at a barrier in every operation, so one busy core holds all of them up; these meet once a
mini-batch. Each works on a twin of the model, a copy of its modules around the same parameters, because a forward
pass sets attributes and hooks (see `packing`). Who gets which pack depends on their sizes alone, and gradients are
added in a fixed order: the same settings give the same bits, whatever else the machine does.

Where several trainer processes work together (`distributed`), each takes its share of the rows first, and makes as many
passes as the others, since a sharded model passes everywhere at once (and in one thread).

One extra gradient is held for each worker but the first. Left out: GPUs, where one thread keeps the device busy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import torch
from torch import Tensor, nn

from algos import distributed
from algos.packing import Pack, cut, empty_pack, packs, sized
from algos.rows import ActorTokens


def twin(model: nn.Module) -> Any:
    """The model's modules and settings once more, around the same parameters and buffers."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared)


class Team:
    """`workers` threads for passes over a model's packs."""

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers
        self._twins: dict[int, list[Any]] = {}
        self._pool = ThreadPoolExecutor(workers - 1) if workers > 1 else None

    def packs(self, batch: ActorTokens, rows: Sequence[int], budget: int, device: torch.device) -> list[Pack]:
        """This process's share of the rows in packs of up to `budget` tokens, at least one for each worker where the
        rows allow it."""
        rows, lengths = sized(batch, rows)
        shares = _shares(lengths, distributed.size())
        cuts = [cut([lengths[i] for i in share], self._budget([lengths[i] for i in share], budget)) for share in shares]
        own = shares[distributed.rank()]
        found = packs(batch, [rows[i] for i in own], self._budget([lengths[i] for i in own], budget), device)
        return found + [empty_pack(device)] * (max(map(len, cuts)) - len(found))

    def _budget(self, lengths: Sequence[int], budget: int) -> int:
        if self.workers == 1:
            return budget
        return min(budget, -(-sum(lengths) // self.workers) + max(lengths, default=0) // 2)

    def map(self, model: Any, work: Callable[[Any, Pack], Any], parts: Sequence[Pack], *, kept: bool = True) -> list:
        """What `work(model, pack)` gives for each pack, in their order. `kept`: the twins may serve again, since the
        model's settings do not change."""
        return self._run(model, lambda _worker, one, pack: work(one, pack), parts, kept)

    def backward(
        self, model: nn.Module, work: Callable[[Any, Pack], tuple[Tensor, Any]], parts: Sequence[Pack]
    ) -> list[tuple[Tensor, Any]]:
        """Add the gradients of the losses to the model; gives (loss, the rest of what `work` gave) for each pack."""
        parameters = [p for p in model.parameters() if p.requires_grad]
        sums: list[list[Tensor | None]] = [[None] * len(parameters) for _ in range(self.workers)]

        def learn(worker: int, one: Any, pack: Pack) -> tuple[Tensor, Any]:
            loss, rest = work(one, pack)
            if not worker:
                loss.backward()
            else:
                grads = torch.autograd.grad(loss, parameters, allow_unused=True)
                sums[worker] = [_plus(a, b) for a, b in zip(sums[worker], grads, strict=True)]
            return loss.detach(), rest

        found = self._run(model, learn, parts, True)
        for grads in sums[1:]:
            for parameter, grad in zip(parameters, grads, strict=True):
                parameter.grad = _plus(parameter.grad, grad)
        return found

    def _run(self, model: Any, job: Callable[[int, Any, Pack], Any], parts: Sequence[Pack], kept: bool) -> list:
        if self._pool is None or len(parts) < 2 or distributed.sharded(model):
            return [job(0, model, pack) for pack in parts]
        grad = torch.is_grad_enabled()

        def share(worker: int) -> list[Any]:
            with torch.set_grad_enabled(grad):
                return [job(worker, models[worker], parts[i]) for i in shares[worker]]

        models, shares = self._models(model, kept), _shares([pack.size for pack in parts], self.workers)
        others = [self._pool.submit(share, worker) for worker in range(1, self.workers)]
        try:
            done = [share(0)]
        finally:
            wait(others)
        done += [other.result() for other in others]
        found = {
            i: result
            for indices, results in zip(shares, done, strict=True)
            for i, result in zip(indices, results, strict=True)
        }
        return [found[i] for i in range(len(parts))]

    def _models(self, model: Any, kept: bool) -> list[Any]:
        if not kept:
            return [model, *(twin(model) for _ in range(1, self.workers))]
        if id(model) not in self._twins:  # the model is held with them, so that its id stays its own
            self._twins[id(model)] = [model, *(twin(model) for _ in range(1, self.workers))]
        return self._twins[id(model)]


def _plus(total: Tensor | None, more: Tensor | None) -> Tensor | None:
    return more if total is None else total if more is None else total.add_(more)


def _shares(sizes: Sequence[int], workers: int) -> list[list[int]]:
    """Which packs each worker takes: in order, the next one to whom has least so far."""
    shares: list[list[int]] = [[] for _ in range(workers)]
    load = [0] * workers
    for i, size in enumerate(sizes):
        worker = load.index(min(load))
        shares[worker].append(i)
        load[worker] += size
    return shares
