"""The tensors of the embedded engine: a preallocated key-value cache of slots, attention over it, sampling.

A step runs the model once over a flat row of tokens, (1, N): one token of each decoding slot, then the new
prompt tokens of the joining ones. transformers hands every layer's queries, keys and values to `attend`,
which writes keys and values into the cache and reads the slots that it needs; without a `plan` (the
trainer's own forward passes) it is plain `sdpa`. Query heads that share a key head are folded into the
query length, so that keys are never repeated.

Legend: N tokens of the step, S slots, C capacity of a slot in tokens, L tokens attended, D decoding rows,
R joining rows of T tokens at most, H key heads, G query heads a key head, d head size, V vocabulary.
Leaves out: sliding windows, attention sinks, logit caps inside attention (all refused), paging.
"""

from __future__ import annotations

import itertools
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
from socialrl_cli.engines.base import Sampling

Array = np.ndarray
ATTENTION = "socialrl_slots"
ROUND = 16  # attended lengths are multiples of it
COPYING = 1.5  # cost of attending to slots that are copied out first, over that of reading them in place
GROUPS, WORTH_A_GROUP = 4, 2000  # most groups of slots that attend together; cached tokens unread that pay for one
WORTH_COPYING = 16  # a shorter beginning shared with another slot is prefilled again, tokens
UNSUPPORTED = ("sliding_window", "softcap", "s_aux", "position_bias", "head_mask")


