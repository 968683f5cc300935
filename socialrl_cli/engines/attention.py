"""Attention of the embedded engine over a preallocated key-value cache of slots.

A step runs the model once over a flat row of tokens, (1, N): one token of each decoding slot, then the new
prompt tokens of the joining ones. transformers hands every layer's queries, keys and values to `attend`,
which writes keys and values into the cache and reads the slots that it needs; without a `plan` (the
trainer's own forward passes) it is plain `sdpa`. Query heads that share a key head are folded into the
query length, so that keys are never repeated.

Legend: N tokens of the step, S slots, C capacity of a slot in tokens, L tokens attended, D decoding rows,
R joining rows of T tokens at most, H key heads, G query heads a key head, d head size.
Leaves out: sliding windows, attention sinks, logit caps inside attention (all refused), paging.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from scenarios.errors import ModelError
from socialrl_cli.engines.slots import Array, Cache

ATTENTION = "socialrl_slots"
ROUND = 16  # attended lengths are multiples of it
COPYING = 2.5  # cost of attending to what is copied out first, over that of reading it in place
WORTH_A_TAIL = 2000  # cached tokens unread that pay for reading tails apart
UNSUPPORTED = ("sliding_window", "softcap", "s_aux", "position_bias", "head_mask")


@dataclass(slots=True)
class Tail:
    """What the longest slots of a Decode hold behind the tokens that all of them read."""

    rows: Tensor  # which of the (slots read * H)
    tokens: slice
    bias: Tensor  # (rows, 1, tokens)


@dataclass(slots=True)
class Decode:
    """One token of each of D slots."""

    range: slice | None  # slots that are read in place; None: `slots` are copied out first
    slots: Tensor | None  # (D,), those of the range counted from its start; None: all of the range
    bias: Tensor  # (slots read * H, 1, L)
    tail: Tail | None
    piece: int  # tokens attended at once; 0: all


@dataclass(slots=True)
class Join:
    """New prompt tokens of each of R slots, padded to T."""

    slots: Tensor  # (R,)
    take: Tensor  # (R * T,) tokens of the step; padding repeats a row's first
    keep: Tensor  # (tokens,) which of the R * T are no padding
    bias: Tensor  # (R, 1, G * T, L)


@dataclass(slots=True)
class Plan:
    """What `attend` needs to know of a step: made once, used by every layer."""

    cache: Cache
    write: Tensor  # (N * H,)
    decoding: int  # the first D of the N tokens
    decode: Decode | None = None
    joins: list[Join] = field(default_factory=list)
    layers: set[int] = field(default_factory=set)  # that wrote: all, or the model does not use this interface


def plan_step(
    cache: Cache, slots: Array, positions: Array, real: Array, decoding: int, offsets: Array, counts: Array, piece: int
) -> Plan:
    """The first `decoding` of N tokens are one a slot, slots ascending; then `counts[r]` a row from `offsets[r]` on.

    What is not `real` is padding, and writes into the scratch slot. Unless `piece` is 0 every shape is fixed.
    """
    write = np.where(real, slots, cache.slots)[:, None] * cache.heads + np.arange(cache.heads)
    plan = Plan(cache, cache.tensor((write * cache.capacity + positions[:, None]).reshape(-1)), decoding)
    if decoding:
        plan.decode = plan_decode(cache, slots[:decoding], positions[:decoding], piece)
    # Rows are padded together when their counts, and their lengths, round up to the same powers of two.
    ends = positions[offsets + counts - 1] if not piece else counts
    size = np.maximum(np.ceil(np.log2((counts, ends + 1))), ((5,), (7,))) if len(counts) else np.zeros((2, 0))
    for power in np.unique(size, axis=1).T:
        same = (power == size.T).all(1)
        rows, count = offsets[same], counts[same]
        steps = np.arange(count.max())
        padding = steps >= count[:, None]  # (R, T)
        take = rows[:, None] + np.where(padding, 0, steps)
        length = cache.capacity if piece else cache.attended(positions[take], ROUND)
        bias = cache.bias(positions[take], length)[:, None].expand(-1, cache.groups, -1, -1)  # (R, G, T, L)
        bias = bias.reshape(len(rows), 1, -1, length)
        keep = cache.tensor(np.flatnonzero(~padding))
        plan.joins.append(Join(cache.tensor(slots[rows]), cache.tensor(take.reshape(-1)), keep, bias))
    return plan


def plan_decode(cache: Cache, slots: Array, positions: Array, piece: int) -> Decode:
    """The slots are read in place where they lie close together, else copied out first; all of them as far as
    most reach, and the tails of the longest apart."""
    first, count = int(slots[0]), int(slots[-1] - slots[0]) + 1
    apart = count > COPYING * len(slots)
    last = positions
    if not apart:  # slots between them read one token, and nobody reads what comes of it
        last = np.zeros(count, np.int64)
        last[slots - first] = positions
    length = cache.attended(last, piece or ROUND)
    common = length if piece or apart else most_reach(last, length)
    tail = None
    if common < length:
        rows = np.flatnonzero(last >= common)
        heads = (rows[:, None] * cache.heads + np.arange(cache.heads)).reshape(-1)
        bias = cache.bias(last[rows], length)[:, common:].repeat_interleave(cache.heads, 0)[:, None]
        tail = Tail(cache.tensor(heads), slice(common, length), bias)
    bias = cache.bias(last, common).repeat_interleave(cache.heads, 0)[:, None]
    chosen = cache.tensor(slots if apart else slots - first) if apart or len(slots) < count else None
    return Decode(None if apart else slice(first, first + count), chosen, bias, tail, piece)


def most_reach(last: Array, length: int) -> int:
    """How many tokens all rows read together, so that reading those and copying the others' tails costs least."""
    ends = np.sort(last) + 1
    common = -(-ends // ROUND) * ROUND
    longer = np.arange(len(ends))[::-1]  # rows that reach further, at most
    cost = len(ends) * common + COPYING * longer * (length - common) + np.where(common < length, WORTH_A_TAIL, 0)
    return min(int(common[cost.argmin()]), length)


def attend(
    module: torch.nn.Module,
    query: Tensor,  # (1, H * G, N, d)
    key: Tensor,  # (1, H, N, d)
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    plan: Plan | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface → (1, N, H * G, d)."""
    if plan is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    if wanted := [name for name in UNSUPPORTED if kwargs.get(name) is not None]:
        raise ModelError(f"the embedded engine's attention has no {wanted[0]}; serve this model with vLLM")
    layer, d = int(module.layer_idx), query.shape[-1]  # type: ignore[arg-type]
    plan.layers.add(layer)
    keys, values = plan.cache.keys[layer], plan.cache.values[layer]
    keys.view(-1, d).index_copy_(0, plan.write, key[0].transpose(0, 1).reshape(-1, d))
    values.view(-1, d).index_copy_(0, plan.write, value[0].transpose(0, 1).reshape(-1, d))
    scale = d**-0.5 if scaling is None else scaling
    q = query[0].transpose(0, 1)  # (N, H * G, d)
    if not plan.joins and plan.decode is not None:
        return decode_attention(q, keys, values, plan.decode, scale)[None], None
    out = torch.empty(q.shape, device=q.device, dtype=q.dtype)
    if plan.decode is not None:
        out[: plan.decoding] = decode_attention(q[: plan.decoding], keys, values, plan.decode, scale)
    for join in plan.joins:
        join_attention(q, keys, values, join, scale, out)
    return out[None], None


def decode_attention(q: Tensor, keys: Tensor, values: Tensor, part: Decode, scale: float) -> Tensor:
    """(D, H * G, d) → the same shape. On a CPU these products of small batches beat the fused kernel."""
    shape, d, length = q.shape, q.shape[-1], part.bias.shape[-1]
    q = q.reshape(shape[0], -1)
    if part.range is None:
        keys, values = (x[:, :, :length].index_select(0, part.slots) for x in (keys, values))  # type: ignore[arg-type]
    else:
        keys, values = keys[part.range], values[part.range]
        if part.slots is not None:
            q = q.new_zeros((len(keys), q.shape[1])).index_copy_(0, part.slots, q)
    keys, values = keys.flatten(0, 1), values.flatten(0, 1)  # (rows * H, L, d)
    q = q.reshape(len(keys), -1, d)
    if not part.piece:
        scores = torch.baddbmm(part.bias, q, keys[:, :length].transpose(1, 2), alpha=scale)
        out = torch.bmm(scores.softmax(-1), values[:, :length])  # (rows * H, G, d)
        if part.tail is not None:
            mass = scores.index_select(0, part.tail.rows).logsumexp(-1)
            add_tail(out, mass, q, keys, values, part.tail, scale)
    else:  # the same in pieces: one that is wholly masked changes no bit, however many follow
        out, top = torch.zeros_like(q), q.new_full((*q.shape[:2], 1), -torch.inf)
        total = torch.zeros_like(top)
        for start in range(0, length, part.piece):
            here = slice(start, min(start + part.piece, length))
            scores = torch.baddbmm(part.bias[..., here], q, keys[:, here].transpose(1, 2), alpha=scale)
            best = torch.maximum(top, scores.amax(-1, keepdim=True))
            weights, shrink = (scores - best).exp_(), (top - best).exp_()
            out = out * shrink + torch.bmm(weights, values[:, here])
            top, total = best, total * shrink + weights.sum(-1, keepdim=True)
        out = out / total
    if part.range is not None and part.slots is not None:
        out = out.view(-1, shape[1] * d).index_select(0, part.slots)
    return out.view(shape)


def add_tail(out: Tensor, mass: Tensor, q: Tensor, keys: Tensor, values: Tensor, tail: Tail, scale: float) -> None:
    """Mix the tail's share into its rows of `out` (rows, G, d), whose weights come to exp(`mass`), (tail's rows, G)."""
    keys, values = (x[:, tail.tokens].index_select(0, tail.rows) for x in (keys, values))
    scores = torch.baddbmm(tail.bias, q.index_select(0, tail.rows), keys.transpose(1, 2), alpha=scale)
    share = torch.sigmoid(scores.logsumexp(-1) - mass)[..., None]
    more = torch.bmm(scores.softmax(-1), values)
    out.index_copy_(0, tail.rows, torch.lerp(out.index_select(0, tail.rows), more, share))


def join_attention(q: Tensor, keys: Tensor, values: Tensor, join: Join, scale: float, out: Tensor) -> None:
    """Writes the result of its own tokens into the step's `out`, (N, H * G, d)."""
    rows, heads, length, d = len(join.slots), keys.shape[1], join.bias.shape[-1], q.shape[-1]
    picked = q.index_select(0, join.take).view(rows, -1, heads, q.shape[1] // heads, d)  # (R, T, H, G, d)
    tokens = picked.shape[1]
    folded = picked.permute(0, 2, 3, 1, 4).reshape(rows, heads, -1, d)  # (R, H, G * T, d)
    keys, values = (x[:, :, :length].index_select(0, join.slots) for x in (keys, values))
    got = scaled_dot_product_attention(folded, keys, values, attn_mask=join.bias, scale=scale)
    got = got.view(rows, heads, -1, tokens, d).permute(0, 3, 1, 2, 4).reshape(rows * tokens, -1, d)
    out.index_copy_(0, join.take.index_select(0, join.keep), got.index_select(0, join.keep))


def check_attention(lm: Any, name: str) -> None:
    """Refuses a model whose attention would come out wrong. Raises ModelError."""
    kinds = getattr(lm.config.get_text_config(), "layer_types", None) or ()
    if other := [kind for kind in kinds if kind != "full_attention"]:
        raise ModelError(f"{name}: {type(lm).__name__} has layers of {other[0]}; serve it with vLLM")
    if not getattr(lm, "_supports_attention_backend", False):
        raise ModelError(f"{name}: {type(lm).__name__} takes no other attention than its own; serve it with vLLM")
    if (own := lm.config._attn_implementation) not in ("sdpa", "eager"):
        hint = "another engine has it" if own == ATTENTION else "load it with attn_implementation='sdpa'"
        raise ModelError(f"{name}: its attention is {own!r}: {hint}")


AttentionInterface.register(ATTENTION, attend)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
