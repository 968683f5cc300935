"""Log-probabilities of chosen tokens without ever holding [tokens × vocabulary].

The output layer is applied to response positions only, a chunk at a time; the backward pass computes each chunk's
logits again. Legend: K actor tokens, H hidden size, V vocabulary, U distinct masks of W = ceil(V / 32) words.
Everything is in nats, in float32, at the temperature that sampled the token; where masks are given, over the tokens
that they allow. Masks stay packed, and are unpacked for a chunk at a time.

Left out: soft-capped or rescaled logits (a model that has them is refused when it is loaded).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

CHUNK_LOGITS = 1 << 22  # logits in memory at once, 16 MiB of float32
LOWEST = torch.finfo(torch.float32).min


@dataclass(frozen=True, slots=True)
class Allowed:
    """Which tokens each position may be: bit i % 32 of word i // 32 of its mask says it of token i."""

    table: Tensor  # (U, W) int32
    index: Tensor  # (K,) int64

    def of(self, tokens: Tensor) -> Allowed:
        """The same of these positions alone."""
        return Allowed(self.table, self.index[tokens])

    def unpacked(self, part: slice, vocabulary: int) -> Tensor:
        """(rows, V) bool."""
        numbers, where = self.index[part].unique(return_inverse=True)
        words = self.table[numbers]  # (u, W)
        bits = words[..., None] >> torch.arange(32, dtype=torch.int32, device=words.device) & 1  # (u, W, 32)
        return bits.bool().flatten(1)[:, :vocabulary][where]


def logprobs_and_entropy(
    hidden: Tensor,
    head: nn.Linear,
    targets: Tensor,
    temperature: Tensor,
    *,
    allowed: Allowed | None = None,
    chunk: int | None = None,
) -> tuple[Tensor, Tensor]:
    """log π(target) and the policy's entropy at each position, both (K,) float32; the entropy has no gradient.

    `hidden` (K, H) are the states that predict `targets` (K,); `temperature` (K,) divides the logits. Every target
    is among its `allowed` tokens.
    """
    rows = chunk or max(16, CHUNK_LOGITS // head.weight.shape[0])
    return _LogProbs.apply(hidden, head.weight, head.bias, targets, temperature, allowed, rows)


def _logits(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: Tensor, allowed: Allowed | None, part: slice
) -> Tensor:
    """Of these positions, (rows, V); −inf where a token is not allowed."""
    z = nn.functional.linear(hidden[part], weight, bias).float().div_(temperature[part, None])
    return z if allowed is None else z.masked_fill_(~allowed.unpacked(part, z.shape[1]), -torch.inf)


class _LogProbs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        temperature: Tensor,
        allowed: Allowed | None,
        rows: int,
    ) -> tuple[Tensor, Tensor]:
        logprobs = torch.empty(len(targets), dtype=torch.float32, device=hidden.device)
        entropy, log_z = torch.empty_like(logprobs), torch.empty_like(logprobs)
        for start in range(0, len(targets), rows):
            part = slice(start, start + rows)
            z = _logits(hidden, weight, bias, temperature, allowed, part)  # (rows, V)
            log_z[part] = torch.logsumexp(z, -1)
            logprobs[part] = z.gather(1, targets[part, None])[:, 0] - log_z[part]
            p = (z - log_z[part, None]).exp_()
            entropy[part] = log_z[part] - torch.linalg.vecdot(p, z.clamp_min_(LOWEST))  # 0 · (−inf) counts as 0
        ctx.save_for_backward(hidden, weight, bias, targets, temperature, log_z)
        ctx.allowed, ctx.rows = allowed, rows
        ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, temperature, log_z = ctx.saved_tensors
        scale = grads[0].float() / temperature  # d loss / d (logit before the temperature)
        d_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        d_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        d_bias = torch.zeros_like(bias) if bias is not None and ctx.needs_input_grad[2] else None
        for start in range(0, len(targets), ctx.rows):
            part = slice(start, start + ctx.rows)
            z = _logits(hidden, weight, bias, temperature, ctx.allowed, part)
            d_z = z.sub_(log_z[part, None]).exp_().mul_(-scale[part, None])  # (onehot − p)·scale
            d_z.scatter_add_(1, targets[part, None], scale[part, None])
            d_z = d_z.to(weight.dtype)
            if d_hidden is not None:
                torch.mm(d_z, weight, out=d_hidden[part])
            if d_weight is not None:
                d_weight.addmm_(d_z.t(), hidden[part])
            if d_bias is not None:
                d_bias += d_z.sum(0)
        return d_hidden, d_weight, d_bias, None, None, None, None
