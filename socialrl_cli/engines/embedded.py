"""Continuous batching inside the process, around any transformers causal LM on the CPU or one GPU.

Requests join and leave a running batch; one thread runs the steps, so the event loop stays free. The
weights are the trainer's own module: `publish` only moves the version and forgets the kept prefixes;
weights that change in place without it are noticed and refused. A finished request leaves its keys and
values in its slot: a later prompt that continues it, or begins like it, is prefilled from there. A token
depends on its request's seed and its own logits, never on its neighbours.

`deterministic` fixes every shape: a decode step has all slots and attends in pieces of one length, a
prefill step is one aligned chunk of `block` tokens of one request, and only such chunks are kept between
calls. An answer is then the same bit for bit whatever else runs; otherwise log-probabilities move by about
1e-6. Lengths are in tokens. Leaves out: truncating samplers, adapters by name, several devices.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from algos.grammars import Guide, ending_tokens
from algos.packing import last_feed_forward_at
from scenarios.errors import EngineError, ModelError, SocialRLError
from socialrl_cli.engines import base
from socialrl_cli.engines.attention import ATTENTION, Plan, check_attention, plan_step
from socialrl_cli.engines.base import Capabilities, Sampling, Scored
from socialrl_cli.engines.config import EmbeddedConfig
from socialrl_cli.engines.grammar import SlotGrammars
from socialrl_cli.engines.pending import Call, settle
from socialrl_cli.engines.scoring import score
from socialrl_cli.engines.slots import Cache, Slots, sample

PIECE = 256  # cached tokens that a deterministic decode step attends at once


class EmbeddedEngine:
    def __init__(
        self, model: Any, tokenizer: Any, config: EmbeddedConfig | None = None, *, model_name: str = "policy"
    ) -> None:
        """`model`: a transformers causal LM or a PEFT wrapper of one. It stays the caller's and is shared."""
        self.config = config = config or EmbeddedConfig()
        self.model, self.tokenizer, self.policy_version = model_name, tokenizer, 0
        can = ("token_ids", "logprobs", "scoring", "publishing", "grammars", "token_input")
        self.capabilities = Capabilities(**dict.fromkeys(can, True), deterministic=config.deterministic)
        self._whole, self._lm = model, model.get_base_model() if hasattr(model, "get_base_model") else model
        check_attention(self._lm, model_name)
        shape = self._lm.config.get_text_config()
        context = shape.max_position_embeddings
        if config.capacity > context:
            raise ModelError(f"{model_name}: capacity {config.capacity} is beyond its context of {context} tokens")
        self.capacity, self.vocabulary = config.capacity or min(context, 2048), shape.vocab_size
        self._threads = config.threads or torch.get_num_threads()
        torch.set_num_threads(self._threads)
        # Rows of a matrix product agree bit for bit only where every thread has whole tiles of them.
        tile = 16 * self._threads if config.deterministic else 1
        slots = -(-config.slots // tile) * tile
        self._cache = Cache(self._lm, slots, self.capacity)
        self._no_mask = self._cache.whole.new_zeros((1, 1, 1, 1))  # four dimensions: transformers makes none of its own
        self._ends = ending_tokens(self._lm, tokenizer)
        self._grammars = SlotGrammars(Guide(tokenizer, self.vocabulary, self._ends))
        self._parameters = list(model.parameters())
        self._weights = self._mark()
        self.counters = {"steps": 0, "decoded": 0, "prefilled": 0, "reused": 0}

        self._slots = Slots(slots, self.capacity)
        self._calls: list[Call | None] = [None] * slots  # that run
        self._inbox: deque[Call] = deque()  # from event loops
        self._waiting: deque[Call] = deque()  # for a slot
        self._wake, self._closed, self._served = threading.Condition(), False, 0
        self._attention, self._lm.config._attn_implementation = self._lm.config._attn_implementation, ATTENTION
        try:
            self._probe()
        except Exception as error:
            self._lm.config._attn_implementation = self._attention
            if isinstance(error, SocialRLError):
                raise
            raise ModelError(f"{model_name}: the embedded engine cannot run it: {error}") from error
        self._thread = threading.Thread(target=self._run, name="socialrl-engine", daemon=True)
        self._thread.start()

    # ---- on the caller's event loop ----

    async def chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        asked = base.read_request(request, self.tokenizer, self.capacity, self.vocabulary, self._ends)
        if asked.grammar is not None:
            self._grammars.check(asked.grammar)
        about = {"model": self.model, "policy_version": self.policy_version}
        ids, logprobs = await self._answer(asked)
        self._served += 1
        about["request_id"] = f"chatcmpl-{self._served}"
        return base.write_answer(asked, ids, logprobs, self.tokenizer, request, **about)

    async def score(self, token_ids: Sequence[int], top_k: int = 0) -> Scored:
        ids = base.token_array(token_ids, "token_ids", self.vocabulary)
        if not 2 <= len(ids) <= self.capacity:
            raise ModelError(f"{self.model}: score takes 2 to {self.capacity} tokens, got {len(ids)}")
        self._whole.eval()
        return await self._answer(lambda: score(self._lm, ids, top_k))

    async def publish(self, version: int, weights: Mapping[str, Any] | None = None) -> None:
        """The shared weights are `version` from now on (`weights` are loaded into them first). Nothing may run."""
        await self._answer(lambda: self._publish(version, weights))

    async def close(self) -> None:
        """Pending calls fail with an EngineError; the module gets its own attention back."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        await asyncio.to_thread(self._thread.join, self.config.timeout_s)
        self._lm.config._attn_implementation = self._attention

    async def _answer(self, work: Sampling | Callable[[], Any]) -> Any:
        call = Call(asyncio.get_running_loop().create_future(), work)
        self._send(call)
        try:
            return await asyncio.wait_for(call.answer, self.config.timeout_s)
        except TimeoutError:
            at = "waiting in the queue" if call.slot < 0 else f"running in slot {call.slot}"
            raise EngineError(f"{self.model}: no answer in {self.config.timeout_s:g} s; the call was {at}") from None
        finally:
            if call.answer.cancelled():
                self._send(call)  # a second time: to be dropped

    def _send(self, call: Call) -> None:
        with self._wake:
            if self._closed and not call.answer.cancelled():
                raise EngineError(f"{self.model}: the engine is closed")
            self._inbox.append(call)
            self._wake.notify()

    # ---- on the engine's thread ----

    def _run(self) -> None:
        torch.set_num_threads(self._threads)
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._closed or self._inbox or self._waiting or self._slots.running.any())
                calls = [self._inbox.popleft() for _ in range(len(self._inbox))]
            try:
                for call in calls:
                    self._accept(call)
                if self._closed:
                    break
                self._admit()
                if self._slots.running.any():
                    with torch.inference_mode():
                        self._step()
            except Exception as error:
                self._fail(error)
        self._fail(EngineError(f"{self.model}: the engine was closed before it answered"))

    def _accept(self, call: Call) -> None:
        if call.answer.cancelled():
            if call in self._waiting:
                self._waiting.remove(call)
            elif call.slot >= 0 and self._calls[call.slot] is call:
                self._release(call.slot)
        elif isinstance(call.work, Sampling):
            self._waiting.append(call)
        else:
            try:
                settle(call, call.work())
            except Exception as error:
                settle(call, error)

    def _release(self, slot: int) -> None:
        self._calls[slot] = None
        self._grammars.end(slot)
        self._slots.release(slot)

    def _fail(self, error: Exception) -> None:
        """Every pending call fails; nothing in the cache is trusted afterwards."""
        for slot in np.flatnonzero(self._slots.running).tolist():
            self._cache.wipe(slot, self._slots.known[slot])
        for call in (*self._calls, *self._waiting):
            if call is not None:
                settle(call, error)
        self._calls = [None] * len(self._calls)
        self._grammars.clear()
        self._waiting.clear()
        self._slots.forget()

    def _mark(self) -> list[int]:
        """Differs after every update of the weights in place."""
        return [parameter._version for parameter in self._parameters]

    def _publish(self, version: int, weights: Mapping[str, Any] | None) -> None:
        if busy := int(self._slots.running.sum()) + len(self._waiting):
            raise EngineError(f"{self.model}: version {version} cannot be published while {busy} requests run")
        if unknown := self._whole.load_state_dict(dict(weights or {}), strict=False).unexpected_keys:
            raise ModelError(f"{self.model}: published weights have {unknown[0]}, which the model does not")
        self._slots.forget()
        self._parameters = list(self._whole.parameters())  # adapters may have come
        self._weights, self.policy_version = self._mark(), version

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
            raise ModelError(f"{self.model}: not all of its layers use transformers' attention interface")
        if self._mark() != self._weights:
            raise EngineError(
                f"{self.model}: the weights have changed since version {self.policy_version} was published; "
                "publish the new version before the next request, and update nothing while requests run"
            )
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
            raise ModelError(f"{self.model}: decoding differs from a forward pass by {error:.2g}; serve it with vLLM")
        if self.config.deterministic and not (logits == logits[0]).all():
            raise ModelError(f"{self.model}: rows of one batch differ; change the engine's slots or threads")

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
                settle(call, (at.tokens[slot, answer].tolist(), at.logprobs[slot, answer].tolist()))
            else:
                self._cache.wipe(slot, n)
                at.filled[slot] = 0
                message = f"{self.model}: the logits of answer token {n - answer.start} are not finite; "
                message += f"the weights of version {self.policy_version} are probably broken"
                settle(call, EngineError(message))
            self._release(slot)
