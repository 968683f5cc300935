"""The tensor side of the embedded engine by itself: sampling, groups of slots, which models are refused."""

import asyncio

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GPT2Config, GPT2LMHeadModel, MistralConfig, MistralForCausalLM, Qwen3Config, Qwen3ForCausalLM

from scenarios.errors import EngineError, ModelError
from socialrl_cli.engines.attention import COPYING, ROUND, WORTH_A_TAIL, most_reach, plan_decode
from socialrl_cli.engines.config import EmbeddedConfig
from socialrl_cli.engines.embedded import EmbeddedEngine
from socialrl_cli.engines.slots import Cache, sample


class NoText:
    eos_token_id = chat_template = None

    def decode(self, ids, **_):
        return ""


def qwen(**more):
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    shape |= {"num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512, "initializer_range": 0.3}
    return Qwen3ForCausalLM(Qwen3Config(vocab_size=50, **shape | more)).float().eval()


def logprobs_of(lm, prompt, ids):
    with torch.no_grad():
        logits = lm(input_ids=torch.tensor([[*prompt, *ids]]), use_cache=False).logits[0]
    return logits.log_softmax(-1)[len(prompt) - 1 : -1].gather(1, torch.tensor(ids)[:, None])[:, 0].numpy()


async def ask(engine, prompt, most, **more):
    request = {"prompt_token_ids": prompt, "max_tokens": most, "logprobs": "tokens", "seed": 1, **more}
    choice = (await engine.chat(request))["choices"][0]
    return choice["token_ids"], choice["token_logprobs"]


def test_samples_follow_the_distribution_and_never_leave_its_support():
    logits = torch.tensor([[0.0, 1.0, -torch.inf, 2.0, -1.0]]).expand(20_000, -1)
    p = (logits[0] / 0.7).softmax(-1).numpy()
    uniform = (np.arange(20_000, dtype=np.float32) + 0.5) / 20_000
    tokens, logprobs = sample(logits, np.full(20_000, 0.7, np.float32), uniform)
    counts = np.bincount(tokens.astype(int), minlength=5) / 20_000
    assert np.abs(counts - p).max() < 2e-4  # a grid of uniforms: the inverse is exact to a step of 1/20,000
    assert np.allclose(logprobs, np.log(p[tokens.astype(int)]), atol=1e-6)


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-24, 1.0])
def test_the_ends_of_the_unit_interval_hit_possible_tokens(uniform):
    logits = torch.full((3, 7), -torch.inf)
    logits[:, 2:5] = torch.tensor([[0.0, 1, 2], [5, 5, 5], [-80, 0, -80]])
    tokens, logprobs = sample(logits, np.ones(3, np.float32), np.full(3, uniform, np.float32))
    assert np.isfinite(logprobs).all()
    assert ((tokens >= 2) & (tokens < 5)).all()


