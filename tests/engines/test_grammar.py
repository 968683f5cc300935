"""Constrained decoding in the running batch, against a language small enough to write down whole."""

import asyncio
import json

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from scenarios.errors import ModelError, UsageError
from socialrl_cli.engines.config import EmbeddedConfig
from socialrl_cli.engines.embedded import EmbeddedEngine

END = 1
SCHEMA = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"move": {"const": "propose"}, "book": {"type": "integer", "minimum": 0, "maximum": 11}},
            "required": ["move", "book"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"move": {"enum": ["accept", "reject"]}},
            "required": ["move"],
            "additionalProperties": False,
        },
    ]
}
LANGUAGE = [f'{{"move":"propose","book":{n}}}' for n in range(12)] + ['{"move":"accept"}', '{"move":"reject"}']


def tokenizer():
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    bpe = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(["<pad>", "<end>", *letters])}, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<end>", pad_token="<pad>")
    made.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    return made


def model():
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    shape |= {"num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 256, "pad_token_id": 0}
    return Qwen3ForCausalLM(Qwen3Config(vocab_size=270, eos_token_id=END, initializer_range=0.2, **shape)).eval()


def ask(seed, schema=SCHEMA, **more):
    form = {"type": "json_schema", "json_schema": {"name": "move", "schema": schema}}
    return {
        "messages": [{"role": "user", "content": f"go {seed}"}],
        "seed": seed,
        "max_tokens": 40,
        "logprobs": "tokens",
        "response_format": form,
        **more,
    }


def answers(requests, lm=None, **config):
    async def go():
        engine = EmbeddedEngine(lm or model(), tokenizer(), EmbeddedConfig(slots=8, timeout_s=60, **config))
        try:
            return await asyncio.gather(*(engine.chat(request) for request in requests))
        finally:
            await engine.close()

    return asyncio.run(go())


def allowed(prefix):
    """The tokens that go on towards a sentence of the language; END behind a whole one."""
    found = {tokens.encode(text[len(prefix)])[0] for text in LANGUAGE if text.startswith(prefix) and text != prefix}
    return found | ({END} if prefix in LANGUAGE else set())


tokens = tokenizer()


@pytest.mark.parametrize("config", [{}, {"deterministic": True, "block": 16}], ids=["usual", "deterministic"])
def test_answers_are_sentences_of_the_grammar_with_log_probabilities_over_its_tokens(config):
    lm = model()
    bodies = answers([ask(n, temperature=0.5 + n % 3 / 2) for n in range(24)], lm, **config)
    said = set()
    for n, body in enumerate(bodies):
        choice, prompt = body["choices"][0], body["prompt_token_ids"]
        ids, text = choice["token_ids"], choice["message"]["content"]
        said.add(text)
        assert text in LANGUAGE
        assert (ids[-1], choice["finish_reason"]) == (END, "stop")
        with torch.no_grad():
            logits = lm(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1] / (0.5 + n % 3 / 2)
        for i, (token, logprob) in enumerate(zip(ids, choice["token_logprobs"], strict=True)):
            support = sorted(allowed(tokens.decode(ids[:i])))
            expected = logits[i, support].log_softmax(-1)[support.index(token)]
            assert logprob == pytest.approx(float(expected), abs=1e-5)
            if len(support) == 1:
                assert logprob == 0.0
    assert len(said) > 3


def test_greedy_takes_the_best_allowed_token():
    (body,) = answers([ask(0, temperature=0)])
    assert body["choices"][0]["message"]["content"] in LANGUAGE


def test_neighbours_without_a_grammar_are_not_touched():
    free = [{**ask(n), "response_format": {"type": "text"}} for n in range(6)]
    for config in ({}, {"deterministic": True, "block": 16}):
        alone = answers(free, **config)
        mixed = answers([r for pair in zip(free, map(ask, range(6)), strict=True) for r in pair], **config)[::2]
        for a, b in zip(alone, mixed, strict=True):
            a, b = a["choices"][0], b["choices"][0]
            assert a["token_ids"] == b["token_ids"]
            assert np.allclose(a["token_logprobs"], b["token_logprobs"], atol=0 if config else 1e-5)
        assert any(body["choices"][0]["message"]["content"] not in LANGUAGE for body in alone)


def test_deterministic_answers_do_not_depend_on_who_else_is_constrained():
    (alone,) = answers([ask(3)], deterministic=True, block=16)
    among = answers([ask(n) for n in range(8)], deterministic=True, block=16)[3]
    assert alone["choices"][0]["token_ids"] == among["choices"][0]["token_ids"]
    assert alone["choices"][0]["token_logprobs"] == among["choices"][0]["token_logprobs"]


def test_an_answer_cut_off_is_the_beginning_of_a_sentence():
    (body,) = answers([ask(1, max_tokens=9)])
    choice = body["choices"][0]
    assert choice["finish_reason"] == "length"
    assert len(choice["token_ids"]) == 9
    assert any(text.startswith(choice["message"]["content"]) for text in LANGUAGE)


def test_slots_forget_the_grammar_of_an_earlier_call():
    async def go():
        engine = EmbeddedEngine(model(), tokenizer(), EmbeddedConfig(slots=1, timeout_s=60))
        try:
            bodies = [await engine.chat(ask(n)) for n in range(2)]
            return [*bodies, await engine.chat({**ask(2), "response_format": None})]
        finally:
            await engine.close()

    *first, free = [body["choices"][0]["message"]["content"] for body in asyncio.run(go())]
    assert set(first) <= set(LANGUAGE)
    assert free not in LANGUAGE


def test_any_json_object_can_be_asked_for():
    bodies = answers([ask(n, response_format={"type": "json_object"}, max_tokens=200) for n in range(8)])
    whole = [b["choices"][0] for b in bodies if b["choices"][0]["finish_reason"] == "stop"]
    assert whole
    for choice in whole:
        assert isinstance(json.loads(choice["message"]["content"]), dict)


@pytest.mark.parametrize(
    "form",
    [
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": {"name": "x"}},
        {"type": "xml"},
        "json",
        {"type": "json_schema", "json_schema": {"schema": {"type": "nothing"}}},
    ],
)
def test_what_is_no_grammar_is_refused_at_once(form):
    with pytest.raises(UsageError, match="response_format"):
        answers([ask(0, response_format=form)])


def test_a_forced_tool_call_is_refused():
    with pytest.raises(UsageError, match="tool_choice"):
        answers([ask(0, response_format=None, tool_choice="required")])


def test_a_tokenizer_that_the_grammars_cannot_read_is_refused():
    class Slow:
        chat_template, eos_token_id = "x", END

        def apply_chat_template(self, *_args, **_kwargs):
            return [5, 6]

    async def go():
        engine = EmbeddedEngine(model(), Slow(), EmbeddedConfig(slots=2, timeout_s=60))
        try:
            await engine.chat(ask(0))
        finally:
            await engine.close()

    with pytest.raises(ModelError, match="has no fast form"):
        asyncio.run(go())
