"""The policy's log-probabilities of a batch's actor tokens, and what a model or a row must be for them to be right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from algos import distributed
from algos.grammars import Guide, Masks, ending_tokens, masks
from algos.logprobs import Allowed, logprobs_and_entropy
from algos.packing import Pack, packs, states
from algos.rows import ActorTokens, Row, actor_tokens
from scenarios.errors import DataError, ModelError

if TYPE_CHECKING:
    from algos.models import Models

EXACT_NATS = {torch.float32: 1e-3, torch.bfloat16: 0.2}  # how far our log-probabilities may be from the model's own


@dataclass(frozen=True, slots=True)
class BatchTensors:
    """The per-token numbers of a batch that a forward pass needs, on the model's device, (K,) each."""

    ids: Tensor
    temperatures: Tensor
    behaviour: Tensor
    allowed: Allowed | None = None  # where tokens were sampled under a grammar

    @classmethod
    def of(cls, batch: ActorTokens, device: torch.device, allowed: Masks | None = None) -> BatchTensors:
        def to(array: np.ndarray) -> Tensor:
            return torch.from_numpy(array).to(device)

        support = None if allowed is None else Allowed(to(allowed.table), to(allowed.index))
        return cls(to(batch.ids), to(batch.temperatures), to(batch.logprobs), support)


def allowed(models: Models, batch: ActorTokens) -> Masks | None:
    """The tokens that the batch's grammars allowed; None when it has none. Raises DataError (see `grammars.masks`)."""
    if not any(row.grammars for row in batch.rows):
        return None
    if models.guide is None:
        ends = ending_tokens(models.actor, models.tokenizer)
        models.guide = Guide(models.tokenizer, models.actor.config.vocab_size, ends)
    return masks(batch, models.guide)


def policy(models: Models, model: Any, pack: Pack, batch: BatchTensors) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities and entropies of the pack's actor tokens, (K,) each, and their states (K, H)."""

    def read() -> tuple[Tensor, Tensor, Tensor]:
        with models.computing():
            hidden = states(model.get_decoder(), pack)
        head = model.get_output_embeddings()
        logprobs, entropy = logprobs_and_entropy(
            hidden.to(head.weight.dtype),
            head,
            batch.ids[pack.tokens],
            batch.temperatures[pack.tokens],
            allowed=batch.allowed and batch.allowed.of(pack.tokens),
        )
        return logprobs, entropy, hidden

    return distributed.inside(model, read)


@contextmanager
def reference_policy(models: Models) -> Iterator[Any]:
    """The policy that η keeps the actor near: the model as loaded, or the actor without its fresh adapter."""
    if models.reference is not None:
        yield models.reference
        return
    models.actor.disable_adapters()
    try:
        yield models.actor
    finally:
        models.actor.enable_adapters()


def check_rows(models: Models, batch: ActorTokens) -> None:
    """Refuse rows that the model cannot read: too long, or of another tokenizer."""
    vocabulary = models.actor.config.vocab_size
    for row in batch.rows:
        if len(row.token_ids) > models.context:
            raise ModelError(
                f"episode {row.episode_id}: a row of {len(row.token_ids)} tokens is longer than the {models.context} "
                f"of the model {models.source} and its critic; shorten the games, or use models with a longer context"
            )
        if row.token_ids.max(initial=0) >= vocabulary:
            raise DataError(
                f"episode {row.episode_id}: token {row.token_ids.max()} is not among the {vocabulary} of the model "
                f"{models.source}; the rows were made with another tokenizer"
            )


def check_exact(models: Models) -> None:
    """Refuse a model whose log-probabilities, taken our way, are not those of its own forward pass."""
    vocabulary, name = models.actor.config.vocab_size, models.source
    rng = np.random.default_rng(0)
    rows = []
    for number, length in enumerate((5, 9)):
        ids = rng.integers(0, vocabulary, length).astype(np.int32)
        mask, zeros = np.arange(length) >= 2, np.zeros(length, np.float32)
        rows.append(Row(str(number), "", "", "", 0, ids, 2, mask, zeros, 1.0, 0.0))
    batch = actor_tokens(rows)
    with torch.no_grad():
        try:
            (pack,) = packs(batch, range(2), 1 << 20, models.device)
            ours = policy(models, models.actor, pack, BatchTensors.of(batch, models.device))[0]
        except (AttributeError, TypeError, ValueError, RuntimeError) as error:
            raise ModelError(f"{name}: this architecture cannot be trained here ({error})") from error
        theirs = []
        for row in rows:
            ids_ = torch.from_numpy(row.token_ids.astype(np.int64)).to(models.device)
            with models.computing():
                logits = models.actor(input_ids=ids_[None], use_cache=False).logits[0].float()
            theirs.append(logits.log_softmax(-1)[1:-1].gather(1, ids_[2:, None])[:, 0])
    gap = float((ours - torch.cat(theirs)).abs().max())
    if not gap < EXACT_NATS[models.compute_dtype]:
        raise ModelError(
            f"{name}: log-probabilities of packed rows differ from the model's own by {gap:.2g}; an architecture "
            "with rescaled logits or layers that are not attention cannot be trained here"
        )
