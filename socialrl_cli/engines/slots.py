"""The slots of the embedded engine: their key-value cache, who has which, and sampling.

Legend: S slots, C capacity of a slot in tokens, H key heads, d head size, R rows, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from socialrl_cli.engines.base import Sampling

Array = np.ndarray
WORTH_COPYING = 16  # a shorter beginning shared with another slot is prefilled again, tokens


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
