"""vLLM behind the Engine protocol: a server that we start and own, or servers that run already.

Requests go to /v1/completions with the exact prompt tokens, rendered here with the model's own template: so a
conversation keeps its ids, calls in the text are read by our own rules, and a server's chat template, parsers and
generation defaults have no say. Several servers share the load: the next request goes to the one with the fewest under
way. A server of ours that dies is started once more with the weights that it had, and the requests that it took along
are asked again: same prompt, same seed. New weights are `live.py`'s, what a server can is `probing.py`'s.

Log-probabilities are in nats. Left out: streaming, several choices, pushing full weights over vLLM's transfer routes.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scenarios.errors import EngineError, ModelError, UsageError
from socialrl_cli.engines import base
from socialrl_cli.engines.base import Capabilities, Scored
from socialrl_cli.engines.launching import MAX_LOGPROBS
from socialrl_cli.engines.live import Save, Weights
from socialrl_cli.engines.remote import NoAnswer, ServerRefused, Upstream, parsed
from socialrl_cli.engines.server import Server
from socialrl_cli.output import warn

COMPLETIONS = "/v1/completions"
RESTARTS = 1


class VllmEngine:
    """Made by `starting.open_vllm`. `servers` are asked, `owned` is the process behind the only one, if it is ours."""

    def __init__(
        self, servers: Sequence[Upstream], weights: Weights, tokenizer: Any, *, name: str, capacity: int,
        vocabulary: int, ends: frozenset[int], save: Save | None = None, folder: Path, owned: Server | None = None,
    ) -> None:  # fmt: skip
        """`capacity`: tokens of prompt and answer; `save` writes the weights of a trainer, `folder` is for them."""
        self.model, self.tokenizer, self.capacity, self.vocabulary = name, tokenizer, capacity, vocabulary
        can = ("token_ids", "logprobs", "scoring", "grammars", "token_input")
        self.capabilities = Capabilities(**dict.fromkeys(can, True), publishing=save is not None, adapters=True)
        self.weights, self.owned = weights, owned
        self._servers, self._load = list(servers), [0] * len(servers)
        self._ends, self._save, self._folder = ends, save, folder
        self._served, self._closed = 0, False
        self._reviving = asyncio.Lock()

    @property
    def policy_version(self) -> int:
        return self.weights.current.version

    async def chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        asked = base.read_request(request, self.tokenizer, self.capacity, self.vocabulary, self._ends)
        body = {
            "prompt": asked.prompt.tolist(), "max_tokens": asked.limit - len(asked.prompt),
            "temperature": asked.temperature, "seed": asked.seed & (2**63 - 1), "stop_token_ids": sorted(asked.stops),
            "logprobs": 0, "return_token_ids": True, "top_p": 1.0, "top_k": -1, "min_p": 0.0,
        }  # fmt: skip
        if asked.grammar is not None:
            body["response_format"] = request["response_format"]
        async with self.weights.leased() as held:
            choice = (await self._complete({**body, "model": held.name}))["choices"][0]
            about = {"model": self.model, "policy_version": held.version}
        ids, logprobs = self._sampled(choice)
        self._served += 1
        about["request_id"] = f"chatcmpl-{self._served}"
        return base.write_answer(asked, ids, logprobs, self.tokenizer, request, **about)

    async def score(self, token_ids: Sequence[int], top_k: int = 0) -> Scored:
        ids = base.token_array(token_ids, "token_ids", self.vocabulary)
        if not 2 <= len(ids) < self.capacity:
            raise ModelError(f"{self.model}: score takes 2 to {self.capacity - 1} tokens, got {len(ids)}")
        if top_k > MAX_LOGPROBS:
            raise UsageError(f"top_k: at most {MAX_LOGPROBS}, got {top_k}")
        body = {"prompt": ids.tolist(), "max_tokens": 1, "prompt_logprobs": top_k, "return_token_ids": True}
        async with self.weights.leased() as held:
            choice = (await self._complete({**body, "model": held.name}))["choices"][0]
        return self._scored(ids, choice.get("prompt_logprobs"), top_k)

    async def publish(self, version: int, weights: Mapping[str, Any] | None = None) -> None:
        """The trainer's weights, as they are now, are `version` from now on."""
        if self._save is None or weights:
            raise ModelError(f"{self.model}: only the weights of the trainer that opened this engine can be published")
        await self.weights.publish(version, self._save, self._folder)

    async def close(self) -> None:
        """Ends an owned server; calls under way fail."""
        self._closed = True
        if self.owned is not None:
            await asyncio.to_thread(self.owned.stop)
        for server in self._servers:
            server.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of the least loaded server; once more when it was ours and has died."""
        if self._closed:
            raise EngineError(f"{self.model}: the engine is closed")
        at = self._load.index(min(self._load))
        self._load[at] += 1
        starts = 0 if self.owned is None else self.owned.starts
        try:
            try:
                return parsed(await self._servers[at].post(COMPLETIONS, body), self._servers[at].base_url)
            except (NoAnswer, ServerRefused) as error:
                if error.status < 500 or not await self._revived(starts, error):
                    raise
            return parsed(await self._servers[at].post(COMPLETIONS, body), self._servers[at].base_url)
        finally:
            self._load[at] -= 1

    async def _revived(self, starts: int, error: EngineError) -> bool:
        """Whether the server that was begun for the `starts`-th time had died and is up again."""
        if self.owned is None or self._closed:
            return False
        async with self._reviving:
            if self.owned.starts > starts:  # another request has seen to it
                return not self.owned.dead
            if not await asyncio.to_thread(self.owned.died):
                return False
            words = self.owned.last_words()
            if starts > RESTARTS:
                raise EngineError(f"{self.model}: the server died again after it was restarted: {words}") from error
            warn(f"{self.model}: the server died and is started once more: {words}")
            await asyncio.to_thread(self.owned.start)
            await self.weights.restore()
            return True

    def _sampled(self, choice: Mapping[str, Any]) -> tuple[list[int], list[float]]:
        """Token ids and their log-probabilities, which must belong together."""
        ids, logprobs = choice.get("token_ids"), (choice.get("logprobs") or {}).get("token_logprobs")
        if not ids or logprobs is None or len(ids) != len(logprobs) or None in logprobs:
            told = [None if part is None else len(part) for part in (ids, logprobs)]
            raise EngineError(f"{self.model}: an answer of {told[0]} token ids and {told[1]} log-probabilities")
        return list(ids), [float(logprob) for logprob in logprobs]

    def _scored(self, ids: np.ndarray, entries: Any, top_k: int) -> Scored:
        if not isinstance(entries, list) or len(entries) != len(ids):
            raise EngineError(f"{self.model}: the server gave no log-probabilities of the prompt")
        own, tops = [], []
        for token, entry in zip(ids[1:].tolist(), entries[1:], strict=True):
            own.append(entry[str(token)]["logprob"])
            ranked = sorted(entry.items(), key=lambda item: item[1]["rank"])[:top_k]
            tops.append([(int(name), found["logprob"]) for name, found in ranked])
        best = np.array(tops, np.float64).reshape(len(own), top_k, 2)
        return Scored(np.array(own, np.float32), best[..., 0].astype(np.int32), best[..., 1].astype(np.float32))
