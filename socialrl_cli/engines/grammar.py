"""Constrained decoding in the running batch: each slot that has a grammar keeps its own state of it.

Before a step samples, the logits of what a slot's grammar does not allow become −inf, so a token's log-probability is
over the allowed tokens and a forced one's is 0. Rows of other slots are not touched.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from algos.grammars import Guide, unpacked
from scenarios.errors import EngineError, UsageError


class SlotGrammars:
    """The grammars of the slots, by number of slot."""

    def __init__(self, guide: Guide) -> None:
        self.guide = guide
        self._states: dict[int, Any] = {}

    def check(self, text: str) -> None:
        """Refuse, before it waits for a slot, what is no grammar. Raises UsageError."""
        try:
            self.guide.matcher(text)
        except ValueError as error:
            raise UsageError(f"response_format: no grammar can be made of it: {error}") from error

    def begin(self, slot: int, text: str | None) -> None:
        """The slot's next tokens are to match `text`, or anything."""
        if text is not None:
            self._states[slot] = self.guide.matcher(text)

    def end(self, slot: int) -> None:
        self._states.pop(slot, None)

    def clear(self) -> None:
        self._states.clear()

    def apply(self, logits: Tensor, slots: np.ndarray, sampled: np.ndarray) -> Tensor:
        """(R, V) logits of R slots, of which some are `sampled` from → the same with what is forbidden at −inf."""
        if not self._states:
            return logits
        rows = [i for i, slot in enumerate(slots.tolist()) if sampled[i] and slot in self._states]
        if not rows:
            return logits
        masks = np.stack([self.guide.mask(self._states[int(slots[i])]) for i in rows])
        forbidden = torch.from_numpy(~unpacked(masks, logits.shape[-1])).to(logits.device)
        if len(rows) == len(logits):
            return logits.masked_fill(forbidden, -torch.inf)
        at = torch.tensor(rows, device=logits.device)
        return logits.index_copy(0, at, logits.index_select(0, at).masked_fill(forbidden, -torch.inf))

    def advance(self, slot: int, token: int) -> None:
        """The slot has sampled a token."""
        state = self._states.get(slot)
        if state is not None and not state.consume_token(token):
            raise EngineError(f"the grammar of slot {slot} refuses token {token}: {state.get_error()}")
