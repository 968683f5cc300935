from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algos.packing import PACKED, attending_by_row, cut, packs, states, token_budget
from algos.policy import BatchTensors, policy
from algos.rows import actor_tokens
from scenarios.errors import ModelError


def logprobs_of(models, rows, budget: int) -> torch.Tensor:
    batch = actor_tokens(rows)
    tensors = BatchTensors.of(batch, models.device)
    out = torch.zeros(len(batch.ids))
    for pack in packs(batch, range(len(batch.rows)), budget):
        out = out.index_copy(0, pack.tokens, policy(models, models.actor, pack, tensors)[0])
    return out


def padded_logprobs(model, rows) -> torch.Tensor:
    """The usual way: right-padded rows, an attention mask, log_softmax over everything."""
    longest = max(len(row.token_ids) for row in rows)
    ids, mask = torch.zeros(len(rows), longest, dtype=torch.long), torch.zeros(len(rows), longest, dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row.token_ids)] = torch.from_numpy(row.token_ids)
        mask[i, : len(row.token_ids)] = 1
    logprobs = model(input_ids=ids, attention_mask=mask, use_cache=False).logits.log_softmax(-1)
    own = [logprobs[i, np.flatnonzero(row.loss_mask) - 1, row.token_ids[row.loss_mask]] for i, row in enumerate(rows)]
    return torch.cat(own)


def test_packed_rows_equal_padded_rows_with_gradients(make: SimpleNamespace) -> None:
    models = make.models(critic=False)
    rows = make.rows(6)
    found = []
    for compute in (
        lambda: padded_logprobs(models.actor, actor_tokens(rows).rows),
        lambda: logprobs_of(models, rows, budget=64),
    ):
        models.actor.zero_grad()
        logprobs = compute()
        (logprobs * torch.linspace(-1, 1, len(logprobs))).sum().backward()
        found.append((logprobs.detach(), [p.grad.clone() for p in models.actor.parameters()]))
    torch.testing.assert_close(found[1][0], found[0][0], rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(found[1][1], found[0][1], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("budget", [1, 40, 10_000])
def test_the_cut_changes_nothing(make: SimpleNamespace, budget: int) -> None:
    models = make.models(critic=False)
    rows = make.rows(6)
    with torch.no_grad():
        alone = torch.cat([logprobs_of(models, [row], 10_000) for row in actor_tokens(rows).rows])
        torch.testing.assert_close(logprobs_of(models, rows, budget), alone, rtol=1e-5, atol=1e-5)


def test_what_stands_beside_or_behind_a_row_changes_nothing(make: SimpleNamespace) -> None:
    models = make.models(critic=False)
    mine = make.row("a", ids=[5, 6, 7, 8], mask=[False, True, True, False])
    longer = make.row("a", ids=[5, 6, 7, 8, 9, 9, 9], mask=[False, True, True, False, False, False, False])
    other = make.row("b", length=20)
    with torch.no_grad():
        alone = logprobs_of(models, [mine], 100)
        beside = logprobs_of(models, [longer, other], 100)[:2]
    torch.testing.assert_close(alone, beside, rtol=1e-5, atol=1e-6)


def test_rows_cost_their_own_tokens_and_no_padding(make: SimpleNamespace) -> None:
    rows = [make.row("a", length=5), make.row("b", length=30), make.row("c", ids=[3, 4], mask=[False, False])]
    rows.append(make.row("c", ids=[3, 4, 5, 6, 7], mask=[False, True, False, False, False], segment=1))
    batch = actor_tokens(rows)
    (pack,) = packs(batch, range(4), 100)
    assert pack.lengths == [4, 29, 1]  # up to the state that predicts the last actor token; none for a silent row
    assert pack.position_ids[0].tolist() == [*range(4), *range(29), 0]
    assert pack.at.tolist() == [2, 3, *range(4 + 2, 4 + 29), 33]
    assert pack.tokens.tolist() == list(range(len(batch.ids)))


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(1, 60))
def test_a_cut_keeps_every_row_once_in_order_within_the_budget(lengths: list[int], budget: int) -> None:
    groups = cut(lengths, budget)
    assert [i for group in groups for i in group] == list(range(len(lengths)))
    assert all(len(group) == 1 or sum(lengths[i] for i in group) <= budget for group in groups)
    assert all(groups)


def test_a_sliding_window_is_kept(make: SimpleNamespace) -> None:
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, sliding_window=6, max_position_embeddings=64,
    )  # fmt: skip
    models = make.models(critic=False)
    models.actor = MistralForCausalLM(config).eval()
    rows = [make.row("a", length=20), make.row("b", length=4)]
    with torch.no_grad():
        torch.testing.assert_close(
            logprobs_of(models, rows, 100), padded_logprobs(models.actor, rows), rtol=1e-4, atol=1e-5
        )


def test_the_models_own_attention_is_put_back(make: SimpleNamespace) -> None:
    model = make.qwen3()
    before = model.config._attn_implementation
    with pytest.raises(RuntimeError, match="stop"), attending_by_row(model.model):
        assert model.config._attn_implementation == PACKED
        raise RuntimeError("stop")
    assert model.config._attn_implementation == before


def test_attention_that_we_do_not_compute_is_refused(make: SimpleNamespace) -> None:
    model = make.qwen3().model
    with pytest.raises(ModelError, match="cannot be trained"), attending_by_row(model):
        model(input_ids=torch.tensor([[3, 4]]), use_cache=False)


def test_states_are_read_where_the_token_is_predicted(make: SimpleNamespace) -> None:
    model = make.qwen3().model
    batch = actor_tokens([make.row("a", ids=[5, 6, 7, 8, 9], mask=[False, False, True, False, True])])
    (pack,) = packs(batch, [0], 100)
    with torch.no_grad():
        whole = model(input_ids=torch.tensor([[5, 6, 7, 8, 9]]), use_cache=False).last_hidden_state[0]
        torch.testing.assert_close(states(model, pack), whole[[1, 3]], rtol=1e-4, atol=1e-5)


def test_the_last_feed_forward_layer_sees_those_positions_alone(make: SimpleNamespace) -> None:
    model, seen = make.qwen3().model, []
    for layer in model.layers:
        layer.mlp.up_proj.register_forward_hook(lambda _, args, out: seen.append(args[0].shape[1]))
    batch = actor_tokens([make.row("a", ids=[5, 6, 7, 8, 9], mask=[False, False, True, False, True])])
    (pack,) = packs(batch, [0], 100)
    states(model, pack)
    assert seen == [4, 2]
    model(input_ids=torch.tensor([[5, 6, 7, 8, 9]]), use_cache=False)
    assert seen[2:] == [5, 5]  # and afterwards nothing is left behind


def test_the_budget_follows_the_models_size(make: SimpleNamespace) -> None:
    model = make.qwen3()
    assert token_budget(model) == 4096
    model.config.hidden_size, model.config.intermediate_size, model.config.num_hidden_layers = 576, 1536, 30
    # 4 bytes · 30 layers · (20·576 + 6·1536) = 2.5 MB a token; 768 MiB hold 323 of them
    assert token_budget(model) == 323
    model.config.num_hidden_layers = 300
    assert token_budget(model) == 256
