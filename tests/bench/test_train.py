from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from algos.rows import actor_tokens
from socialrl_cli.bench.train import products, rows, train_bench


def folder(path: Path) -> Path:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=40, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, tie_word_embeddings=False,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(path)
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))).save_pretrained(path)
    return path


def test_skewed_rows_have_the_same_tokens_in_other_lengths() -> None:
    equal, skewed = (rows(16, 64, 64, skew, 40) for skew in (False, True))
    assert {len(row.token_ids) for row in equal} == {128}
    lengths = sorted(int(row.loss_mask.sum()) for row in skewed)
    assert sum(lengths) == pytest.approx(16 * 64, rel=0.01)
    assert lengths[-1] > 3.5 * 64
    assert lengths[7] < lengths[-1] / 8
    assert all(len(row.token_ids) == 64 + row.loss_mask.sum() for row in skewed)


def test_products_are_counted_by_hand(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder(tmp_path))
    batch = actor_tokens(rows(3, 5, 4, False, 40))
    # a layer: q 32·32 + k, v 2·32·16 + o 32·32 + three of 32·64 = 9,216; 2 layers, 8 tokens of each row are fed;
    # the output layer 40·32 at 4 positions of each row
    assert products(model, batch) == 2 * (2 * 9216 * 3 * 8 + 40 * 32 * 3 * 4)


def test_it_measures_each_part_on_its_own(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    try:
        out = train_bench(str(folder(tmp_path)), sequences=4, prompt_tokens=8, new_tokens=8, steps=1, lora_rank=2)
    finally:
        torch.set_num_threads(threads)
    assert (out["tokens"], out["trained_tokens"], out["longest_row"]) == (64, 32, 16)
    assert out["settings"]["micro_tokens"] == 4096
    for name in ("sft", "ppo_actor", "ppo_critic"):
        figures = out[name]
        assert figures["tokens_per_s"] == pytest.approx(2 * figures["trained_tokens_per_s"], rel=0.01)
        assert 0 < figures["matmul_share"] < 1
        assert np.isfinite(list(figures.values())).all()


def test_a_part_alone_loads_and_measures_nothing_else(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    try:
        out = train_bench(
            str(folder(tmp_path)), sequences=2, prompt_tokens=8, new_tokens=8, steps=1, parts=["ppo_actor"]
        )
    finally:
        torch.set_num_threads(threads)
    assert out["ppo_actor"]["tokens_per_s"] > 0
    assert set(out["parameters"]) == {"actor"}
    assert not {"sft", "ppo_critic"} & set(out)
