"""The tensors of the embedded engine: a preallocated key-value cache of slots, attention over it, sampling.

A step runs the model once over a flat row of tokens, (1, N): first one token of each decoding slot, then
the new prompt tokens of the joining ones. transformers hands every layer's queries, keys and values to
`attend`, which writes keys and values into the cache and reads the slots that it needs; without a `plan`
(the trainer's own forward passes) it is plain `sdpa`. Query heads that share a key head are folded into
the query length, so that keys are never repeated.

Legend: N tokens of the step, S slots, C capacity of a slot in tokens, L tokens attended, D decoding rows,
R joining rows of T tokens at most, H key heads, G query heads a key head, d head size, V vocabulary.
Leaves out: sliding windows, attention sinks, logit caps inside attention (refused), paging.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from scenarios.errors import ModelError

ATTENTION = "socialrl_slots"
UNSUPPORTED = ("sliding_window", "softcap", "s_aux", "position_bias", "head_mask")


class Cache:
    """Keys and values of `slots` slots, and a scratch slot (the last) that takes the writes of padding."""

    def __init__(self, layers: int, slots: int, heads: int, capacity: int, head_dim: int, like: torch.Tensor) -> None:
        self.slots, self.heads, self.capacity, self.head_dim = slots, heads, capacity, head_dim
        self.device, self.dtype = like.device, like.dtype
        shape = (layers, slots + 1, heads, capacity, head_dim)  # zeros: what is masked must still be finite
        self.keys = list(torch.zeros(shape, device=like.device, dtype=like.dtype))  # layers x (S+1, H, C, d)
        self.values = list(torch.zeros(shape, device=like.device, dtype=like.dtype))

    def copy(self, source: int, target: int, tokens: int) -> None:
        for states in (*self.keys, *self.values):
            states[target, :, :tokens] = states[source, :, :tokens]

    def clear(self, slots: int | slice = slice(None)) -> None:
        for states in (*self.keys, *self.values):
            states[slots] = 0

    def rows(self, slots: np.ndarray, positions: np.ndarray) -> torch.Tensor:
        """Where a layer's flat (S+1 * H * C, d) cache holds these tokens: (N * H,)."""
        heads = np.arange(self.heads)
        flat = (slots[:, None] * self.heads + heads) * self.capacity + positions[:, None]  # (N, H)
        return self.tensor(flat.reshape(-1))

    def tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device, non_blocking=True)

    def bias(self, last: np.ndarray, length: int) -> torch.Tensor:
        """Additive mask over `length` cached tokens, 0 up to each position in `last`, -inf after: (*last.shape, L)."""
        seen = self.tensor(np.arange(length) <= last[..., None])
        return torch.zeros(seen.shape, device=self.device, dtype=self.dtype).masked_fill_(~seen, -torch.inf)


@dataclass(slots=True)
class Decode:
    """One token of each of D slots, the first D tokens of the step."""

    count: int
    first: int  # the slots' range in the cache, read in place ...
    stop: int
    gather: torch.Tensor | None  # ... or, when few of the range decode, (D,) slots to gather
    spread: torch.Tensor | None  # (D,) their rows in the range; None when they fill it
    bias: torch.Tensor  # (rows * H, 1, L)


@dataclass(slots=True)
class Join:
    """Several new prompt tokens of each of R slots, padded to T."""

    slots: torch.Tensor  # (R,)
    take: torch.Tensor  # (R * T,) tokens of the step, padding repeats one
    keep: torch.Tensor  # (tokens,) rows of the (R * T) result that are no padding
    put: torch.Tensor  # (tokens,) tokens of the step that they belong to
    bias: torch.Tensor  # (R, 1, G * T, L)


@dataclass(slots=True)
class Plan:
    """What `attend` needs to know of a step; computed once, used by every layer."""

    cache: Cache
    write: torch.Tensor  # (N * H,)
    decode: Decode | None
    joins: list[Join]
    layers: set[int]  # layers that wrote: all of them, or the model does not use this interface


def plan_decode(cache: Cache, slots: np.ndarray, positions: np.ndarray, length: int, fixed: bool) -> Decode:
    """Slots ascending. `fixed` reads every slot, whichever of them decode."""
    first, stop = (0, cache.slots) if fixed else (int(slots[0]), int(slots[-1]) + 1)
    gather = spread = None
    if not fixed and len(slots) * 2 < stop - first:
        gather, last = cache.tensor(slots), positions
    elif len(slots) == stop - first:
        last = positions
    else:
        last = np.zeros(stop - first, np.int64)
        last[slots - first] = positions
        spread = cache.tensor(slots - first)
    bias = cache.bias(last, length)[:, None].expand(-1, cache.heads, -1).reshape(-1, 1, length)
    return Decode(len(slots), first, stop, gather, spread, bias)