def test_rows_that_are_not_finite_say_so_and_leave_the_others_alone():
    logits = torch.zeros(4, 8)
    logits[1, 3], logits[2, 0], logits[3] = torch.nan, torch.inf, -torch.inf
    _, logprobs = sample(logits, np.array([1, 1, 0, 1], np.float32), np.full(4, 0.5, np.float32))
    assert np.isfinite(logprobs).tolist() == [True, False, False, False]
    assert logprobs[0] == pytest.approx(-np.log(8))


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=128))
@settings(max_examples=60, deadline=None)
def test_reading_tails_apart_never_costs_more_than_reading_everybody_to_the_longest(lengths):
    last = np.array(lengths)
    whole = -(-(int(last.max()) + 1) // ROUND) * ROUND
    common = most_reach(last, whole)
    assert 0 < common <= whole
    if common < whole:
        longer = int((last >= common).sum())
        assert len(last) * common + COPYING * longer * (whole - common) + WORTH_A_TAIL <= len(last) * whole


def test_one_long_slot_among_many_short_ones_has_a_tail():
    cache = Cache(qwen(), 128, 512)
    last = np.full(128, 90)
    last[[5, 70]] = 400
    plan = plan_decode(cache, np.arange(128), last, 0)
    assert plan.tail is not None
    assert plan.bias.shape[-1] == 96
    assert sorted(set((plan.tail.rows // cache.heads).tolist())) == [5, 70]
    assert plan.tail.tokens == slice(96, 416)
    assert plan_decode(cache, np.arange(128), np.full(128, 90), 0).tail is None


async def test_long_and_short_slots_side_by_side_are_attended_right():
    lm = qwen()
    engine = EmbeddedEngine(lm, NoText(), EmbeddedConfig(slots=40))
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, 50, 300 if n % 9 == 0 else 5 + n).tolist() for n in range(40)]
    told = await asyncio.gather(*(ask(engine, p, 4 + n % 5) for n, p in enumerate(prompts)))
    await engine.close()
    for prompt, (ids, logprobs) in zip(prompts, told, strict=True):
        assert np.abs(logprobs_of(lm, prompt, ids) - logprobs).max() < 1e-4


async def test_few_slots_that_lie_far_apart_are_attended_right():
    lm, prompts = qwen(), [[n, n + 1, n + 2] for n in range(30)]
    engine = EmbeddedEngine(lm, NoText(), EmbeddedConfig(slots=30))
    told = await asyncio.gather(*(ask(engine, p, 40 if n in (0, 29) else 2) for n, p in enumerate(prompts)))
    await engine.close()
    for n in (0, 29):
        assert np.abs(logprobs_of(lm, prompts[n], told[n][0]) - told[n][1]).max() < 1e-4


async def test_a_beginning_that_another_slot_has_is_copied_and_not_read_again():
    lm, engine = qwen(), None
    engine = EmbeddedEngine(lm, NoText(), EmbeddedConfig(slots=4))
    begin = np.random.default_rng(1).integers(0, 50, 100).tolist()
    await ask(engine, [*begin, 1], 3)
    before = engine.counters["prefilled"]
    ids, logprobs = await ask(engine, [*begin, 2, 3], 3)
    await engine.close()
    assert engine.counters["prefilled"] - before == 2
    assert np.abs(logprobs_of(lm, [*begin, 2, 3], ids) - logprobs).max() < 1e-4


async def test_one_broken_request_does_not_hurt_its_neighbours_or_its_successors():
    lm = qwen()
    with torch.no_grad():
        lm.model.embed_tokens.weight[49] = torch.nan  # whoever says 49 breaks
        lm.lm_head.weight = torch.nn.Parameter(lm.lm_head.weight.clone().nan_to_num())
    engine = EmbeddedEngine(lm, NoText(), EmbeddedConfig(slots=3))
    good, bad, also = await asyncio.gather(
        ask(engine, [1, 2, 3], 5, temperature=0), ask(engine, [4, 49, 5], 5), ask(engine, [6, 7], 5, temperature=0),
        return_exceptions=True,
    )  # fmt: skip
    again = await asyncio.gather(*(ask(engine, [n, n], 3, temperature=0) for n in range(9)))
    await engine.close()
    assert isinstance(bad, EngineError)
    assert "answer token 0" in str(bad)
    assert len(good[0]) == len(also[0]) == 5
    assert all(np.isfinite(logprobs).all() for _, logprobs in again)


async def test_learned_positions_work_too():
    torch.manual_seed(0)
    shape = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 128, "bos_token_id": None, "eos_token_id": None}
    lm = GPT2LMHeadModel(GPT2Config(vocab_size=50, initializer_range=0.3, **shape)).eval()
    engine = EmbeddedEngine(lm, NoText(), EmbeddedConfig(slots=4))
    told = await asyncio.gather(*(ask(engine, [n, 2 * n, 3], 9) for n in range(7)))
    await engine.close()
    for n, (ids, logprobs) in enumerate(told):
        assert np.abs(logprobs_of(lm, [n, 2 * n, 3], ids) - logprobs).max() < 1e-4


def sliding():
    shape = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    return MistralForCausalLM(MistralConfig(vocab_size=50, num_key_value_heads=2, sliding_window=8, **shape))


def flash():
    lm = qwen()
    lm.config._attn_implementation = "flash_attention_2"
    return lm


def closed():
    lm = qwen()
    lm._supports_attention_backend = False
    return lm


@pytest.mark.parametrize(
    ("make", "named"), [(sliding, "sliding_window"), (flash, "flash_attention_2"), (closed, "Qwen3ForCausalLM")]
)
def test_a_model_whose_attention_would_come_out_wrong_is_refused_and_left_as_it_was(make, named):
    lm = make()
    own = lm.config._attn_implementation
    with pytest.raises(ModelError, match=named):
        EmbeddedEngine(lm, NoText(), EmbeddedConfig(slots=2, capacity=16))
    assert lm.config._attn_implementation == own


async def test_two_engines_cannot_have_one_model_at_once_but_one_after_the_other():
    lm = qwen()
    first = EmbeddedEngine(lm, NoText(), EmbeddedConfig(slots=2))
    with pytest.raises(ModelError, match="another engine"):
        EmbeddedEngine(lm, NoText(), EmbeddedConfig(slots=2))
    await first.close()
    await EmbeddedEngine(lm, NoText(), EmbeddedConfig(slots=2)).close()
    assert lm.config._attn_implementation == "sdpa"


def test_a_capacity_beyond_the_context_is_refused_with_both_numbers():
    with pytest.raises(ModelError, match=r"600.*512"):
        EmbeddedEngine(qwen(), NoText(), EmbeddedConfig(slots=2, capacity=600))


async def test_training_mode_and_gradients_are_untouched_by_an_engine_that_shares_the_model():
    lm = qwen(attention_dropout=0.5)
    engine = EmbeddedEngine(lm, NoText(), EmbeddedConfig(slots=2))
    lm.train()
    ids, logprobs = await ask(engine, [1, 2, 3], 6)  # without dropout
    lm.eval()
    assert np.abs(logprobs_of(lm, [1, 2, 3], ids) - logprobs).max() < 1e-4
    loss = lm(input_ids=torch.tensor([[1, 2, 3, 4]]), labels=torch.tensor([[1, 2, 3, 4]])).loss
    loss.backward()
    shared = lm.model.layers[0].self_attn.k_proj.weight.grad.clone()
    await engine.close()
    lm.zero_grad()
    lm(input_ids=torch.tensor([[1, 2, 3, 4]]), labels=torch.tensor([[1, 2, 3, 4]])).loss.backward()
    assert torch.equal(shared, lm.model.layers[0].self_attn.k_proj.weight.grad)


async def test_publish_loads_given_weights_between_requests_and_every_answer_says_whose_it_is():
    models = {0: qwen(), 1: qwen()}
    for parameter in models[1].parameters():
        parameter.data.mul_(0.5)
    lm = qwen()
    engine = EmbeddedEngine(lm, NoText(), EmbeddedConfig(slots=2))

    async def told(most):
        request = {"prompt_token_ids": [1, 2], "max_tokens": most, "logprobs": "tokens", "seed": 1}
        body = await engine.chat(request)
        choice = body["choices"][0]
        error = logprobs_of(models[body["policy_version"]], [1, 2], choice["token_ids"]) - choice["token_logprobs"]
        assert np.abs(error).max() < 1e-4
        return body["policy_version"]

    running = [asyncio.create_task(told(100)) for _ in range(2)]
    while not engine.counters["decoded"]:
        await asyncio.sleep(0.001)
    publishing = asyncio.create_task(engine.publish(1, models[1].state_dict()))
    later = [asyncio.create_task(told(5)) for _ in range(3)]
    assert await asyncio.gather(*running) == [0, 0]
    await publishing
    assert await asyncio.gather(*later) == [1, 1, 1]
    with pytest.raises(ModelError, match="nowhere"):
        await engine.publish(2, {"nowhere.weight": torch.zeros(1)})
    assert engine.policy_version == 1
    assert await told(5) == 1
    await engine.close()


async def test_shared_weights_are_not_published_while_requests_run():
    engine = EmbeddedEngine(qwen(), NoText(), EmbeddedConfig(slots=2))
    running = asyncio.create_task(ask(engine, [1, 2], 400))
    await asyncio.sleep(0)
    with pytest.raises(EngineError, match="1 requests run"):
        await engine.publish(1)
    await running
    await engine.close()
