"""When engine and trainer mean different policies, the run stops and says why."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from algos.models import LoraConfig, ModelConfig, load
from scenarios.errors import EngineError
from socialrl_cli import parity, tiny
from socialrl_cli.engines.config import EmbeddedConfig
from socialrl_cli.engines.embedded import EmbeddedEngine

SMALL = tiny.TinyConfig(hidden=64, inner=96, layers=2, heads=2, kv_heads=1, critic_layers=1, vocab=600)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    torch.set_num_threads(1)
    return str(tiny.ensure(SMALL, seed=3, cache=tmp_path_factory.mktemp("cache")) / "actor")


async def asked(models, *, temperature=0.6, constrained=False):
    engine = EmbeddedEngine(models.actor, models.tokenizer, EmbeddedConfig(slots=2, capacity=256))
    try:
        return await parity.answers(engine, temperature, constrained=constrained)
    finally:
        await engine.close()


def changed(answered, **fields):
    """The same answers with other columns."""
    out = []
    for one in answered:
        choice = {**one.answer["choices"][0], **{k: v(one) for k, v in fields.items() if k != "prompt_token_ids"}}
        prompt = fields["prompt_token_ids"](one) if "prompt_token_ids" in fields else one.answer["prompt_token_ids"]
        out.append(parity.Answered(one.request, {**one.answer, "prompt_token_ids": prompt, "choices": [choice]}))
    return out


def recomputed(models, one, temperature):
    """What the trainer's model says of an answer's tokens at some temperature, over all tokens."""
    prompt, ids = list(one.answer["prompt_token_ids"]), list(one.answer["choices"][0]["token_ids"])
    with torch.no_grad():
        logits = models.actor(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
    return (logits / temperature).log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0].tolist()


async def test_the_same_model_agrees_under_a_grammar_too(path):
    models = load(ModelConfig(actor=path))
    answered = await asked(models, constrained=True)
    assert any("response_format" in one.request for one in answered)
    assert 0 <= parity.check(models, answered, "policy", 0) < 1e-4


async def test_raw_log_probabilities_are_recognised(path):
    models = load(ModelConfig(actor=path))
    raw = changed(await asked(models), token_logprobs=lambda one: recomputed(models, one, 1.0))
    with pytest.raises(EngineError, match=r"policy: version 3 .*; temperature: .*--logprobs-mode processed_logprobs"):
        parity.check(models, raw, "policy", 3)


async def test_another_template_is_recognised(path):
    models = load(ModelConfig(actor=path))
    other = changed(await asked(models), prompt_token_ids=lambda one: [5, *one.answer["prompt_token_ids"]])
    with pytest.raises(EngineError, match="; template: "):
        parity.check(models, other, "policy", 0)


async def test_a_grammar_that_only_the_engine_has_is_recognised(path):
    models = load(ModelConfig(actor=path))
    answered = await asked(models, constrained=True)
    free = changed(answered, token_logprobs=lambda one: recomputed(models, one, 0.6))
    with pytest.raises(EngineError, match="; grammar: "):
        parity.check(models, free, "policy", 0)


async def test_an_adapter_that_is_not_served_is_recognised(path):
    models = load(ModelConfig(actor=path, lora=LoraConfig(rank=4, alpha=8)))
    answered = await asked(models)  # a fresh adapter changes nothing
    assert parity.check(models, answered, "policy", 0) < 1e-4
    with torch.no_grad():
        for parameter in models.trainable():
            parameter += 0.05
    with pytest.raises(EngineError, match="; adapter: "):
        parity.check(models, answered, "policy", 1)


async def test_less_precise_arithmetic_is_recognised(path):
    models = load(ModelConfig(actor=path))
    answered = await asked(models)
    noisy = changed(answered, token_logprobs=lambda one: np.add(one.answer["choices"][0]["token_logprobs"], 0.05))
    with pytest.raises(EngineError, match="; dtype: "):
        parity.check(models, noisy, "policy", 0)


async def test_other_weights_are_told_as_such(path):
    models = load(ModelConfig(actor=path))
    answered = await asked(models)
    with torch.no_grad():
        for parameter in models.trainable():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
    with pytest.raises(EngineError, match="other weights"):
        parity.check(models, answered, "policy", 1)
