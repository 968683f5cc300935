"""One look at a batch before it is learned from: what the critic, the actor and the reference make of it.

Everything is read without gradient and in one pass over the micro-batches. K actor tokens, H hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from algos.critic import Critic, ValueHead
from algos.models import Models
from algos.packing import packs
from algos.policy import BatchTensors, policy, reference_policy
from algos.rows import ActorTokens


@dataclass(slots=True)
class Look:
    """(K,) each, where it was asked for; zeros for the values where there is no critic."""

    values: Tensor  # V̄
    old: Tensor | None  # log π of the actor as it is
    reference: Tensor | None  # log π_ref
    features: Tensor | None  # (K, H): the actor's states, where a value head reads them


def look(
    models: Models, batch: ActorTokens, tensors: BatchTensors, micro_tokens: int, *, old: bool, reference: bool
) -> Look:
    """Read V̄, and log π_old and log π_ref if they are asked for."""
    device = models.device

    def empty(*shape: int) -> Tensor:
        return torch.zeros(len(batch.ids), *shape, device=device)

    out = Look(empty(), empty() if old else None, empty() if reference else None, None)
    with torch.no_grad():
        for pack in packs(batch, range(len(batch.rows)), micro_tokens, device):
            if old or isinstance(models.critic, ValueHead):
                logprobs, _, hidden = policy(models, models.actor, pack, tensors)
                if out.old is not None:
                    out.old[pack.tokens] = logprobs
                if isinstance(models.critic, ValueHead):
                    out.features = empty(hidden.shape[1]) if out.features is None else out.features
                    out.features[pack.tokens] = hidden.float()
            if isinstance(models.critic, Critic):
                with models.computing():
                    out.values[pack.tokens] = models.critic(pack)
            if out.reference is not None:
                with reference_policy(models) as model:
                    out.reference[pack.tokens] = policy(models, model, pack, tensors)[0]
        if isinstance(models.critic, ValueHead) and out.features is not None:
            out.values = models.critic(out.features)
    return out
