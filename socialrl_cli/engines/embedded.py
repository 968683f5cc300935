"""Continuous batching inside the process, around any transformers causal LM on the CPU or one GPU.

Requests join and leave a running batch (see `decoder`), which steps on a thread, or with `process` in a process of
its own, so the event loop stays free. The weights are the trainer's own: `publish` only moves the version and forgets
the kept prefixes; weights that change in place without it are noticed and refused. Given other weights, `publish`
lets the requests that run end, and loads them.

`deterministic` fixes every shape: a decode step has all slots and attends in pieces of one length, a
prefill step is one aligned chunk of `block` tokens of one request, and only such chunks are kept between
calls. An answer is then the same bit for bit whatever else runs; otherwise log-probabilities move by about
1e-6. Lengths are in tokens. Leaves out: truncating samplers, adapters by name, several devices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from algos.grammars import ending_tokens
from scenarios.errors import EngineError, ModelError, SocialRLError
from socialrl_cli.engines import base
from socialrl_cli.engines.base import Capabilities, Scored
from socialrl_cli.engines.config import EmbeddedConfig
from socialrl_cli.engines.decoder import Publish, Score, Work, bare, capacity_of, vocabulary_of
from socialrl_cli.engines.hosts import Answers, Host, ProcessHost, ThreadHost


class EmbeddedEngine:
    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        config: EmbeddedConfig | None = None,
        *,
        model_name: str = "policy",
        follows: Any = None,
    ) -> None:
        """`model`: a transformers causal LM or a PEFT wrapper of one. It stays the caller's and is shared; or it is a
        copy of the module that it `follows`, whose trained weights `publish` then brings over."""
        self.config = config = config or EmbeddedConfig()
        self.model, self.tokenizer, self.policy_version = model_name, tokenizer, 0
        can = ("token_ids", "logprobs", "scoring", "publishing", "grammars", "token_input")
        self.capabilities = Capabilities(**dict.fromkeys(can, True), deterministic=config.deterministic)
        self.capacity, self.vocabulary = capacity_of(model, config, model_name), vocabulary_of(model)
        self._ends = ending_tokens(bare(model), tokenizer)
        self._whole, self._closed, self._served, self._sent = model, False, 0, 0
        self._publishing, self._follows = 0, follows
        self._pending: dict[int, asyncio.Future[Any]] = {}
        host = ProcessHost if config.process else ThreadHost
        self._host: Host = host(model, tokenizer, config, model_name, self._answered)
        self._places = places(model)
        self._published = self._mark()

    @property
    def counters(self) -> Mapping[str, int]:
        """Steps; tokens decoded, prefilled, and kept from earlier prompts."""
        return self._host.counters

    async def chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        asked = base.read_request(request, self.tokenizer, self.capacity, self.vocabulary, self._ends)
        ids, logprobs, version = await self._answer(asked)
        self._served += 1
        about = {"model": self.model, "policy_version": version, "request_id": f"chatcmpl-{self._served}"}
        return base.write_answer(asked, ids, logprobs, self.tokenizer, request, **about)

    async def score(self, token_ids: Sequence[int], top_k: int = 0) -> Scored:
        ids = base.token_array(token_ids, "token_ids", self.vocabulary)
        if not 2 <= len(ids) <= self.capacity:
            raise ModelError(f"{self.model}: score takes 2 to {self.capacity} tokens, got {len(ids)}")
        return await self._answer(Score(ids, top_k))

    async def publish(self, version: int, weights: Mapping[str, Any] | None = None) -> None:
        """The shared weights are `version` from now on, and nothing may run; or `weights` are, once they are loaded
        in place of the engine's, between two requests."""
        if weights is None and self._follows is not None:
            trained = ((name, p) for name, p in self._follows.named_parameters() if p.requires_grad)
            weights = {name: p.detach().clone() for name, p in trained}
        self._publishing += 1
        try:
            await self._answer(Publish(version, weights))
            self.policy_version, self._places = version, places(self._whole)
            self._published = self._mark()
        finally:
            self._publishing -= 1

    async def close(self) -> None:
        """Pending calls fail with an EngineError; the module gets its own attention back."""
        if not self._closed:
            self._closed = True
            await asyncio.to_thread(self._host.close, self.config.timeout_s)

    async def _answer(self, work: Work) -> Any:
        if self._closed:
            raise EngineError(f"{self.model}: the engine is closed")
        self._sent = number = self._sent + 1
        self._pending[number] = answer = asyncio.get_running_loop().create_future()
        try:
            self._check_weights()
            self._host.send(number, work)
            got = await asyncio.wait_for(answer, self.config.timeout_s)
            self._check_weights()
            return got
        except TimeoutError:
            raise EngineError(
                f"{self.model}: no answer in {self.config.timeout_s:g} s; {len(self._pending)} calls were under way, "
                f"of which {self.config.slots} run at once"
            ) from None
        finally:
            del self._pending[number]
            if not answer.done() or answer.cancelled():
                with suppress(EngineError):
                    self._host.send(number, None)

    def _answered(self, answers: Answers) -> None:
        """From the host's thread. The number −1 is everybody's."""
        by_loop: dict[asyncio.AbstractEventLoop, Answers] = {}
        for number, answer in answers:
            for pending in list(self._pending) if number < 0 else [number]:
                if (future := self._pending.get(pending)) is not None:
                    by_loop.setdefault(future.get_loop(), []).append((pending, answer))
        for loop, given in by_loop.items():
            with suppress(RuntimeError):  # its loop is closed: nobody waits
                loop.call_soon_threadsafe(self._settle, given)

    def _settle(self, answers: Answers) -> None:
        for number, answer in answers:
            future = self._pending.get(number)
            if future is None or future.done():
                continue
            if not isinstance(answer, Exception):
                future.set_result(answer)
            elif isinstance(answer, SocialRLError):
                future.set_exception(answer)
            else:
                future.set_exception(EngineError(f"the engine failed: {type(answer).__name__}: {answer}"))

    def _mark(self) -> int:
        """Differs after every update of the weights in place, and when there are others."""
        return hash(tuple((id(p), p._version) for p in (held[name] for held, name in self._places)))

    def _check_weights(self) -> None:
        if not self._publishing and self._mark() != self._published:
            raise EngineError(
                f"{self.model}: the weights have changed since version {self.policy_version} was published; "
                "publish the new version before the next request, and update nothing while requests run"
            )


def places(model: Any) -> list[tuple[dict[str, Any], str]]:
    """Where the modules hold their parameters: reading these is much cheaper than asking a model for all it has."""
    held = (module._parameters for module in model.modules())
    return [(own, name) for own in held for name, parameter in own.items() if parameter is not None]
