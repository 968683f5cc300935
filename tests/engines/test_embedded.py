"""The embedded engine against plain transformers: same tokens, same log-probabilities, whatever else runs."""

import asyncio
import random

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from scenarios.errors import EngineError, ModelError, UsageError
from socialrl_cli.engines.config import EmbeddedConfig
from socialrl_cli.engines.embedded import EmbeddedEngine

VOCAB, CONTEXT, END = 97, 256, 1


def tokenizer():
    words = {"<pad>": 0, "<end>": 1, **{f"w{n}": n for n in range(2, VOCAB)}}
    plain = Tokenizer(models.WordLevel(words, unk_token="w2"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="<end>", pad_token="<pad>")
    made.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    return made


def model(kind="qwen3", seed=0, end=END):
    torch.manual_seed(seed)
    shape = {
        "vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "head_dim": 16,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": CONTEXT, "eos_token_id": end,
        "pad_token_id": 0, "bos_token_id": None, "initializer_range": 0.3, "tie_word_embeddings": kind == "tied",
    }  # fmt: skip
    made = LlamaForCausalLM(LlamaConfig(**shape)) if kind == "llama" else Qwen3ForCausalLM(Qwen3Config(**shape))
    return made.float().eval()


def prompts(count, seed=0, least=3, most=60):
    rng = random.Random(seed)
    return [[rng.randrange(2, VOCAB) for _ in range(rng.randint(least, most))] for _ in range(count)]


def ask(prompt, seed=0, **more):
    return {"messages": [], "prompt_token_ids": prompt, "seed": seed, "max_tokens": 12, "logprobs": "tokens", **more}


def answers(lm, requests, *, one_by_one=False, **config):
    """(token ids, log-probabilities) of each request, asked together or one after the other; and the counters."""

    async def go():
        engine = EmbeddedEngine(lm, tokenizer(), EmbeddedConfig(**{"slots": 8, "timeout_s": 60, **config}))
        try:
            if one_by_one:
                found = [await engine.chat(request) for request in requests]
            else:
                found = await asyncio.gather(*(engine.chat(request) for request in requests))
        finally:
            await engine.close()
        return [(r["choices"][0]["token_ids"], r["choices"][0]["token_logprobs"]) for r in found], engine.counters

    return asyncio.run(go())


def forward_logprobs(lm, prompt, ids, temperature=1.0):
    with torch.no_grad():
        logits = lm(input_ids=torch.tensor([[*prompt, *ids]]), use_cache=False).logits[0].float() / temperature
    return logits.log_softmax(-1)[len(prompt) - 1 : -1].gather(1, torch.tensor(ids)[:, None])[:, 0].numpy()


@pytest.mark.parametrize("kind", ["qwen3", "tied", "llama"])
def test_alone_and_greedy_it_says_what_generate_says(kind):
    lm = model(kind)
    for prompt in prompts(3):
        ((ids, _),), _ = answers(lm, [ask(prompt, temperature=0)])
        with torch.no_grad():
            out = lm.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False, output_logits=True,
                              return_dict_in_generate=True)  # fmt: skip
        theirs = out.sequences[0, len(prompt) :].tolist()
        best = torch.stack(out.logits)[:, 0].topk(2).values
        close = ((best[:, 0] - best[:, 1]) < 1e-3).nonzero()[:, 0].tolist()
        upto = close[0] if close else len(theirs)
        assert ids[:upto] == theirs[:upto]
        assert upto > 3


@pytest.mark.parametrize("config", [{}, {"slots": 3}, {"deterministic": True, "block": 16}, {"prefill_tokens": 7}])
def test_log_probabilities_are_those_of_a_forward_pass_whatever_else_is_in_the_batch(config):
    lm = model()
    requests = [
        ask(p, seed=n, temperature=(0.5, 1.0, 2.0)[n % 3], max_tokens=4 + n % 9) for n, p in enumerate(prompts(20))
    ]
    found, _ = answers(lm, requests, **config)
    for request, (ids, logprobs) in zip(requests, found, strict=True):
        want = forward_logprobs(lm, request["prompt_token_ids"], ids, request["temperature"])
        assert np.abs(want - logprobs).max() < 1e-4
        assert len(ids) == request["max_tokens"] or ids[-1] == END


