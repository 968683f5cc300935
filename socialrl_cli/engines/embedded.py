"""Continuous batching inside the process, around any transformers causal LM on the CPU or one GPU.

Requests join and leave a running batch; one thread runs the steps, so the event loop stays free. The
weights are the trainer's own module: `publish` only moves the version and forgets the kept prefixes.
Weights that change in place without a `publish` are noticed and refused. A finished request leaves its
keys and values in its slot; a later prompt that extends them, or shares their beginning, is not
prefilled again. A token depends on its request's seed and its own logits, never on its neighbours'.

`deterministic` fixes every shape: the decode step always has all slots and the whole capacity, a prefill
step is one aligned chunk of `block` tokens of one request, and only such chunks are kept between calls.
An answer is then the same bit for bit whatever else runs. Otherwise log-probabilities move by about 1e-6.

Lengths are in tokens. Leaves out: truncating samplers, grammars, adapters by name, several devices.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from scenarios.errors import EngineError, ModelError, UsageError
from socialrl_cli.engines.base import Capabilities, Scored, chat_response
from socialrl_cli.engines.slots import ATTENTION, Cache, Decode, Join, Plan, plan_decode, plan_join, sample

STOPS = 16  # most stop tokens of one request
SCORE_CHUNK = 256  # tokens
WORTH_COPYING = 16  # shorter shared prefixes are prefilled again, tokens
# Sampling that this engine does not do, with the values that ask for nothing.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,), "top_p": (1,), "top_k": (0, -1), "min_p": (0,), "presence_penalty": (0,), "frequency_penalty": (0,),
    "repetition_penalty": (1,), "logit_bias": ({},), "stream": (False,), "response_format": ({"type": "text"},),
}  # fmt: skip


@dataclass(frozen=True)
class EmbeddedConfig:
    slots: int = 64  # requests that run at once, and conversations kept
    capacity: int = 0  # tokens of a slot, prompt and answer; 0: the model's context, at most 4096
    block: int = 64  # attended lengths are rounded up to it; the prefill chunk when deterministic
    prefill_tokens: int = 512  # most prompt tokens of one step
    deterministic: bool = False
    threads: int = 0  # of torch on the engine's thread; 0: leave as it is
    timeout_s: float = 600.0  # of one call, queueing included

    def __post_init__(self) -> None:
        for name, least in (("slots", 1), ("capacity", 0), ("block", 1), ("prefill_tokens", 1), ("threads", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.timeout_s <= 0:
            raise ValueError(f"timeout_s must be positive, got {self.timeout_s}")


@dataclass(eq=False, slots=True)
class Request:
    prompt: np.ndarray  # (n,) int32
    limit: int  # tokens of prompt and answer at most
    temperature: float
    uniforms: np.ndarray  # (limit - n,) one number a token, from the request's own seed
    stops: np.ndarray
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[tuple[np.ndarray, np.ndarray]]  # token ids, log-probabilities
    slot: int = -1
    cancelled: bool = False


class EmbeddedEngine:
    def __init__(
        self, model: Any, tokenizer: Any, config: EmbeddedConfig | None = None, *, model_name: str = "policy"
    ) -> None:
        """`model` is a transformers causal LM or a PEFT wrapper of one; it stays the caller's, and is shared."""
        self.config = config = config or EmbeddedConfig()
        self.model, self.tokenizer, self._whole = model_name, tokenizer, model
        self.capabilities = Capabilities(
            token_ids=True, logprobs=True, scoring=True, publishing=True, adapters=False, grammars=False,
            token_input=True, deterministic=config.deterministic,
        )  # fmt: skip
        self.policy_version = 0
        self._base = base = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._attention = check_model(base, model_name)
        shape = base.config.get_text_config()
        context = shape.max_position_embeddings
        if config.capacity > context:
            raise ModelError(
                f"{model_name}: capacity {config.capacity} is longer than the model's context of {context} tokens"
            )
        self.capacity = config.capacity or min(context, 4096)
        kv_heads = getattr(shape, "num_key_value_heads", None) or shape.num_attention_heads
        self._groups = shape.num_attention_heads // kv_heads
        head_dim = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
        self._layers = shape.num_hidden_layers
        weight = base.get_output_embeddings().weight
        self._cache = Cache(self._layers, config.slots, kv_heads, self.capacity, head_dim, weight)
        self._no_mask = weight.new_zeros((1, 1, 1, 1))  # four dimensions: transformers builds no mask of its own
        self._eos = stop_tokens(base, tokenizer)
        self._weights = self._mark()

        slots, capacity = config.slots, self.capacity
        self._tokens = np.zeros((slots, capacity), np.int32)
        self._logprobs = np.zeros((slots, capacity), np.float32)
        self._uniforms = np.zeros((slots, capacity), np.float32)
        self._temperature = np.ones(slots, np.float32)
        self._stops = np.full((slots, STOPS), -1, np.int64)
        self._known = np.zeros(slots, np.int64)  # tokens of prompt and answer so far
        self._filled = np.zeros(slots, np.int64)  # leading tokens whose keys and values are in the cache
        self._chunked = np.zeros(
            slots, np.int64
        )  # of these, the ones from prefill chunks (deterministic keeps only them)
        self._limit = np.zeros(slots, np.int64)
        self._used = np.zeros(slots, np.int64)  # clock of the last use, for eviction and order of prefill
        self._clock = 0
        self._running = np.zeros(slots, bool)
        self._owner: list[Request | None] = [None] * slots

        self._waiting: deque[Request] = deque()
        self._jobs: deque[Callable[[], None]] = deque()
        self._dropped: list[Request] = []
        self._wake = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._served = 0
        self.counters = {"steps": 0, "decoded": 0, "prefilled": 0, "reused": 0, "evicted": 0}

    # ---- the caller's side: everything here runs on the event loop ----

    async def chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        for name, neutral in NEUTRAL.items():
            if (value := request.get(name)) is not None and value not in neutral:
                raise UsageError(
                    f"the embedded engine cannot do {name} = {value!r}; leave it out or use another engine"
                )
        call = self._prepare(request)
        version = self.policy_version
        token_ids, logprobs = await self._wait(call)
        ended = int(token_ids[-1]) in call.stops
        text = self.tokenizer.decode(token_ids[: len(token_ids) - ended].tolist(), skip_special_tokens=True)
        wanted, ids = request.get("logprobs"), token_ids.tolist()
        self._served += 1
        return chat_response(
            request_id=f"chatcmpl-{self._served}",
            model=self.model,
            policy_version=version,
            prompt_ids=call.prompt.tolist(),
            token_ids=ids,
            text=text,
            finish_reason="stop" if ended else "length",
            logprobs=self._entries(ids, logprobs) if wanted is True else None,
            token_logprobs=logprobs.tolist() if wanted == "tokens" else None,
        )

    async def score(self, token_ids: Sequence[int], top_k: int = 0) -> Scored:
        ids = self._ids(token_ids, "token_ids")
        if not 2 <= len(ids) <= self.capacity:
            raise ModelError(f"{self.model}: score takes 2 to {self.capacity} tokens, got {len(ids)}")
        return await self._on_thread(lambda: self._score(ids, top_k))

    async def publish(self, version: int, weights: Mapping[str, Any] | None = None) -> None:
        """The shared weights are now those of `version` (or `weights` are loaded first). Nothing may be decoding."""

        def publish() -> None:
            if busy := int(self._running.sum()) + len(self._waiting):
                raise EngineError(f"publish of version {version}: {busy} requests are still running; finish them first")
            if weights is not None:
                unknown = self._whole.load_state_dict(dict(weights), strict=False).unexpected_keys
                if unknown:
                    raise ModelError(f"{self.model}: the published weights have {unknown[0]}, which the model has not")
            self._forget()
            self._weights = self._mark()
            self.policy_version = version

        await self._on_thread(publish)

    async def close(self) -> None:
        """Pending requests fail with an EngineError; the module gets its own attention back."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, self.config.timeout_s)
        self._base.config._attn_implementation = self._attention

    def _prepare(self, request: Mapping[str, Any]) -> Request:
        prompt = request.get("prompt_token_ids")
        if prompt is None:
            if getattr(self.tokenizer, "chat_template", None) is None:
                raise ModelError(f"{self.model}: the tokenizer has no chat template; give prompt_token_ids")
            prompt = self.tokenizer.apply_chat_template(
                request["messages"], tools=request.get("tools"), add_generation_prompt=True, return_dict=False
            )
        ids = self._ids(prompt, "prompt_token_ids")
        if not 1 <= len(ids) < self.capacity:
            raise ModelError(
                f"{self.model}: a prompt of {len(ids)} tokens leaves no room in a context of {self.capacity} tokens"
            )
        most = request.get("max_completion_tokens") or request.get("max_tokens") or self.capacity
        temperature = request.get("temperature")
        temperature = 1.0 if temperature is None else float(temperature)
        if most < 1 or not 0 <= temperature < float("inf"):
            raise UsageError(f"max_tokens = {most}, temperature = {temperature}: must be at least 1 and at least 0")
        limit = min(len(ids) + int(most), self.capacity)
        seed = request.get("seed")
        seed = random.getrandbits(64) if seed is None else int(seed) % 2**128
        uniforms = np.random.Generator(np.random.Philox(key=seed)).random(limit - len(ids), np.float32)
        stops = {*self._eos, *(request.get("stop_token_ids") or ()), *self._stop_strings(request.get("stop"))}
        if len(stops) > STOPS:
            raise UsageError(f"stop_token_ids: at most {STOPS} stop tokens, got {len(stops)}")
        loop = asyncio.get_running_loop()
        return Request(ids, limit, temperature, uniforms, np.array(sorted(stops), np.int64), loop, loop.create_future())

    def _ids(self, ids: Sequence[int], name: str) -> np.ndarray:
        array = np.asarray(ids, np.int64)
        size = self._base.config.get_text_config().vocab_size
        if array.ndim != 1 or (array.size and not 0 <= array.min() <= array.max() < size):
            raise UsageError(f"{name}: must be token ids from 0 to {size - 1}")
        return array.astype(np.int32)

    def _stop_strings(self, stop: str | Sequence[str] | None) -> list[int]:
        found = []
        for text in [stop] if isinstance(stop, str) else stop or ():
            ids = self.tokenizer.encode(text, add_special_tokens=False)
            if len(ids) != 1:
                raise UsageError(f"stop = {text!r}: the embedded engine stops at single tokens, this is {len(ids)}")
            found += ids
        return found

    def _entries(self, ids: list[int], logprobs: np.ndarray) -> dict[str, Any]:
        tokens = [self.tokenizer.decode([i]) for i in ids]
        return {
            "content": [
                {"token": token, "logprob": logprob, "bytes": list(token.encode()), "top_logprobs": []}
                for token, logprob in zip(tokens, logprobs.tolist(), strict=True)
            ]
        }

    async def _wait(self, call: Request) -> tuple[np.ndarray, np.ndarray]:
        self._submit(self._waiting, call)
        try:
            return await asyncio.wait_for(call.future, self.config.timeout_s)
        except TimeoutError:
            where = "waiting for a slot" if call.slot < 0 else f"at token {self._known[call.slot] - len(call.prompt)}"
            raise EngineError(f"{self.model}: no answer within {self.config.timeout_s:g} s, {where}") from None
        finally:
            if not call.future.done() or call.future.cancelled():
                call.cancelled = True
                with self._wake:
                    self._dropped.append(call)
                    self._wake.notify()

    async def _on_thread(self, work: Callable[[], Any]) -> Any:
        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def job() -> None:
            try:
                answer, error = work(), None
            except Exception as caught:
                answer, error = None, caught
            deliver(loop, [(future, answer, error)])

        self._submit(self._jobs, job)
        try:
            return await asyncio.wait_for(future, self.config.timeout_s)
        except TimeoutError:
            raise EngineError(f"{self.model}: the engine did not answer within {self.config.timeout_s:g} s") from None

    def _submit(self, queue: deque[Any], item: Any) -> None:
        with self._wake:
            if self._closed:
                raise EngineError(f"{self.model}: the engine is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="socialrl-engine", daemon=True)
                self._thread.start()
            queue.append(item)
            self._wake.notify()

    # ---- the engine's thread ----

    def _run(self) -> None:
        if self.config.threads:
            torch.set_num_threads(self.config.threads)
        while True:
            with self._wake:
                while not (self._closed or self._jobs or self._dropped or self._waiting or self._running.any()):
                    self._wake.wait()
                if self._closed:
                    break
                dropped, self._dropped = self._dropped, []
            try:
                for call in dropped:
                    self._drop(call)
                while self._jobs:
                    self._jobs.popleft()()
                self._admit()
                if self._running.any():
                    self._check_weights()
                    with torch.inference_mode():
                        self._step()
            except Exception as error:
                self._fail(
                    error if isinstance(error, EngineError | ModelError) else EngineError(f"{self.model}: {error!r}")
                )
        self._fail(EngineError(f"{self.model}: the engine was closed while requests were running"))
        while self._jobs:
            self._jobs.popleft()()

    def _drop(self, call: Request) -> None:
        if call.slot >= 0 and self._owner[call.slot] is call:
            self._release(call.slot)
        elif call in self._waiting:
            self._waiting.remove(call)

    def _release(self, slot: int) -> None:
        self._owner[slot], self._running[slot] = None, False
        self._clock += 1
        self._used[slot] = self._clock

    def _fail(self, error: Exception) -> None:
        """Every pending request gets `error`; nothing that the cache holds is trusted afterwards."""
        calls = [call for call in self._owner if call] + list(self._waiting)
        self._waiting.clear()
        self._owner = [None] * self.config.slots
        self._running[:] = False
        self._forget()
        self._cache.clear()
        for call in calls:
            deliver(call.loop, [(call.future, None, error)])

    def _forget(self) -> None:
        self._filled[:] = self._chunked[:] = self._used[:] = 0

    def _mark(self) -> list[int]:
        return [parameter._version for parameter in self._whole.parameters()]

    def _check_weights(self) -> None:
        if self._mark() != self._weights:
            self._weights = self._mark()
            raise EngineError(
                f"{self.model}: the weights changed without a publish after version {self.policy_version}; "
                "publish before the next request, and update nothing while requests run"
            )
        if self._whole.training:
            self._whole.eval()

    def _admit(self) -> None:
        while self._waiting and not self._running.all():
            call = self._waiting.popleft()
            prompt, n = call.prompt, len(call.prompt)
            differs = self._tokens[:, :n] != prompt
            same = np.where(differs.any(1), differs.argmax(1), n)
            same = np.minimum(same, np.minimum(self._filled, n - 1))  # (S,) leading tokens that each slot shares
            usable = np.minimum(same, self._chunked) // self.config.block * self.config.block
            usable = usable if self.config.deterministic else same
            slot = source = int(same.argmax())
            kept = int(usable[source])
            if self._running[source] or same[source] < max(self._filled[source], 1):  # not a continuation of that slot
                slot = int(np.where(self._running, np.iinfo(np.int64).max, self._used).argmin())
                if slot != source:
                    kept = kept if kept >= WORTH_COPYING else 0
                    self.counters["evicted"] += bool(self._filled[slot])
                    self._cache.copy(source, slot, kept)
            self._filled[slot] = self._chunked[slot] = kept
            self._tokens[slot, :n] = prompt
            self._known[slot], self._limit[slot] = n, call.limit
            self._uniforms[slot, n : call.limit] = call.uniforms
            self._temperature[slot] = call.temperature
            self._stops[slot] = -1
            self._stops[slot, : len(call.stops)] = call.stops
            self._clock += 1
            self._used[slot] = self._clock
            self._owner[slot], self._running[slot], call.slot = call, True, slot
            self.counters["reused"] += kept

    def _step(self) -> None:
        running = np.flatnonzero(self._running)
        pending = self._known[running] - self._filled[running]
        fixed = self.config.deterministic
        joining = running[pending > 1]
        if fixed and len(joining):
            self._prefill_chunk(joining[self._used[joining].argmin()])
            return
        decoding = running[pending == 1]
        joining = joining[self._used[joining].argsort()]
        counts = self._known[joining] - self._filled[joining]
        counts = np.clip(self.config.prefill_tokens - (counts.cumsum() - counts), 0, counts)
        joining, counts = joining[counts > 0], counts[counts > 0]
        starts = self._filled[joining]

        offsets = len(decoding) + counts.cumsum() - counts
        within = np.arange(counts.sum()) - np.repeat(offsets - len(decoding), counts)
        slots = np.concatenate((decoding, np.repeat(joining, counts)))
        positions = np.concatenate((self._filled[decoding], np.repeat(starts, counts) + within))
        complete = starts + counts == self._known[joining]
        keep = np.concatenate((np.arange(len(decoding)), (offsets + counts - 1)[complete]))
        sampling = np.concatenate((decoding, joining[complete]))
        if fixed:  # every slot decodes, the idle ones into the scratch slot
            keep = decoding
            slots, positions = np.arange(self.config.slots), np.zeros(self.config.slots, np.int64)
            positions[decoding] = self._filled[decoding]
        tokens = self._tokens[slots, positions]
        length = self.capacity if fixed else self._round(positions.max() + 1)
        if fixed:
            write = np.where(np.isin(slots, decoding), slots, self.config.slots)
            decode: Decode | None = plan_decode(self._cache, slots, positions, length, fixed=True)
        else:
            write = slots
            here = len(decoding)
            decode = plan_decode(self._cache, decoding, positions[:here], length, fixed=False) if here else None
        joins = self._joins(joining, starts, counts, offsets) if len(joining) else []
        plan = Plan(self._cache, self._cache.rows(write, positions), decode, joins, set())
        logits = self._forward(tokens, positions, plan, None if fixed or not len(joining) else keep)
        self._filled[decoding] += 1
        self._filled[joining] += counts
        self.counters["steps"] += 1
        self.counters["decoded"] += len(sampling)
        self.counters["prefilled"] += int(counts.sum())
        if len(sampling):
            self._sample(logits, sampling, slots if fixed else sampling, keep if fixed else None)

    def _prefill_chunk(self, slot: int) -> None:
        """One aligned chunk of one slot, at one shape; the last prompt token is left to the decode step."""
        start, block = int(self._filled[slot]), self.config.block
        count = min(block, int(self._known[slot]) - 1 - start)
        positions = np.minimum(np.arange(start, start + block), start + count - 1)
        real = np.arange(block) < count
        write = np.where(real, slot, self.config.slots)
        one = np.array([slot]), np.array([start]), np.array([block]), np.array([0])
        join = plan_join(self._cache, *one, self._groups, self.capacity)
        plan = Plan(self._cache, self._cache.rows(write, positions), None, [join], set())
        self._forward(np.where(real, self._tokens[slot, positions], 0), positions, plan, np.array([0]))
        self._filled[slot] += count
        self._chunked[slot] = self._filled[slot]
        self.counters["steps"] += 1
        self.counters["prefilled"] += count

    def _joins(self, slots: np.ndarray, starts: np.ndarray, counts: np.ndarray, offsets: np.ndarray) -> list[Join]:
        """Rows padded to a common length: those whose counts round up to the same power of two, at least 32."""
        size = np.maximum(np.ceil(np.log2(counts)), 5)
        parts = []
        for group in (np.flatnonzero(size == s) for s in np.unique(size)):
            length = self._round((starts[group] + counts[group]).max())
            part = slots[group], starts[group], counts[group], offsets[group]
            parts.append(plan_join(self._cache, *part, self._groups, length))
        return parts

    def _round(self, length: int) -> int:
        return min(-(-int(length) // self.config.block) * self.config.block, self.capacity)

    def _forward(self, tokens: np.ndarray, positions: np.ndarray, plan: Plan, keep: np.ndarray | None) -> torch.Tensor:
        """(N,) tokens and positions → logits (rows, V) of the kept rows."""
        tensor = self._cache.tensor
        out = self._base(
            input_ids=tensor(tokens.astype(np.int64))[None],
            position_ids=tensor(positions)[None],
            attention_mask=self._no_mask,
            use_cache=False,
            logits_to_keep=0 if keep is None else tensor(keep),
            plan=plan,
        )
        if len(plan.layers) != self._layers:
            raise ModelError(
                f"{self.model}: its layers do not use transformers' attention interface; serve it with vLLM"
            )
        return out.logits[0]

    def _sample(self, logits: torch.Tensor, sampling: np.ndarray, rows: np.ndarray, keep: np.ndarray | None) -> None:
        tensor, known = self._cache.tensor, self._known
        last = np.minimum(known[rows], self.capacity - 1)
        drawn = sample(logits, tensor(self._temperature[rows]), tensor(self._uniforms[rows, last])).cpu().numpy()
        tokens, logprobs = drawn if keep is None else drawn[:, keep]
        at = known[sampling]
        self._tokens[sampling, at] = tokens
        self._logprobs[sampling, at] = logprobs
        known[sampling] += 1
        broken = ~np.isfinite(logprobs)
        ended = (self._stops[sampling] == tokens[:, None]).any(1) | (known[sampling] >= self._limit[sampling]) | broken
        if not ended.any():
            return
        done: dict[asyncio.AbstractEventLoop, list[Any]] = {}
        for slot, bad in zip(sampling[ended].tolist(), broken[ended].tolist(), strict=True):
            call = self._owner[slot]
            assert call is not None
            part = slice(len(call.prompt), int(known[slot]))
            answer, error = (self._tokens[slot, part].copy(), self._logprobs[slot, part].copy()), None
            if bad:
                error = EngineError(
                    f"{self.model}: the logits of answer token {part.stop - part.start} are not finite; "
                    f"the weights of version {self.policy_version} are probably broken"
                )
                self._filled[slot] = self._chunked[slot] = 0
                self._cache.clear(slot)
            self._release(slot)
            done.setdefault(call.loop, []).append((call.future, answer, error))
        for loop, answers in done.items():
            deliver(loop, answers)

    def _score(self, ids: np.ndarray, top_k: int) -> Scored:
        """A plain forward pass in chunks, so that the logits of a long text never exist at once."""
        self._whole.eval()
        tokens = self._cache.tensor(ids.astype(np.int64))
        past, parts = DynamicCache(config=self._base.config), []
        with torch.inference_mode():
            for start in range(0, len(ids) - 1, SCORE_CHUNK):
                chunk = slice(start, min(start + SCORE_CHUNK, len(ids) - 1))
                logits = self._base(input_ids=tokens[None, chunk], past_key_values=past, use_cache=True).logits[0]
                logprobs = logits.float().log_softmax(-1)
                own = logprobs.gather(1, tokens[chunk.start + 1 : chunk.stop + 1, None])[:, 0]
                best = logprobs.topk(min(top_k, logprobs.shape[-1]))
                parts.append([t.cpu().numpy() for t in (own, best.indices.int(), best.values)])
        return Scored(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def deliver(loop: asyncio.AbstractEventLoop, answers: list[tuple[asyncio.Future[Any], Any, Exception | None]]) -> None:
    """Answers futures of `loop` from the engine's thread, all in one wake-up."""

    def settle() -> None:
        for future, answer, error in answers:
            if not future.done():
                future.set_result(answer) if error is None else future.set_exception(error)

    if not loop.is_closed():
        loop.call_soon_threadsafe(settle)


def check_model(base: Any, name: str) -> str:
    """Refuses what the engine would get wrong; moves the module to our attention and returns the one it had."""
    if not getattr(base, "_supports_attention_backend", False):
        raise ModelError(
            f"{name}: {type(base).__name__} does not use transformers' attention interface; serve it with vLLM"
        )
    shape = base.config.get_text_config()
    if any(kind != "full_attention" for kind in getattr(shape, "layer_types", None) or ()):
        raise ModelError(f"{name}: {type(base).__name__} has layers that are not full attention; serve it with vLLM")
    own = base.config._attn_implementation
    if own not in ("sdpa", "eager", ATTENTION, None):
        raise ModelError(
            f"{name}: load the model with attn_implementation='sdpa'; the embedded engine cannot share {own}"
        )
    base.config._attn_implementation = ATTENTION
    return "sdpa" if own == ATTENTION else own


def stop_tokens(base: Any, tokenizer: Any) -> set[int]:
    """What ends an answer: the model's own end tokens and the tokenizer's."""
    ends = getattr(base.generation_config, "eos_token_id", None)
    found = set(ends if isinstance(ends, list | tuple) else [ends]) | {getattr(tokenizer, "eos_token_id", None)}
    return {int(end) for end in found if end is not None}
