"""One look at a batch before it is learned from: what the critic, the actor and the reference make of it.

Everything is read without gradient and in one pass over the micro-batches; each trainer process reads its share of
them. K actor tokens, H hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from algos import distributed
from algos.critic import Critic, ValueHead
from algos.models import Models
from algos.packing import Pack
from algos.policy import BatchTensors, policy, reference_policy
from algos.rows import ActorTokens


@dataclass(slots=True)
class Look:
    """(K,) each, where it was asked for; zeros for the values where there is no critic."""

    values: Tensor  # V̄
    old: Tensor | None  # log π of the actor as it is
    reference: Tensor | None  # log π_ref
    features: Tensor | None  # (K, H): the actor's states, where a value head reads them and this process has them
    mine: Tensor  # (K,) bool: the tokens that this process has passed through the models


def look(
    models: Models, batch: ActorTokens, tensors: BatchTensors, micro_tokens: int, *, old: bool, reference: bool
) -> Look:
    """Read V̄, and log π_old and log π_ref if they are asked for."""
    device, team = models.device, models.team
    head = models.critic if isinstance(models.critic, ValueHead) else None
    parts = team.packs(batch, range(len(batch.rows)), micro_tokens, device)

    def empty(*shape: int) -> Tensor:
        return torch.zeros(len(batch.ids), *shape, device=device)

    def chosen(model: Any, pack: Pack) -> tuple[Tensor, Tensor]:
        logprobs, _, hidden = policy(models, model, pack, tensors)
        return logprobs, hidden.float() if head else logprobs

    def values(critic: Any, pack: Pack) -> Tensor:
        with models.computing():
            return critic(pack)

    def put(into: Tensor, results: Sequence[Tensor]) -> Tensor:
        for pack, result in zip(parts, results, strict=True):
            into[pack.tokens] = result
        return into

    def put_all(results: Sequence[Tensor]) -> Tensor:
        return distributed.total(put(empty(), results))

    out = Look(empty(), None, None, None, empty().bool())
    for pack in parts:
        out.mine[pack.tokens] = True
    with torch.no_grad():
        if old or head:
            seen = team.map(models.actor, chosen, parts)
            out.old = put_all([logprobs for logprobs, _ in seen]) if old else None
            if head:
                out.features = put(empty(models.actor.config.hidden_size), [states for _, states in seen])
                out.values = distributed.total(head(out.features) * out.mine)
        if isinstance(models.critic, Critic):
            out.values = put_all(team.map(models.critic, values, parts))
        if reference:
            with reference_policy(models) as model:  # without its adapter it is another model than its twins
                seen = team.map(model, chosen, parts, kept=models.reference is not None)
            out.reference = put_all([logprobs for logprobs, _ in seen])
    return out
