"""Tiny random models, rows and a run directory that only remembers."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from algos.critic import Critic
from algos.models import Models
from algos.rows import Row

VOCABULARY = 50
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def qwen3(seed: int = 0, *, hidden: int = 32, layers: int = 2, tied: bool = False, vocabulary: int = VOCABULARY) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = Qwen3Config(
            vocab_size=vocabulary,
            hidden_size=hidden,
            intermediate_size=2 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            max_position_embeddings=64,
            tie_word_embeddings=tied,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=2,
        )
        model = Qwen3ForCausalLM(config)
        for parameter in model.parameters():  # larger than usual, so that log-probabilities differ from uniform
            if parameter.ndim > 1:
                torch.nn.init.normal_(parameter, std=0.15)
    return model.eval()


def tokenizer_for(text: str = "") -> Any:
    """Byte-level BPE without merges (but one), ChatML; ids 0, 1, 2 are the special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*special, *letters, "Ċh"])}
    bpe = Tokenizer(models.BPE(vocab=vocabulary, merges=[("Ċ", "h")]))  # "\n" + "h" would merge across a boundary
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=special[2], pad_token=special[0])
    tokenizer.add_special_tokens({"additional_special_tokens": [special[1]]})
    tokenizer.chat_template = text or CHATML
    return tokenizer


def row(
    episode: str = "a",
    *,
    ids: list[int] | None = None,
    mask: list[bool] | None = None,
    length: int = 8,
    prompt: int = 3,
    seed: int = 0,
    reward: float = 0.5,
    **other: Any,
) -> Row:
    """A row of random tokens whose tokens behind the prompt are the actor's, unless said otherwise."""
    rng = np.random.default_rng([seed, sum(map(ord, episode))])
    tokens = np.array(ids, np.int32) if ids is not None else rng.integers(3, VOCABULARY, length).astype(np.int32)
    actor = np.arange(len(tokens)) >= prompt if mask is None else np.array(mask)
    fields: dict[str, Any] = {
        "env": "toy",
        "opponent": "scripted",
        "seat": "A",
        "segment": 0,
        "prompt_len": prompt,
        "logprobs": np.where(actor, -rng.uniform(1, 3, len(tokens)), 0).astype(np.float32),
        "temperature": 1.0,
    } | other
    return Row(episode_id=episode, token_ids=tokens, loss_mask=actor, reward=reward, **fields)


def talk_rows(count: int, *, seed: int = 0) -> list[Row]:
    """Episodes of mixed lengths; actor tokens in several turns; some episodes in two segments."""
    rng = np.random.default_rng(seed)
    out = []
    for number in range(count):
        for segment in range(1 + number % 2):
            length = int(rng.integers(6, 40))
            mask = rng.random(length) < 0.4
            mask[0], mask[-2] = False, True
            reward = float((number * 7 % 10) / 10)
            out.append(row(f"e{number}", length=length, mask=mask.tolist(), seed=seed, segment=segment, reward=reward))
    return out


class MemoryRun:
    """A run directory as a loop sees it; `stop_after` steps somebody asks to stop."""

    def __init__(self, folder: Path, stop_after: int = 10**9) -> None:
        self.folder, self.stop_after = folder, stop_after
        self.metrics: list[dict[str, Any]] = []
        self.best: list[tuple[int, float] | tuple[int, float, str]] = []

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        self.metrics.append({"step": step, **metrics})

    def save(self, step: int, write: Callable[[Path], None]) -> None:
        shutil.rmtree(self.folder / "new", ignore_errors=True)
        (self.folder / "new").mkdir(parents=True)
        write(self.folder / "new")
        (self.folder / "new").rename(self.folder / f"step-{step}")

    def latest(self) -> Path | None:
        steps = sorted((int(p.name.removeprefix("step-")), p) for p in self.folder.glob("step-*"))
        return steps[-1][1] if steps else None

    def mark_best(self, step: int, score: float, delegate: str = "") -> None:
        self.best.append((step, score, delegate) if delegate else (step, score))

    def should_stop(self) -> bool:
        return len(self.metrics) >= self.stop_after


def models(seed: int = 0, *, critic: bool = True, **shape: Any) -> Models:
    """A random actor, and a random critic of another seed, with a head that is not zero."""
    actor = qwen3(seed, **shape)
    value = Critic(qwen3(seed + 1, **shape).model).eval() if critic else None
    if value is not None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            torch.nn.init.normal_(value.linear.weight, std=0.1)
    return Models(actor, tokenizer_for(), critic=value, source="tiny")


@pytest.fixture
def make() -> SimpleNamespace:
    return SimpleNamespace(
        qwen3=qwen3, tokenizer=tokenizer_for, row=row, rows=talk_rows, run=MemoryRun, models=models, chatml=CHATML
    )
