"""How a model rates given tokens: plain forward passes, for teachers. Leaves out batches: one text at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from socialrl_cli.engines.base import Scored

CHUNK = 256  # tokens whose logits exist at once


def score(lm: Any, ids: np.ndarray, top_k: int) -> Scored:
    """`ids`: (T,), at least two of them."""
    tokens = torch.from_numpy(ids.astype(np.int64)).to(lm.device)
    past, parts = DynamicCache(config=lm.config), []
    with torch.inference_mode():
        for start in range(0, len(ids) - 1, CHUNK):
            here = slice(start, min(start + CHUNK, len(ids) - 1))
            logits = lm(input_ids=tokens[None, here], past_key_values=past, use_cache=True).logits[0]
            logprobs = logits.float().log_softmax(-1)
            own = logprobs.gather(1, tokens[here.start + 1 : here.stop + 1, None])[:, 0]
            best = logprobs.topk(min(top_k, logprobs.shape[-1]))
            parts.append([t.cpu().numpy() for t in (own, best.indices.int(), best.values)])
    return Scored(*(np.concatenate(column) for column in zip(*parts, strict=True)))