def plan_join(
    cache: Cache,
    slots: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
    offsets: np.ndarray,
    groups: int,
    length: int,
) -> Join:
    """`offsets`: where in the step each row's tokens begin. Rows of similar counts belong together."""
    steps = np.arange(counts.max())
    valid = steps < counts[:, None]  # (R, T)
    within = np.where(valid, steps, 0)
    take = offsets[:, None] + within
    bias = cache.bias(starts[:, None] + within, length)  # (R, T, L)
    bias = bias[:, None].expand(-1, groups, -1, -1).reshape(len(slots), 1, -1, length)
    flat = take.reshape(-1)
    keep = np.flatnonzero(valid)
    return Join(cache.tensor(slots), cache.tensor(flat), cache.tensor(keep), cache.tensor(flat[keep]), bias)


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,  # (1, H * G, N, d)
    key: torch.Tensor,  # (1, H, N, d)
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    plan: Plan | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    if plan is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    if wanted := [name for name in UNSUPPORTED if kwargs.get(name) is not None]:
        raise ModelError(
            f"the embedded engine has no {wanted[0]} in attention, which this model uses; serve it with vLLM"
        )
    cache, layer = plan.cache, int(module.layer_idx)  # type: ignore[arg-type]
    plan.layers.add(layer)
    keys, values = cache.keys[layer], cache.values[layer]
    heads, d = cache.heads, cache.head_dim
    scale = d**-0.5 if scaling is None else scaling
    keys.view(-1, d).index_copy_(0, plan.write, key[0].transpose(0, 1).reshape(-1, d))
    values.view(-1, d).index_copy_(0, plan.write, value[0].transpose(0, 1).reshape(-1, d))
    q = query[0].transpose(0, 1)  # (N, H * G, d)
    part = plan.decode
    out = None
    if part is not None:
        out = decode_attention(q[: part.count], keys, values, part, heads, scale)
    if not plan.joins:
        return out.unsqueeze(0), None  # type: ignore[union-attr]
    whole = torch.empty(q.shape, device=q.device, dtype=q.dtype)
    if out is not None and part is not None:
        whole[: part.count] = out
    for join in plan.joins:
        whole.index_copy_(0, join.put, join_attention(q, keys, values, join, heads, scale))
    return whole.unsqueeze(0), None


def decode_attention(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, part: Decode, heads: int, scale: float
) -> torch.Tensor:
    """(D, H * G, d) → the same shape. One batched product per side; the scores are small, (rows * H, G, L)."""
    shape, length, d = q.shape, part.bias.shape[-1], q.shape[-1]
    q = q.reshape(shape[0], -1)
    if part.gather is not None:
        keys = keys[:, :, :length].index_select(0, part.gather)
        values = values[:, :, :length].index_select(0, part.gather)
    else:
        keys, values = keys[part.first : part.stop], values[part.first : part.stop]
        if part.spread is not None:
            q = q.new_zeros((part.stop - part.first, q.shape[1])).index_copy_(0, part.spread, q)
    keys, values = keys.flatten(0, 1)[:, :length], values.flatten(0, 1)[:, :length]  # (rows * H, L, d)
    scores = torch.baddbmm(part.bias, q.view(len(keys), -1, d), keys.transpose(1, 2), alpha=scale)
    out = torch.bmm(scores.softmax(-1), values)  # (rows * H, G, d)
    if part.spread is not None:
        out = out.view(-1, q.shape[1]).index_select(0, part.spread)
    return out.view(shape)


def join_attention(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, join: Join, heads: int, scale: float
) -> torch.Tensor:
    """Takes its tokens out of the step's, (N, H * G, d) → (tokens, H * G, d)."""
    rows, length, d = len(join.slots), join.bias.shape[-1], q.shape[-1]
    picked = q.index_select(0, join.take).view(rows, -1, heads, q.shape[1] // heads, d)  # (R, T, H, G, d)
    tokens = picked.shape[1]
    folded = picked.permute(0, 2, 3, 1, 4).reshape(rows, heads, -1, d)  # (R, H, G * T, d)
    keys = keys[:, :, :length].index_select(0, join.slots)
    values = values[:, :, :length].index_select(0, join.slots)
    out = F.scaled_dot_product_attention(folded, keys, values, attn_mask=join.bias, scale=scale)
    out = out.view(rows, heads, -1, tokens, d).permute(0, 3, 1, 2, 4).reshape(rows * tokens, -1, d)
    return out.index_select(0, join.keep)


def sample(logits: torch.Tensor, temperature: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """(R, V) logits, (R,) temperatures, 0 for greedy, (R,) numbers in [0, 1) → tokens and log-probabilities.

    (2, R) float64. The inverse of the cumulative distribution at the row's own number: a row never depends on another. A row
    whose logits are not finite gets a log-probability that is not finite.
    """
    greedy = temperature == 0
    x = logits.float() / torch.where(greedy, 1.0, temperature)[:, None]
    x -= x.amax(-1, keepdim=True)
    cumulative = x.exp().cumsum_(-1)
    total = cumulative[:, -1:]
    target = torch.minimum(uniform[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    token = torch.searchsorted(cumulative, target, right=True)
    token = torch.where(greedy[:, None], x.argmax(-1, keepdim=True), token).clamp_(max=x.shape[-1] - 1)
    logprob = x.gather(-1, token) - total.log()
    return torch.cat((token.double(), logprob.double()), dim=1).T


AttentionInterface.register(ATTENTION, attend)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
