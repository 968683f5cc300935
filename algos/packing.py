"""Micro-batches by token budget: rows laid end to end without padding, each attending to itself alone.

A pack is one forward pass: the rows' tokens in a line (1, N), positions that start again at every row, and attention
row by row. So a batch costs what its tokens cost, not what its longest row costs, lengths may be mixed freely, and a
row's result does not depend on what lies beside it. A row is cut behind the last state that predicts an actor token.

The attention function is registered with transformers under `PACKED` and switched on for the pass alone, so that a
model that an engine shares keeps the engine's. Left out: state-space and other layers that are not attention (they
would look across rows; a model with them is refused when it is loaded).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from algos.rows import ActorTokens
from scenarios.errors import ModelError

PACKED = "socialrl_packed"


@dataclass(frozen=True, slots=True)
class Pack:
    """One micro-batch of N tokens and K actor tokens."""

    input_ids: Tensor  # (1, N)
    position_ids: Tensor  # (1, N)
    lengths: list[int]  # of the rows, sum N
    at: Tensor  # (K,) where in N the states stand that predict the actor tokens
    tokens: Tensor  # (K,) which of the batch's actor tokens they predict

    @property
    def size(self) -> int:
        return self.input_ids.shape[1]


def cut(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices in the order given, in groups of at most `budget` tokens; a longer row is a group of its own."""
    groups: list[list[int]] = []
    room = 0
    for i, length in enumerate(lengths):
        if not groups or length > room:
            groups.append([])
            room = budget
        groups[-1].append(i)
        room -= length
    return groups


def token_budget(model: Any) -> int:
    """Tokens of a micro-batch whose activations take about 800 MB (a quarter of what a GPU has free), at most 4,096.

    A rough count: a layer keeps about 20 vectors of the hidden size and 6 of the feed-forward size for a token.
    """
    config = model.config
    hidden = config.hidden_size
    inner = getattr(config, "intermediate_size", None) or 4 * hidden
    a_token = 4 * config.num_hidden_layers * (20 * hidden + 6 * inner)
    room = torch.cuda.mem_get_info()[0] // 4 if model.device.type == "cuda" else 3 << 28
    return int(min(4096, max(256, room // a_token)))


def sized(batch: ActorTokens, rows: Sequence[int]) -> tuple[list[int], list[int]]:
    """Those of the rows that have actor tokens, and how many tokens of each are passed through a model."""
    rows = [r for r in rows if batch.row_starts[r] < batch.row_starts[r + 1]]
    return rows, [int(batch.positions[batch.row_starts[r + 1] - 1]) for r in rows]  # up to the last predicting state


def packs(batch: ActorTokens, rows: Sequence[int], budget: int, device: str | torch.device = "cpu") -> list[Pack]:
    """Cut these rows of a batch into micro-batches; rows without actor tokens cost nothing."""
    rows, lengths = sized(batch, rows)
    out = []
    for group in cut(lengths, budget):
        sizes = [lengths[i] for i in group]
        offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        ids = np.concatenate([batch.rows[rows[i]].token_ids[: lengths[i]] for i in group])
        tokens = batch.tokens_of([rows[i] for i in group])
        counts = [batch.row_starts[rows[i] + 1] - batch.row_starts[rows[i]] for i in group]
        arrays = (
            ids.astype(np.int64)[None],
            np.concatenate([np.arange(size) for size in sizes])[None],
            np.repeat(offsets, counts) + batch.positions[tokens] - 1,
            tokens,
        )
        ids_, positions, at, tokens_ = (torch.from_numpy(a).to(device) for a in arrays)
        out.append(Pack(ids_, positions, sizes, at, tokens_))
    return out


def empty_pack(device: str | torch.device = "cpu") -> Pack:
    """A pass that says nothing, for whoever has no rows left while others pass theirs."""
    nothing, token = (
        torch.zeros(0, dtype=torch.int64, device=device),
        torch.zeros(1, 1, dtype=torch.int64, device=device),
    )
    return Pack(token, token, [1], nothing, nothing)


def states(backbone: nn.Module, pack: Pack) -> Tensor:
    """The last hidden states that predict the pack's actor tokens, (K, H)."""
    with attending_by_row(backbone), last_feed_forward_at(backbone, pack.at):
        out = backbone(
            input_ids=pack.input_ids, position_ids=pack.position_ids, use_cache=False, row_lengths=pack.lengths
        )
    return out.last_hidden_state[0].index_select(0, pack.at)


@contextmanager
def attending_by_row(model: nn.Module) -> Iterator[None]:
    """Switch the model to row-by-row attention for a forward pass."""
    register()
    config: Any = model.config
    before = config._attn_implementation
    config._attn_implementation = PACKED
    try:
        yield
    finally:
        config._attn_implementation = before


@contextmanager
def last_feed_forward_at(backbone: nn.Module, at: Tensor) -> Iterator[None]:
    """Compute the last layer's feed-forward part at these positions alone: nobody reads the others' (zeros there)."""
    layers = getattr(backbone, "layers", None)
    last = getattr(layers[-1], "mlp", None) if isinstance(layers, nn.ModuleList) and len(layers) else None
    if not isinstance(last, nn.Module):
        yield
        return

    def narrow(_: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        sizes.append(args[0].shape[1])
        return (args[0].index_select(1, at),)

    def widen(_: nn.Module, __: tuple[Tensor], out: Any) -> Any:
        if isinstance(out, tuple):  # a mixture of experts says more than its output
            return (widen(_, __, out[0]), *out[1:])
        return out.new_zeros(1, sizes.pop(), out.shape[-1]).index_copy(1, at, out)

    sizes: list[int] = []
    hooks = (last.register_forward_pre_hook(narrow), last.register_forward_hook(widen))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def register() -> None:
    """Make the attention known to transformers, which builds no mask for a name that it has none for."""
    from transformers import AttentionInterface

    AttentionInterface.register(PACKED, attend)


def attend(
    module: nn.Module,
    query: Tensor,  # (1, heads, N, D)
    key: Tensor,  # (1, kv_heads, N, D)
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    row_lengths: list[int] | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_other: Any,
) -> tuple[Tensor, None]:
    """Causal attention within each row, (1, N, heads, D)."""
    if row_lengths is None or softcap is not None or s_aux is not None:
        raise ModelError(f"{type(module).__name__}: its attention (soft-capped, with sinks) cannot be trained here")
    parts = []
    for q, k, v in zip(*(x.split(row_lengths, 2) for x in (query, key, value)), strict=True):
        band = None
        if sliding_window is not None and q.shape[2] > sliding_window:
            band = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).tril()
            band = band.triu(1 - sliding_window)
        part = scaled_dot_product_attention(
            q, k, v, attn_mask=band, is_causal=band is None, scale=scaling, enable_gqa=q.shape[1] != k.shape[1]
        )
        parts.append(part.transpose(1, 2))
    return torch.cat(parts, 1), None
