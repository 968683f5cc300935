"""What a running vLLM server can: asked, never assumed, because routes and defaults change between versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scenarios.errors import EngineError, ModelError
from socialrl_cli.engines.server import ask

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
RPC, RESET = "/collective_rpc", "/reset_prefix_cache"
TRANSFER = ("/init_weight_transfer_engine", "/start_weight_update", "/update_weights", "/finish_weight_update")
ALTERNATIVES = 5
SHARPER = 1.5  # of 2: how much wider the gaps between log-probabilities are at half the temperature, at least
WORDS = "Hello, shall we say 12 of 30?"


@dataclass(frozen=True, slots=True)
class Offer:
    """What one server offers. `missing` are things that nothing here can do without, with their remedies."""

    url: str  # without /v1
    version: str
    model: str  # what it calls the base model
    max_len: int  # tokens of prompt and answer
    adapters: bool  # they can be loaded and unloaded while it runs
    reload: bool  # new weights from a folder
    transfer: bool  # vLLM's own routes for new weights
    missing: tuple[str, ...] = ()

    def __str__(self) -> str:
        can = {"adapters": self.adapters, "reload": self.reload, "weight transfer": self.transfer}
        there = ["token ids", "processed log-probabilities", *(name for name, there in can.items() if there)]
        lacks = [name for name, there in can.items() if not there]
        return f"vLLM {self.version} at {self.url}: {', '.join(there)}" + (
            f"; no {', no '.join(lacks)}" if lacks else ""
        )


def probe(url: str, key: str | None, tokenizer: Any) -> Offer:
    """Ask the server at `url`. Raises EngineError when it does not answer, ModelError when it cannot serve us."""
    url = url.rstrip("/").removesuffix("/v1")
    try:
        models = ask(f"{url}/v1/models", key=key)["data"]
        base = next(model for model in models if not model.get("parent"))
        name, max_len = str(base["id"]), int(base.get("max_model_len") or 0)
    except (KeyError, TypeError, StopIteration) as error:
        raise EngineError(f"{url}: its list of models is not vLLM's ({error!r})") from error
    routes = _routes(url, key)
    offer = Offer(
        url=url,
        version=_version(url, key),
        model=name,
        max_len=max_len,
        adapters={LOAD, UNLOAD} <= routes,
        reload={RPC, RESET} <= routes,
        transfer=routes.issuperset(TRANSFER),
        missing=tuple(_missing(url, key, name)),
    )
    if offer.missing:
        raise ModelError(f"vLLM {offer.version} at {url} lacks {'; '.join(offer.missing)}")
    _same_tokens(offer, key, tokenizer, "/tokenize" in routes)
    return offer


def _routes(url: str, key: str | None) -> frozenset[str]:
    """The paths that it answers at; empty when it does not tell."""
    try:
        return frozenset(ask(f"{url}/openapi.json", key=key)["paths"])
    except (EngineError, KeyError, TypeError):
        return frozenset()


def _version(url: str, key: str | None) -> str:
    try:
        return str(ask(f"{url}/version", key=key)["version"])
    except (EngineError, KeyError, TypeError):
        return "of an unknown version"


def _missing(url: str, key: str | None, model: str) -> Sequence[str]:
    answers = []
    for temperature in (1.0, 0.5):
        body = {"model": model, "prompt": [1, 2, 3], "max_tokens": 1, "temperature": temperature, "seed": 0}
        body |= {"logprobs": ALTERNATIVES, "return_token_ids": True}
        answers.append(ask(f"{url}/v1/completions", body, key=key)["choices"][0])
    missing = []
    if not (answers[0].get("token_ids") and answers[0].get("prompt_token_ids")):
        missing.append("token ids (it ignores return_token_ids: use a newer version)")
    try:
        gaps = [_gap(answer) for answer in answers]
    except (KeyError, TypeError, IndexError, AttributeError, ValueError):
        return [*missing, "log-probabilities of sampled tokens"]
    if gaps[1] < SHARPER * gaps[0]:
        missing.append("log-probabilities after temperature (start it with --logprobs-mode processed_logprobs)")
    return missing


def _gap(choice: Any) -> float:
    """Between the likeliest token and the last of the shown alternatives, in nats."""
    shown = sorted(choice["logprobs"]["top_logprobs"][0].values(), reverse=True)[:ALTERNATIVES]
    return shown[0] - shown[-1]


def _same_tokens(offer: Offer, key: str | None, tokenizer: Any, can_tell: bool) -> None:
    """Refuse a server whose model reads text as other tokens than ours. Raises ModelError."""
    if not can_tell:
        return
    body = {"model": offer.model, "prompt": WORDS, "add_special_tokens": False}
    theirs = ask(f"{offer.url}/tokenize", body, key=key).get("tokens")
    ours = tokenizer.encode(WORDS, add_special_tokens=False)
    if theirs != ours:
        raise ModelError(
            f"{offer.url}: its model {offer.model} has another tokenizer; serve there the model named here"
        )