class Cache:
    """Keys and values of S slots, and of a scratch slot (the last) that takes what padding writes."""

    def __init__(self, lm: Any, slots: int, capacity: int) -> None:
        shape, like = lm.config.get_text_config(), lm.get_output_embeddings().weight
        self.slots, self.capacity, self.device = slots, capacity, like.device
        self.heads = getattr(shape, "num_key_value_heads", None) or shape.num_attention_heads
        self.groups, self.layers = shape.num_attention_heads // self.heads, shape.num_hidden_layers
        head_dim = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
        whole = (2, self.layers, slots + 1, self.heads, capacity, head_dim)
        size = int(np.prod(whole)) * like.element_size()
        # Zeros, since what is masked must be finite; numpy's take no memory until they are written.
        raw = torch.from_numpy(np.zeros(size + 64, np.uint8))
        self.whole = raw[-raw.data_ptr() % 64 :][:size].view(like.dtype).view(whole).to(like.device)
        self.keys, self.values = list(self.whole[0]), list(self.whole[1])  # per layer (S+1, H, C, d)

    def tensor(self, array: Array) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def wipe(self, slot: int, tokens: int) -> None:
        self.whole[:, :, slot, :, :tokens] = 0

    def attended(self, positions: Array, unit: int) -> int:
        """L that holds these positions, in whole units."""
        return min((int(positions.max()) // unit + 1) * unit, self.capacity)

    def bias(self, last: Array, length: int) -> Tensor:
        """Additive mask over `length` cached tokens, 0 up to each position in `last`, -inf after: (*last.shape, L)."""
        hidden = self.tensor(np.arange(length) > last[..., None])
        return torch.zeros(hidden.shape, device=self.device, dtype=self.whole.dtype).masked_fill_(hidden, -torch.inf)


class Slots:
    """Who has which slot, and what the cache holds of it. Arrays over the S slots."""

    def __init__(self, slots: int, capacity: int) -> None:
        self.tokens = np.zeros((slots, capacity), np.int32)
        self.logprobs, self.uniforms = np.zeros((2, slots, capacity), np.float32)
        self.temperature, self.running = np.ones(slots, np.float32), np.zeros(slots, bool)
        # Tokens of prompt and answer so far; the leading ones whose keys and values are in the cache; of
        # these, the ones that came in chunks of a fixed shape; the clock of the slot's last change of hands.
        self.known, self.filled, self.chunked, self.used = np.zeros((4, slots), np.int64)
        self.clock = 0

    def release(self, slot: int) -> None:
        self.clock += 1
        self.running[slot], self.used[slot] = False, self.clock

    def forget(self) -> None:
        for state in (self.running, self.filled, self.chunked, self.used):
            state[:] = 0

    def take(self, asked: Sampling, cache: Cache, block: int) -> tuple[int, int]:
        """The slot that the prompt continues, else the longest unused one with a copy of what another slot shares.

        Returns the slot and how many prompt tokens are kept; with a `block` only whole chunks are.
        """
        n = len(asked.prompt)
        differs = self.tokens[:, :n] != asked.prompt
        same = np.where(differs.any(1), differs.argmax(1), n)  # (S,) leading tokens that each slot has too
        same = np.minimum(same, np.minimum(self.filled, n - 1))
        slot = source = int(same.argmax())
        kept = int(min(same[source], self.chunked[source]) // block * block if block else same[source])
        if self.running[source] or same[source] < max(self.filled[source], 1):  # not a continuation
            slot = int(np.where(self.running, np.iinfo(np.int64).max, self.used).argmin())
            if slot != source:
                kept = kept if kept >= WORTH_COPYING else 0
                cache.whole[:, :, slot, :, :kept] = cache.whole[:, :, source, :, :kept]
        self.release(slot)  # moves the clock
        self.running[slot], self.temperature[slot] = True, asked.temperature
        self.tokens[slot, :n], self.known[slot] = asked.prompt, n
        self.filled[slot] = self.chunked[slot] = kept
        numbers = np.random.Generator(np.random.Philox(key=asked.seed % 2**128))
        self.uniforms[slot, n : asked.limit] = numbers.random(asked.limit - n, np.float32)
        return slot, kept


@dataclass(slots=True)
class Decode:
    """One token of each of D slots."""

    rows: slice | Tensor  # the D tokens of the step
    range: slice | None  # slots that are read in place; None: `slots` are copied out first
    slots: Tensor | None  # (D,), those of the range counted from its start; None: all of the range
    bias: Tensor  # (slots read * H, 1, L)
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
    decodes: list[Decode] = field(default_factory=list)
    joins: list[Join] = field(default_factory=list)
    layers: set[int] = field(default_factory=set)  # that wrote: all, or the model does not use this interface


def plan_step(
    cache: Cache, slots: Array, positions: Array, real: Array, decoding: int, offsets: Array, counts: Array, piece: int
) -> Plan:
    """The first `decoding` of N tokens are one a slot, slots ascending; then `counts[r]` a row from `offsets[r]` on.

    What is not `real` is padding, and writes into the scratch slot. Unless `piece` is 0 every shape is fixed.
    """
    write = np.where(real, slots, cache.slots)[:, None] * cache.heads + np.arange(cache.heads)
    plan = Plan(cache, cache.tensor((write * cache.capacity + positions[:, None]).reshape(-1)))
    if decoding:
        plan.decodes = plan_decodes(cache, slots[:decoding], positions[:decoding], piece)
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


def plan_decodes(cache: Cache, slots: Array, positions: Array, piece: int) -> list[Decode]:
    """Slots of similar lengths are read together: in place where they lie close together, else copied out first."""
    parts = []
    for rows in [np.arange(len(slots))] if piece else similar(positions):
        inside, last = slots[rows], positions[rows]
        first, count = int(inside[0]), int(inside[-1] - inside[0]) + 1
        length = cache.attended(last, piece or ROUND)
        apart = count > COPYING * len(rows)
        chosen = cache.tensor(inside if apart else inside - first) if len(rows) < count else None
        if not apart and len(rows) < count:
            last = np.zeros(count, np.int64)
            last[inside - first] = positions[rows]
        bias = cache.bias(last, length)[:, None].expand(-1, cache.heads, -1).reshape(-1, 1, length)
        here = slice(0, len(slots)) if len(rows) == len(slots) else cache.tensor(rows)
        parts.append(Decode(here, None if apart else slice(first, first + count), chosen, bias, piece))
    return parts


def similar(lengths: Array) -> list[Array]:
    """Indices in at most GROUPS groups, ascending in each, cut where reading to a group's longest wastes least."""
    order, cuts = lengths.argsort(kind="stable"), [0, len(lengths)]
    for _ in range(GROUPS - 1):
        best, at = WORTH_A_GROUP, 0
        for low, high in itertools.pairwise(cuts):
            span = lengths[order[low:high]]
            saves = (span[-1] - span) * np.arange(1, high - low + 1)  # cached tokens unread with a cut after each
            if saves.max() > best:
                best, at = int(saves.max()), low + int(saves.argmax()) + 1
        if at:
            cuts = sorted((*cuts, at))
    return [np.sort(order[low:high]) for low, high in itertools.pairwise(cuts)]


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
    if not plan.joins and len(plan.decodes) == 1:
        return decode_attention(q, keys, values, plan.decodes[0], scale)[None], None
    out = torch.empty(q.shape, device=q.device, dtype=q.dtype)
    for part in plan.decodes:
        out[part.rows] = decode_attention(q[part.rows], keys, values, part, scale)
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


def sample(logits: Tensor, temperature: Array, uniform: Array) -> Array:
    """(R, V) logits, (R,) temperatures, 0 for greedy, (R,) numbers in [0, 1) → tokens and log-probabilities.

    (2, R) float64. The inverse of the cumulative distribution at the row's own number: a row never depends
    on another. A row whose logits are not finite gets a log-probability that is not finite.
    """
    x = logits.float()
    if (temperature != 1).any():
        x = x / torch.from_numpy(np.where(temperature == 0, 1, temperature)).to(x)[:, None]
    x = x - x.amax(-1, keepdim=True)
    cumulative = x.exp().cumsum_(-1)
    total = cumulative[:, -1:]
    target = torch.from_numpy(uniform).to(x)[:, None] * total
    target = torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))
    token = torch.searchsorted(cumulative, target, right=True).clamp_(max=x.shape[-1] - 1)
    if (temperature == 0).any():
        greedy = torch.from_numpy(temperature == 0).to(x.device)[:, None]
        token = torch.where(greedy, x.argmax(-1, keepdim=True), token)
    logprob = x.gather(-1, token) - total.log()
    return torch.cat((token.double(), logprob.double()), dim=1).T.cpu().numpy()


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
