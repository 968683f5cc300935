"""Grammars: which tokens constrained decoding allows, for the engine that samples and for the trainer that rates again.

A grammar is public text: a JSON schema in llguidance's form, without free white space. `Guide` answers with one mask a
token, the end of the sequence included; the engine asks it before it samples, `masks` asks it again for rows that were
sampled so, and both see the same bits. A mask is a row of int32, token i being bit i % 32 of word i // 32. Legend: K
actor tokens of a batch, U distinct masks, V vocabulary, W = ceil(V / 32) words.

Left out: grammars of other backends (their rows are refused), tokenizers without a Rust half.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from scenarios.errors import DataError, ModelError

if TYPE_CHECKING:
    from algos.rows import ActorTokens, Row

BACKEND = "llguidance"
KEPT_GRAMMARS = 512  # compiled ones that a guide remembers


@dataclass(frozen=True, slots=True)
class Grammar:
    """What constrained a call: `text` in the language of `backend`, at the `version` that played."""

    id: str
    text: str
    backend: str = BACKEND
    version: str = ""


@dataclass(frozen=True, slots=True)
class Masks:
    """The tokens allowed at each actor token of a batch; mask 0 allows every token."""

    table: np.ndarray  # (U, W) int32
    index: np.ndarray  # (K,) int64, into the table


@cache
def backend_version() -> str:
    """Of the backend as installed."""
    from importlib.metadata import version

    return version(BACKEND)


def json_grammar(schema: Mapping[str, Any]) -> str:
    """The text of the grammar of a JSON schema; answers are compact JSON with the fields in the schema's order."""
    return _json_grammar(json.dumps(schema))


@lru_cache(maxsize=KEPT_GRAMMARS)
def _json_grammar(schema: str) -> str:
    import llguidance

    return llguidance.LLMatcher.grammar_from_json_schema(schema, overrides={"whitespace_flexible": False})


def ending_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens that end an answer of a transformers model."""
    ends = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    every = {*(ends if isinstance(ends, list | tuple) else [ends]), getattr(tokenizer, "eos_token_id", None)}
    return frozenset(int(end) for end in every if end is not None)


class Guide:
    """A model's tokens, as the backend knows them. Raises ModelError for a tokenizer that it cannot read."""

    def __init__(self, tokenizer: Any, vocabulary: int, ends: Iterable[int]) -> None:
        self.tokenizer, self.vocabulary, self.ends = tokenizer, vocabulary, sorted(ends)
        self.words = -(-vocabulary // 32)
        self._compiled: dict[str, Any] = {}

    @cached_property
    def _tokens(self) -> Any:
        import llguidance

        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None or not self.ends:
            what = "has no fast form" if backend is None else "names no token that ends an answer"
            raise ModelError(f"the tokenizer {what}, so its decoding cannot be constrained")
        try:
            plain = type(backend).from_str(backend.to_str())  # a copy
            plain.no_padding()
            plain.no_truncation()
            return llguidance.LLTokenizer(plain.to_str(), n_vocab=self.vocabulary, eos_token=self.ends)
        except (ValueError, TypeError) as error:
            raise ModelError(f"decoding cannot be constrained with this tokenizer: {error}") from error

    def matcher(self, text: str) -> Any:
        """A state of the grammar before its first token. Raises ValueError for a text that is no grammar."""
        import llguidance

        first = self._compiled.get(text)
        if first is None:
            first = llguidance.LLMatcher(self._tokens, text, log_level=0)
            if first.is_error():
                raise ValueError(" ".join(first.get_error().split())[:300])
            if len(self._compiled) >= KEPT_GRAMMARS:
                self._compiled.clear()
            self._compiled[text] = first
        return first.deep_copy()

    def mask(self, matcher: Any) -> np.ndarray:
        """The tokens that may come next, (W,) int32."""
        return np.frombuffer(matcher.compute_bitmask(), np.int32)[: self.words]


def allows(mask: np.ndarray, token: int) -> bool:
    return bool(mask[token // 32] >> (token % 32) & 1)


def unpacked(masks: np.ndarray, vocabulary: int) -> np.ndarray:
    """(…, W) int32 → (…, V) bool."""
    return np.unpackbits(masks.view(np.uint8), axis=-1, count=vocabulary, bitorder="little").view(bool)


def masks(batch: ActorTokens, guide: Guide) -> Masks:
    """What was allowed at each actor token, replayed through its call's grammar.

    Raises DataError when a token was not: the rows were sampled by another tokenizer, backend or version.
    """
    free = np.full(guide.words, -1, np.int32)
    numbers = {free.tobytes(): 0}
    table, index = [free], np.zeros(len(batch.ids), np.int64)
    for r, row in enumerate(batch.rows):
        own = slice(batch.row_starts[r], batch.row_starts[r + 1])
        positions = batch.positions[own]
        for start, end, grammar in row.grammars:
            first, last = own.start + np.searchsorted(positions, (start, end))
            if first == last:  # greedy: not trained
                continue
            for k, mask in enumerate(_replayed(row, start, end, grammar, guide), first):
                number = numbers.setdefault(mask.tobytes(), len(table))
                if number == len(table):
                    table.append(mask)
                index[k] = number
    return Masks(np.stack(table), index)


def _replayed(row: Row, start: int, end: int, grammar: Grammar, guide: Guide) -> Iterable[np.ndarray]:
    name = f"episode {row.episode_id}, seat {row.seat}, grammar {grammar.id}"
    if grammar.backend != BACKEND:
        raise DataError(f"{name}: its backend is {grammar.backend}, the trainer rebuilds masks with {BACKEND} alone")
    try:
        matcher = guide.matcher(grammar.text)
    except ValueError as error:
        raise DataError(f"{name}: {BACKEND} {backend_version()} cannot read it: {error}") from error
    for at, token in enumerate(row.token_ids[start:end].tolist(), start):
        mask = guide.mask(matcher)
        if not allows(mask, token):
            raise DataError(
                f"{name}: token {token} at {at} is not allowed by it; it was played with {BACKEND} {grammar.version}, "
                f"here is {backend_version()}: use the same version and tokenizer"
            )
        yield mask
        matcher.consume_token(token)