def test_a_stop_token_is_recorded_as_a_token_and_ends_the_answer():
    lm = model()
    with torch.no_grad():
        lm.lm_head.weight[END] = lm.lm_head.weight.mean(0) + 1.0
    found, _ = answers(lm, [ask(p, seed=n, max_tokens=60) for n, p in enumerate(prompts(12))])
    ended = [ids for ids, _ in found if END in ids]
    assert ended
    assert all(ids.index(END) == len(ids) - 1 for ids in ended)


def test_a_request_says_the_same_for_its_seed_whoever_runs_beside_it():
    lm, prompt = model(), prompts(1)[0]
    (alone,), _ = answers(lm, [ask(prompt, seed=5)])
    beside, _ = answers(lm, [*(ask(p, seed=n) for n, p in enumerate(prompts(7, seed=1))), ask(prompt, seed=5)])
    (other,), _ = answers(lm, [ask(prompt, seed=6)])
    assert beside[-1][0] == alone[0]
    assert other[0] != alone[0]


def test_deterministic_answers_are_the_same_bit_for_bit_in_any_company_and_order():
    lm, mine = model(), [ask(p, seed=n, max_tokens=20) for n, p in enumerate(prompts(4, seed=3))]
    company = [ask(p, seed=n, max_tokens=5 + n) for n, p in enumerate(prompts(19, seed=4))]
    config = {"deterministic": True, "slots": 16, "block": 16}
    alone = [answers(lm, [request], **config)[0][0] for request in mine]
    first, _ = answers(lm, [*mine, *company], **config)
    last, _ = answers(lm, [*company, *mine[::-1]], **config)
    assert first[:4] == alone
    assert last[19:][::-1] == alone


def turns(lm, engine_config, talks, count=3):
    """Several conversations at once, each turn's prompt continuing the last one; all tokens and log-probabilities."""

    async def go():
        engine = EmbeddedEngine(lm, tokenizer(), EmbeddedConfig(timeout_s=60, **engine_config))

        async def talk(number, prompt):
            out = []
            for turn in range(count):
                body = await engine.chat(ask(prompt, seed=100 * number + turn, max_tokens=6))
                choice = body["choices"][0]
                out.append((prompt, choice["token_ids"], choice["token_logprobs"]))
                prompt = [*prompt, *choice["token_ids"], 5, 6, 7]
            return out

        try:
            return await asyncio.gather(*(talk(n, p) for n, p in enumerate(talks))), engine.counters
        finally:
            await engine.close()

    return asyncio.run(go())


@pytest.mark.parametrize("slots", [8, 2])
def test_a_kept_prefix_changes_nothing_but_the_work(slots):
    lm = model()
    talks, counters = turns(lm, {"slots": slots}, prompts(6, seed=8, least=20))
    for talk in talks:
        for prompt, ids, logprobs in talk:
            assert np.abs(forward_logprobs(lm, prompt, ids) - logprobs).max() < 1e-4
    asked = sum(len(prompt) for talk in talks for prompt, _, _ in talk)
    assert counters["prefilled"] + counters["reused"] <= asked
    if slots == 8:  # a slot for each talk: only the three new tokens of a turn, and the last sampled one, are read
        assert counters["prefilled"] < sum(len(talk[0][0]) for talk in talks) + 6 * 2 * 6


def test_deterministic_talks_do_not_depend_on_what_was_kept():
    lm = model()
    config = {"deterministic": True, "block": 16}
    many, _ = turns(lm, {**config, "slots": 16}, prompts(5, seed=9))
    one, _ = turns(lm, {**config, "slots": 16}, prompts(5, seed=9)[:1])
    assert many[0] == one[0]


