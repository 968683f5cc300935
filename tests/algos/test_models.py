from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from algos import checkpoints, models, policy
from algos.checkpoints import Counters
from algos.critic import Critic, ValueHead
from algos.models import LoraConfig, ModelConfig, Models
from scenarios.errors import ModelError


@pytest.fixture
def folder(make: SimpleNamespace, tmp_path: Path) -> Path:
    make.qwen3(3, vocabulary=len(make.tokenizer())).save_pretrained(tmp_path / "model")
    make.tokenizer().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_everything_is_trained_unless_lora_is_asked_for(folder: Path) -> None:
    full = models.load(ModelConfig(actor=str(folder)))
    assert all(p.requires_grad for p in full.actor.parameters())
    lora = models.load(ModelConfig(actor=str(folder), lora=LoraConfig()))
    names = {name for name, p in lora.actor.named_parameters() if p.requires_grad}
    kinds = {name.split(".")[-4] for name in names}
    assert kinds == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}  # no output layer
    (adapter,) = lora.actor.peft_config.values()
    assert (adapter.r, adapter.lora_alpha, adapter.lora_dropout) == (32, 64, 0.0)
    assert not full.actor.training
    assert not lora.actor.training


def test_adapters_are_drawn_from_the_seed_and_leave_torchs_own_random_state_alone(folder: Path) -> None:
    drawn = []
    for seed in (1, 1, 2):
        before = torch.get_rng_state()
        lora = models.load(ModelConfig(actor=str(folder), lora=LoraConfig(4, 8), seed=seed))
        assert torch.equal(torch.get_rng_state(), before)
        drawn.append(next(p for name, p in lora.actor.named_parameters() if "lora_A" in name))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_a_critic_is_its_own_model_or_a_head_and_starts_at_zero(make: SimpleNamespace, folder: Path) -> None:
    own = models.load(ModelConfig(actor=str(folder)), critic=True)
    assert isinstance(own.critic, Critic)
    shared = {p.data_ptr() for p in own.actor.parameters()} & {p.data_ptr() for p in own.critic.parameters()}
    assert not shared
    assert not own.critic.linear.weight.any()
    make.qwen3(4, hidden=16, vocabulary=300).model.save_pretrained(
        folder.parent / "sibling"
    )  # a backbone without an output layer
    smaller = models.load(ModelConfig(actor=str(folder), critic=str(folder.parent / "sibling")), critic=True)
    assert isinstance(smaller.critic, Critic)
    assert smaller.critic.linear.in_features == 16
    head = models.load(ModelConfig(actor=str(folder), critic="value_head"), critic=True)
    assert isinstance(head.critic, ValueHead)
    assert models.load(ModelConfig(actor=str(folder))).critic is None


def test_a_critic_is_not_made_of_an_adapter(folder: Path, tmp_path: Path) -> None:
    lora = models.load(ModelConfig(actor=str(folder), lora=LoraConfig(4, 8)))
    checkpoints.save_model_folder(tmp_path / "adapter", lora)
    with pytest.raises(ModelError, match="a critic needs a whole model"):
        models.load(ModelConfig(actor=str(tmp_path / "adapter")), critic=True)


def test_it_says_in_one_line_what_is_trained_and_how(folder: Path) -> None:
    loaded = models.load(ModelConfig(actor=str(folder), critic="value_head", device="cpu"), critic=True)
    count = f"{sum(p.numel() for p in loaded.actor.parameters()):,}"
    assert loaded.describe() == (
        f"actor {folder}: {count} parameters, {count} of them trained; critic: a value head of 33; float32 on cpu"
    )


def test_a_critic_that_reads_other_tokens_is_refused(make: SimpleNamespace, folder: Path) -> None:
    def load(vocabulary: int, tokenizer: Any = None) -> Models:
        path = folder.parent / f"critic-{vocabulary}-{tokenizer is not None}"
        make.qwen3(4, vocabulary=vocabulary).save_pretrained(path)
        if tokenizer is not None:
            tokenizer.save_pretrained(path)
        return models.load(ModelConfig(actor=str(folder), critic=str(path)), critic=True)

    size = len(make.tokenizer())
    with pytest.raises(ModelError, match=f"of {size - 1}.*not the actor's {size}"):
        load(size - 1)
    other = make.tokenizer()
    other.add_tokens(["hello"])
    with pytest.raises(ModelError, match="must share a tokenizer"):
        load(size + 8, other)
    assert load(size + 8, make.tokenizer()).critic is not None  # a padded vocabulary is the same tokenizer
    assert load(size + 9).critic is not None


def test_weights_that_are_missing_are_not_made_up(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"1 of its weights are not in the folder, model\.layers\.1\.mlp\.up_proj"):
        models.load_actor(folder)


def test_the_reference_is_the_actor_as_it_was_loaded(folder: Path) -> None:
    full = models.load(ModelConfig(actor=str(folder)), reference=True)
    assert full.reference is not full.actor
    assert not any(p.requires_grad for p in full.reference.parameters())
    lora = models.load(ModelConfig(actor=str(folder), lora=LoraConfig(4, 8)), reference=True)
    assert lora.reference is None  # the actor without its adapter: no second copy


def test_an_adapter_that_is_trained_further_is_its_own_reference(folder: Path, tmp_path: Path) -> None:
    first = models.load(ModelConfig(actor=str(folder), lora=LoraConfig(4, 8)))
    for name, parameter in first.actor.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=0.1)
    (tmp_path / "step-1").mkdir()
    checkpoints.writer(first, {}, Counters(1))(tmp_path / "step-1")
    further = models.load(ModelConfig(actor=str(tmp_path / "step-1"), lora=LoraConfig(4, 8)), reference=True)
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad(), policy.reference_policy(further) as reference:
        assert torch.equal(reference(input_ids=ids).logits, first.actor(input_ids=ids).logits)
    assert {name for name, p in further.actor.named_parameters() if p.requires_grad} == {
        name for name, p in first.actor.named_parameters() if p.requires_grad
    }


@pytest.mark.parametrize("lora", [None, LoraConfig(4, 8)])
def test_bfloat16_computes_in_bfloat16_and_trains_in_float32(folder: Path, lora: LoraConfig | None) -> None:
    loaded = models.load(ModelConfig(actor=str(folder), dtype="bfloat16", lora=lora))
    assert {p.dtype for p in loaded.trainable()} == {torch.float32}
    frozen = {p.dtype for p in loaded.actor.parameters() if not p.requires_grad}
    assert frozen == ({torch.bfloat16} if lora else set())
    assert loaded.compute_dtype == torch.bfloat16
    with pytest.raises(ValueError, match="float16"):
        ModelConfig(actor=str(folder), dtype="float16")


def tiny(kind: str) -> Any:
    import transformers

    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "vocab_size": 50, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 64,
    }  # fmt: skip
    config = getattr(transformers, f"{kind}Config")(**shape)
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


@pytest.mark.parametrize("kind", ["Llama", "Qwen2", "Mistral"])
def test_ordinary_architectures_are_exact(make: SimpleNamespace, kind: str) -> None:
    policy.check_exact(Models(tiny(kind), make.tokenizer(), source=kind))


@pytest.mark.parametrize("kind", ["Gemma2", "Cohere", "Granite"])
def test_an_architecture_with_other_logits_or_attention_is_refused(make: SimpleNamespace, kind: str) -> None:
    model = tiny(kind)
    if kind == "Granite":
        model.config.logits_scaling = 8.0
        model.logits_scaling = 8.0
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    with pytest.raises(ModelError, match="cannot be trained here"):
        policy.check_exact(Models(model, make.tokenizer(), source=kind))
