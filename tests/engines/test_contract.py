"""What every engine promises, for each part of it that the engine declares."""

import asyncio

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from scenarios.errors import SocialRLError
from socialrl_cli.engines.config import EmbeddedConfig, EngineConfig, VllmConfig
from socialrl_cli.engines.embedded import EmbeddedEngine
from socialrl_cli.engines.opening import open_engine

VOCAB = 258
HELLO = {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 6}
YES_OR_NO = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"enum": ["yes", "no"]}}}


def embedded(**config):
    torch.manual_seed(0)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    plain = Tokenizer(models.BPE({token: i for i, token in enumerate(["<pad>", "<end>", *letters])}, []))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    plain.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="<end>", pad_token="<pad>")
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    shape = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    shape |= {"num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 128, "pad_token_id": 0}
    lm = Qwen3ForCausalLM(Qwen3Config(vocab_size=VOCAB, eos_token_id=1, initializer_range=0.3, **shape)).float()
    return EmbeddedEngine(lm, tokenizer, EmbeddedConfig(slots=4, timeout_s=30, **config), model_name="small")


ENGINES = {
    "embedded": embedded,
    "deterministic": lambda: embedded(deterministic=True, block=16),
    "process": lambda: embedded(process=True),
}


@pytest.fixture(params=[*ENGINES, pytest.param("vllm", marks=pytest.mark.vllm)])
async def engine(request, tmp_path):
    if request.param == "vllm":
        config = EngineConfig(kind="vllm", vllm=VllmConfig(urls=(request.getfixturevalue("vllm_url"),)))
        path = request.getfixturevalue("tiny_model")
        made = open_engine(config, name="small", path=path, work=tmp_path)
    else:
        made = ENGINES[request.param]()
    yield made
    await made.close()


async def test_an_answer_has_the_shape_of_a_chat_completion(engine):
    body = await engine.chat(HELLO)
    (choice,) = body["choices"]
    assert body["object"] == "chat.completion"
    assert body["model"] == engine.model
    assert body["policy_version"] == engine.policy_version
    assert choice["message"]["role"] == "assistant"
    assert choice["finish_reason"] in ("stop", "length")
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"]
    if engine.capabilities.token_ids:
        assert len(choice["token_ids"]) == body["usage"]["completion_tokens"] <= 6
        assert len(body["prompt_token_ids"]) == body["usage"]["prompt_tokens"]


async def test_each_sampled_token_has_its_log_probability(engine):
    if not engine.capabilities.logprobs:
        pytest.skip("declares no log-probabilities")
    entries, plain = [
        (await engine.chat({**HELLO, "seed": 3, "logprobs": form}))["choices"][0] for form in (True, "tokens")
    ]
    found = [entry["logprob"] for entry in entries["logprobs"]["content"]]
    assert len(found) == len(entries["token_ids"])
    assert max(found) <= 0
    assert entries["token_ids"] == plain["token_ids"]
    if "token_logprobs" in plain:
        assert np.allclose(found, plain["token_logprobs"], atol=1e-5)


async def test_given_token_ids_are_the_prompt(engine):
    if not engine.capabilities.token_input:
        pytest.skip("declares no token input")
    body = await engine.chat({**HELLO, "prompt_token_ids": [9, 9, 8]})
    assert list(body["prompt_token_ids"]) == [9, 9, 8]


async def test_a_seed_gives_the_same_answer_again_and_others_give_others(engine):
    told = [(await engine.chat({**HELLO, "seed": n}))["choices"][0]["token_ids"] for n in (1, 1, 2, 3, 4)]
    assert told[0] == told[1]
    assert len({tuple(ids) for ids in told}) > 2


async def test_temperature_zero_needs_no_seed(engine):
    told = [(await engine.chat({**HELLO, "temperature": 0}))["choices"][0]["token_ids"] for _ in range(2)]
    assert told[0] == told[1]


async def test_what_it_says_and_how_it_scores_it_agree(engine):
    if not (engine.capabilities.scoring and engine.capabilities.logprobs and engine.capabilities.token_ids):
        pytest.skip("declares no scoring of its own tokens")
    body = await engine.chat({**HELLO, "logprobs": "tokens", "seed": 5})
    prompt, choice = list(body["prompt_token_ids"]), body["choices"][0]
    scored = await engine.score([*prompt, *choice["token_ids"]], top_k=3)
    assert np.allclose(scored.logprobs[len(prompt) - 1 :], choice["token_logprobs"], atol=1e-4)
    assert scored.top_ids.shape == scored.top_logprobs.shape == (len(scored.logprobs), 3)
    assert (np.diff(scored.top_logprobs) <= 0).all()


async def test_an_answer_keeps_to_a_declared_grammar(engine):
    if not engine.capabilities.grammars:
        pytest.skip("declares no grammars")
    asked = [{**HELLO, "max_tokens": 20, "seed": n, "response_format": YES_OR_NO, "logprobs": "tokens"} for n in (1, 2)]
    for body in await asyncio.gather(*map(engine.chat, asked)):
        (choice,) = body["choices"]
        assert choice["message"]["content"] in ('"yes"', '"no"')
        if engine.capabilities.logprobs:
            assert sum(logprob < 0 for logprob in choice["token_logprobs"]) == 1  # one choice, the rest is forced


async def test_calls_and_their_results_are_messages_too(engine):
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    talk = [*HELLO["messages"], {"role": "assistant", "content": None, "tool_calls": [call]}]
    body = await engine.chat({**HELLO, "messages": [*talk, {"role": "tool", "tool_call_id": "1", "content": "No."}]})
    assert body["usage"]["completion_tokens"] > 0


async def test_publishing_moves_the_version_that_answers_carry(engine):
    if not engine.capabilities.publishing:
        pytest.skip("declares no publishing")
    await engine.publish(engine.policy_version + 1)
    assert (await engine.chat(HELLO))["policy_version"] == engine.policy_version == 1


async def test_a_closed_engine_refuses(engine):
    await engine.close()
    with pytest.raises(SocialRLError):
        await engine.chat(HELLO)


async def test_many_at_once_are_all_answered(engine):
    bodies = await asyncio.gather(*(engine.chat({**HELLO, "seed": n, "max_tokens": 1 + n % 7}) for n in range(30)))
    assert [body["usage"]["completion_tokens"] <= 1 + n % 7 for n, body in enumerate(bodies)] == [True] * 30
    assert len({body["id"] for body in bodies}) == 30
