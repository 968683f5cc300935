"""The running batch of the embedded engine: requests join it and leave it, a token of each a step.

It has no event loop and no threads: a host (see `hosts`) brings messages, lets it step, and takes answers away. A
finished request leaves its keys and values in its slot: a later prompt that continues it, or begins like it, is
prefilled from there. A token depends on its request's seed and its own logits, never on its neighbours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from algos.grammars import Guide, ending_tokens
from algos.packing import last_feed_forward_at
from scenarios.errors import EngineError, ModelError, SocialRLError
from socialrl_cli.engines.attention import ATTENTION, Plan, check_attention, plan_step
from socialrl_cli.engines.base import Sampling, Scored
from socialrl_cli.engines.config import EmbeddedConfig
from socialrl_cli.engines.grammar import SlotGrammars
from socialrl_cli.engines.scoring import score
from socialrl_cli.engines.slots import Cache, Slots, sample

PIECE = 256  # cached tokens that a deterministic decode step attends at once


@dataclass(frozen=True, slots=True)
class Score:
    """Rate these tokens; answered with a `Scored`."""

    token_ids: np.ndarray
    top_k: int


@dataclass(frozen=True, slots=True)
class Publish:
    """The weights are `version` from now on. `weights` are loaded first, when the requests that run have ended;
    without them the shared ones have been changed already, and nothing may run."""

    version: int
    weights: Mapping[str, Any] | None = None


Work = Sampling | Score | Publish


@dataclass(eq=False, slots=True)
class Call:
    """A message with its number, and the slot it runs in."""

    number: int
    work: Work
    slot: int = -1


class Decoder:
    """`give(number, answer)` is called with each answer: (token ids, log-probabilities, the version that they are of),
    what a job returns, or an exception."""

    def __init__(
        self, model: Any, tokenizer: Any, config: EmbeddedConfig, name: str, give: Callable[[int, Any], None]
    ) -> None:
        self.config, self.name, self.give, self.version = config, name, give, 0
        self._whole, self._lm = model, bare(model)
        check_attention(self._lm, name)
        self.capacity, self.vocabulary = capacity_of(model, config, name), vocabulary_of(model)
        self.threads = config.threads or torch.get_num_threads()
        torch.set_num_threads(self.threads)
        # Rows of a matrix product agree bit for bit only where every thread has whole tiles of them.
        tile = 16 * self.threads if config.deterministic else 1
        slots = -(-config.slots // tile) * tile
        self._cache = Cache(self._lm, slots, self.capacity)
        self._no_mask = self._cache.whole.new_zeros((1, 1, 1, 1))  # four dimensions: transformers makes none of its own
        self._grammars = SlotGrammars(Guide(tokenizer, self.vocabulary, ending_tokens(self._lm, tokenizer)))
        self.counters = {"steps": 0, "decoded": 0, "prefilled": 0, "reused": 0}

        self._slots = Slots(slots, self.capacity)
        self._calls: list[Call | None] = [None] * slots  # that run
        self._waiting: deque[Call] = deque()  # for a slot
        self._held: deque[Call] = deque()  # publications, for the requests that run to end
        self._attention, self._lm.config._attn_implementation = self._lm.config._attn_implementation, ATTENTION
        try:
            self._probe()
        except Exception as error:
            self.close()
            if isinstance(error, SocialRLError):
                raise
            raise ModelError(f"{name}: the embedded engine cannot run it: {error}") from error

    def close(self) -> None:
        """The module gets its own attention back."""
        self._lm.config._attn_implementation = self._attention

    @property
    def idle(self) -> bool:
        """Nothing to do until the next message."""
        return not (self._waiting or self._held or self._slots.running.any())

    def accept(self, number: int, work: Work | None) -> None:
        """Take a message; without work, drop the call of this number."""
        try:
            if work is None:
                self._drop(number)
            elif isinstance(work, Sampling):
                if work.grammar is not None:
                    self._grammars.check(work.grammar)
                self._waiting.append(Call(number, work))
            elif isinstance(work, Score):
                self.give(number, self._score(work))
            elif work.weights is not None:
                self._held.append(Call(number, work))
            else:
                self._publish(work)
                self.give(number, None)
        except Exception as error:
            self.give(number, error)

    def advance(self) -> None:
        """One step of everything that runs. Whatever goes wrong, every pending call gets its answer."""
        try:
            if self._held and not self._slots.running.any():
                call = self._held.popleft()
                assert isinstance(call.work, Publish)
                try:
                    self._publish(call.work)
                    self.give(call.number, None)
                except SocialRLError as error:
                    self.give(call.number, error)
            if not self._held:
                self._admit()
            if self._slots.running.any():
                with torch.inference_mode():
                    self._step()
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Every pending call fails; nothing in the cache is trusted afterwards."""
        for slot in np.flatnonzero(self._slots.running).tolist():
            self._cache.wipe(slot, self._slots.known[slot])
        for call in (*self._calls, *self._waiting, *self._held):
            if call is not None:
                self.give(call.number, error)
        self._calls = [None] * len(self._calls)
        self._grammars.clear()
        self._waiting.clear()
        self._held.clear()
        self._slots.forget()

    def _drop(self, number: int) -> None:
        for call in (*self._calls, *self._waiting, *self._held):
            if call is not None and call.number == number:
                if call.slot >= 0:
                    self._release(call.slot)
                else:
                    (self._held if isinstance(call.work, Publish) else self._waiting).remove(call)

    def _release(self, slot: int) -> None:
        self._calls[slot] = None
        self._grammars.end(slot)
        self._slots.release(slot)

    def _score(self, asked: Score) -> Scored:
        self._whole.eval()
        return score(self._lm, asked.token_ids, asked.top_k)

    def _publish(self, asked: Publish) -> None:
        if asked.weights is None and (busy := int(self._slots.running.sum()) + len(self._waiting)):
            raise EngineError(f"{self.name}: version {asked.version} cannot be published while {busy} requests run")
        if asked.weights is not None:
            if unknown := sorted(asked.weights.keys() - self._whole.state_dict().keys()):
                raise ModelError(f"{self.name}: published weights have {unknown[0]}, which the model does not")
            self._whole.load_state_dict(dict(asked.weights), strict=False)
        self._slots.forget()
        self.version = asked.version

    def _admit(self) -> None:
        while self._waiting and not self._slots.running.all():
            call = self._waiting.popleft()
            assert isinstance(call.work, Sampling)
            block = self.config.block if self.config.deterministic else 0
            call.slot, kept = self._slots.take(call.work, self._cache, block)
            self._calls[call.slot] = call
            self._grammars.begin(call.slot, call.work.grammar)
            self.counters["reused"] += kept

    def _step(self) -> None:
        """One token of every decoding slot, and as many prompt tokens as fit of the joining ones."""
        fixed, at = self.config.deterministic, self._slots
        known, filled = at.known, at.filled
        running = np.flatnonzero(at.running)
        pending = known[running] - filled[running]
        rows, joining = running[pending == 1], running[pending > 1]
        joining = joining[at.used[joining].argsort()]
        counts = known[joining] - filled[joining]
        if not fixed:
            counts = np.clip(self.config.prefill_tokens - (counts.cumsum() - counts), 0, counts)
            joining, counts = joining[counts > 0], counts[counts > 0]
        elif len(joining):  # a chunk of one prompt, whose last token is left to a decode step
            rows, joining, counts = rows[:0], joining[:1], np.array([self.config.block])
        else:  # every slot
            rows = np.arange(len(known))
        offsets = len(rows) + counts.cumsum() - counts
        slots = np.concatenate((rows, np.repeat(joining, counts)))
        within = np.arange(len(rows), len(slots)) - np.repeat(offsets, counts)
        positions = np.concatenate((filled[rows], np.repeat(filled[joining], counts) + within))
        real = at.running[slots] & (positions < known[slots] - (fixed and len(joining) > 0))
        positions = np.where(real, positions, 0)
        plan = plan_step(self._cache, slots, positions, real, len(rows), offsets, counts, PIECE if fixed else 0)
        filled += np.bincount(slots[real], minlength=len(filled))
        owners, last = np.concatenate((rows, joining)), np.concatenate((np.arange(len(rows)), offsets + counts - 1))
        sampled = at.running[owners] & (filled[owners] == known[owners])
        if len(joining):
            at.chunked[joining] = filled[joining]
            owners, last, sampled = owners[sampled], last[sampled], sampled[sampled]
        logits = self._forward(at.tokens[slots, positions], positions, plan, last if len(joining) else None)
        self.counters["prefilled"] += int(real[len(rows) :].sum())
        if len(owners):
            uniform = at.uniforms[owners, np.minimum(known[owners], self.capacity - 1)]
            logits = self._grammars.apply(logits, owners, sampled)
            drawn = sample(logits, at.temperature[owners], uniform)
            self._extend(owners[sampled], *drawn[:, sampled])

    def _forward(self, tokens: np.ndarray, positions: np.ndarray, plan: Plan, keep: np.ndarray | None) -> torch.Tensor:
        """(N,) tokens at (N,) positions → logits (rows, V), of the tokens in `keep` or of all."""
        if self._whole.training:
            self._whole.eval()
        at = None if keep is None else self._cache.tensor(keep)
        with nullcontext() if at is None else last_feed_forward_at(self._lm.get_decoder(), at):
            logits = self._lm(
                input_ids=self._cache.tensor(tokens.astype(np.int64))[None],
                position_ids=self._cache.tensor(positions)[None],
                attention_mask=self._no_mask,
                use_cache=False,
                logits_to_keep=0 if at is None else at,
                plan=plan,
            ).logits[0]
        if len(plan.layers) != self._cache.layers:
            raise ModelError(f"{self.name}: not all of its layers use transformers' attention interface")
        self.counters["steps"] += 1
        return logits

    def _probe(self) -> None:
        """Two tokens in every slot: refuses a model, or with `deterministic` a machine, that comes out wrong."""
        slots, tokens, none = np.arange(len(self._calls)), np.arange(2), np.arange(0)
        with torch.inference_mode():
            plain = self._lm(input_ids=self._cache.tensor(tokens)[None], use_cache=False).logits[0, -1].float()
            for at in tokens:
                positions = np.full(len(slots), at)
                plan = plan_step(self._cache, slots, positions, slots >= 0, len(slots), none, none, PIECE)
                logits = self._forward(positions, positions, plan, None).float()
        tolerance = (1e-3 if logits.dtype == torch.float32 else 5e-2) * (1 + plain.abs().max())
        if (error := (logits - plain).abs().max()) > tolerance:  # not when there are NaNs: requests tell that
            raise ModelError(f"{self.name}: decoding differs from a forward pass by {error:.2g}; serve it with vLLM")
        if self.config.deterministic and not (logits == logits[0]).all():
            raise ModelError(f"{self.name}: rows of one batch differ; change the engine's slots or threads")

    def _extend(self, slots: np.ndarray, tokens: np.ndarray, logprobs: np.ndarray) -> None:
        """Appends a sampled token to each slot; answers the calls that end with it."""
        at, lengths = self._slots, self._slots.known[slots]
        at.tokens[slots, lengths], at.logprobs[slots, lengths], at.known[slots] = tokens, logprobs, lengths + 1
        self.counters["decoded"] += len(slots)
        for slot, token, n, good in zip(slots.tolist(), tokens, lengths.tolist(), np.isfinite(logprobs), strict=True):
            call = self._calls[slot]
            assert call is not None
            assert isinstance(call.work, Sampling)
            if good and n + 1 < call.work.limit and token not in call.work.stops:
                self._grammars.advance(slot, int(token))
                continue
            answer = slice(len(call.work.prompt), n + 1)
            if good:
                self.give(
                    call.number, (at.tokens[slot, answer].tolist(), at.logprobs[slot, answer].tolist(), self.version)
                )
            else:
                self._cache.wipe(slot, n)
                at.filled[slot] = 0
                message = f"{self.name}: the logits of answer token {n - answer.start} are not finite; "
                message += f"the weights of version {self.version} are probably broken"
                self.give(call.number, EngineError(message))
            self._release(slot)


def bare(model: Any) -> Any:
    """The causal LM inside a PEFT wrapper, or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def vocabulary_of(model: Any) -> int:
    return bare(model).config.get_text_config().vocab_size


def capacity_of(model: Any, config: EmbeddedConfig, name: str) -> int:
    """Tokens that prompt and answer may have. Raises ModelError where the model has no such context."""
    context = bare(model).config.get_text_config().max_position_embeddings
    if config.capacity > context:
        raise ModelError(f"{name}: capacity {config.capacity} is beyond its context of {context} tokens")
    return config.capacity or min(context, 2048)
