"""The `tiny` model: a small Qwen3 with its own tokenizer, made from scratch by this tool; nothing is downloaded.

Its tokenizer learns from scripted games that are played for it (never from a corpus), its weights are random: it
knows the letters and nothing else until `train sft`. Byte-level BPE that breaks at digits and newlines alone, so that
what is said often, a whole phrase of the game, becomes one token. Heads of 32, and an output layer of its own, so
that vLLM serves it and takes new weights.

`ensure` keeps the result in the user's cache under a name that holds the seed and a digest of SOURCES, the code and
scenarios that it was made with; the same sources and seed give the same bytes. Sizes in tokens and parameters.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from envs.agents.llm import HarnessConfig

PAD, END = "<|pad|>", "<|end|>"  # ids 0, 1
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")  # one token opens a message, `END` closes the model's own
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{%- if message['role'] == 'assistant' -%}{{ '<|end|>' }}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}"
)
HARNESS = HarnessConfig(prompt="compact", max_tokens=64, temperature=0.7)
DEMONSTRATORS = ("boulware", "conceder", "hardliner", "linear", "planner", "tit_for_tat")
GAMES = 400  # scripted games that the tokenizer reads
ROOT = Path(__file__).parents[1]
SOURCES = (  # what has a say in the games that the tokenizer reads, from where the packages lie
    "envs/__init__.py",
    *(f"envs/{name}.py" for name in ("answers", "bargain", "core", "division", "dnd", "events", "running", "telling")),
    "envs/frame.py",
    *(f"envs/agents/{name}.py" for name in ("beliefs", "conversation", "deals", "division", "dnd", "formats")),
    *(f"envs/agents/{name}.py" for name in ("harness", "llm", "phrases", "planner", "scripted")),
    *(f"rewards/{name}.py" for name in ("allocation", "core", "curve", "division", "dnd", "leakage")),
    *(f"scenarios/{name}" for name in ("core.py", "dnd.py", "jsonfile.py", "data/dnd/train.jsonl")),
    "socialrl_cli/tiny.py",
)
INIT = 0.06  # sd of the random weights; the usual 0.02 is meant for wide models and learns more slowly here


@dataclass(frozen=True)
class TinyConfig:
    """Sizes of the actor and of its critic, which shares the tokenizer."""

    hidden: int = 128
    inner: int = 384
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    vocab: int = 1024
    context: int = 2048
    critic_layers: int = 1


def cache_dir() -> Path:
    """Where built models are kept: $SOCIALRL_CACHE, else the user's cache folder."""
    if own := os.environ.get("SOCIALRL_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "socialrl"


def ensure(config: TinyConfig | None = None, *, seed: int = 0, cache: Path | None = None) -> Path:
    """The folder with `actor/` and `critic/`, built when it is not there yet."""
    config = config or TinyConfig()
    name = f"tiny-{seed}-{_digest(config)}"
    target = (cache or cache_dir()) / name
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=target.parent))
    try:
        build(work, config, seed=seed)
        try:
            work.rename(target)
        except OSError:  # another process was first; its folder is the same
            if not target.exists():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def _digest(config: TinyConfig) -> str:
    """Changes whenever the sizes or a source change."""
    digest = hashlib.blake2b(json.dumps(asdict(config)).encode(), digest_size=6)
    for name in SOURCES:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def build(folder: Path, config: TinyConfig, *, seed: int) -> None:
    """Write `folder/actor` and `folder/critic`: weights, tokenizer and `socialrl.json`."""
    from socialrl_cli.cast import write_harness
    from socialrl_cli.models import quiet

    quiet()
    with ThreadPoolExecutor(1) as pool:  # a loop of its own: whoever needs the model may be in one
        texts = pool.submit(lambda: asyncio.run(scripted_texts(GAMES, seed))).result()
    tokenizer = build_tokenizer(texts, config.vocab)
    for name, model in (
        ("actor", build_actor(config, tokenizer, seed)),
        ("critic", build_critic(config, tokenizer, seed)),
    ):
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        write_harness(folder / name, HARNESS)


async def scripted_texts(games: int, seed: int) -> list[str]:
    """What is said in scripted games, as the harness puts it to a small model: one text a seat."""
    from envs import make
    from envs.agents.llm import Transcribed
    from envs.agents.scripted import scripted
    from envs.core import derive_seed, run
    from scenarios.core import packaged

    scenarios = packaged("dnd", "train")
    texts = []
    for number in range(games):
        scenario, parts = scenarios[number % len(scenarios)], (seed, "tokenizer", number)
        env = make(scenario, seed=derive_seed(*parts))
        agents = {}
        for offset, seat in enumerate(env.seats):
            name = DEMONSTRATORS[(number + offset * (number // len(DEMONSTRATORS) + 1)) % len(DEMONSTRATORS)]
            player = scripted("dnd", name, seed=derive_seed(*parts, seat), options={})
            agents[seat] = Transcribed(player, env="dnd", config=HARNESS)
        await run(env, agents)
        texts += ["\n".join(message["content"] for message in agent.messages) for agent in agents.values()]
    return texts


def build_tokenizer(texts: list[str], vocab: int) -> Any:
    """A byte-level BPE over `texts`, with the chat template."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"[0-9]|\n"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[PAD, END, *ROLES],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=END, pad_token=PAD)
    tokenizer.add_special_tokens({"additional_special_tokens": list(ROLES)})
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def build_actor(config: TinyConfig, tokenizer: Any, seed: int) -> Any:
    """A random causal LM in float32."""
    import torch
    from transformers import Qwen3ForCausalLM

    torch.manual_seed(seed)
    return Qwen3ForCausalLM(_qwen3(config, tokenizer, config.layers)).to(torch.float32)


def build_critic(config: TinyConfig, tokenizer: Any, seed: int) -> Any:
    """The backbone of the critic: as the actor, with fewer layers and no output layer."""
    import torch
    from transformers import Qwen3Model

    torch.manual_seed(seed + 1)
    return Qwen3Model(_qwen3(config, tokenizer, config.critic_layers)).to(torch.float32)


def _qwen3(config: TinyConfig, tokenizer: Any, layers: int) -> Any:
    from transformers import Qwen3Config

    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden,
        intermediate_size=config.inner,
        num_hidden_layers=layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.head_dim,
        max_position_embeddings=config.context,
        tie_word_embeddings=False,
        initializer_range=INIT,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