def test_an_update_of_the_shared_weights_is_seen_after_publish_and_refused_before():
    lm, prompt = model(), prompts(1, seed=2, least=30)[0]

    async def go():
        engine = EmbeddedEngine(lm, tokenizer(), EmbeddedConfig(slots=2, timeout_s=60))
        try:
            await engine.chat(ask(prompt))
            with torch.no_grad():
                lm.lm_head.weight.mul_(0.5)
            with pytest.raises(EngineError, match="publish"):
                await engine.chat(ask(prompt))
            await engine.publish(3)
            body = await engine.chat(ask(prompt))
            return body["policy_version"], body["choices"][0]
        finally:
            await engine.close()

    version, choice = asyncio.run(go())
    assert version == 3
    assert np.abs(forward_logprobs(lm, prompt, choice["token_ids"]) - choice["token_logprobs"]).max() < 1e-4


def test_adapters_are_part_of_the_model():
    import peft

    lm = model()
    lm.add_adapter(peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False))
    prompt = prompts(1)[0]
    ((ids, logprobs),), _ = answers(lm, [ask(prompt)])
    assert np.abs(forward_logprobs(lm, prompt, ids) - logprobs).max() < 1e-4
    lm.disable_adapters()
    assert np.abs(forward_logprobs(lm, prompt, ids) - logprobs).max() > 1e-3


def test_scores_are_those_of_a_forward_pass():
    lm, ids = model(), prompts(1, least=20)[0]

    async def go():
        engine = EmbeddedEngine(lm, tokenizer(), EmbeddedConfig(slots=2))
        try:
            return await engine.score(ids, top_k=5)
        finally:
            await engine.close()

    scored = asyncio.run(go())
    with torch.no_grad():
        want = lm(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)[:-1]
    assert np.abs(scored.logprobs - want.gather(1, torch.tensor(ids[1:])[:, None])[:, 0].numpy()).max() < 1e-4
    assert np.array_equal(scored.top_ids, want.topk(5).indices.numpy())
    assert np.abs(scored.top_logprobs - want.topk(5).values.numpy()).max() < 1e-4


def test_a_cancelled_request_frees_its_slot():
    lm = model(end=None)

    async def go():
        engine = EmbeddedEngine(lm, tokenizer(), EmbeddedConfig(slots=1, timeout_s=60))
        try:
            long = asyncio.create_task(engine.chat(ask([5, 6], max_tokens=240, stop_token_ids=[])))
            await asyncio.sleep(0.05)
            long.cancel()
            body = await engine.chat(ask([7, 8], max_tokens=2))
            return len(body["choices"][0]["token_ids"]), long.cancelled()
        finally:
            await engine.close()

    assert asyncio.run(go()) in ((2, True), (1, True))


def test_broken_weights_fail_the_request_that_meets_them():
    lm = model()
    with torch.no_grad():
        lm.lm_head.weight.fill_(float("nan"))
    with pytest.raises(EngineError, match="not finite"):
        answers(lm, [ask([5, 6])])


@pytest.mark.parametrize(
    ("request_", "error", "named"),
    [
        (ask(list(range(2, 97)) * 3), ModelError, "256"),
        (ask([5], max_tokens=0), UsageError, "max_tokens"),
        (ask([5], temperature=-1), UsageError, "temperature"),
        (ask([5], top_p=0.5), UsageError, "top_p"),
        (ask([5, VOCAB]), UsageError, "prompt_token_ids"),
        (ask([]), ModelError, "prompt of 0 tokens"),
    ],
)
def test_what_cannot_be_answered_is_refused_by_name(request_, error, named):
    with pytest.raises(error, match=named):
        answers(model(), [request_])


def test_a_pending_request_is_told_that_the_engine_has_closed():
    lm = model(end=None)

    async def go():
        engine = EmbeddedEngine(lm, tokenizer(), EmbeddedConfig(slots=1))
        waiting = [asyncio.create_task(engine.chat(ask([5 + n, 6], max_tokens=200))) for n in range(3)]
        await asyncio.sleep(0.05)
        await engine.close()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        with pytest.raises(EngineError, match="closed"):
            await engine.chat(ask([5]))
        return found

    found = asyncio.run(go())
    assert any(isinstance(each, EngineError) and "closed" in str(each) for each in found)


def test_a_call_that_takes_too_long_says_where_it_was():
    lm = model(end=None)
    with pytest.raises(EngineError, match="no answer in"):
        answers(lm, [ask([5, 6], max_tokens=250)], timeout_s=0.005)
