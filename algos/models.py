"""The models of a training run: actor, tokenizer, critic, reference, loaded from folders or hub names.

The actor is any causal language model of transformers with ordinary attention: its full weights are trained, or LoRA
adapters on all its linear layers (the output layer excepted). `dtype` is what passes compute in. Full weights are
always kept in float32 (an update of 1e-6 would be lost in bfloat16) and computed under autocast when asked for less;
with LoRA the frozen base is held in `dtype`, the adapters in float32. Nothing is dropped out in training: the policy
that is trained is the one that played.

Left out: quantised bases, models across several devices of one process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from algos import distributed
from algos.critic import Critic, ValueHead, load_head
from algos.grammars import Guide
from algos.policy import check_exact
from algos.team import Team
from scenarios.errors import ModelError

VALUE_HEAD = "value_head"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
ADAPTER_FILE = "adapter_config.json"


@dataclass(frozen=True, slots=True)
class LoraConfig:
    rank: int = 32
    alpha: int = 64


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """`critic` is a folder or hub name, "value_head", or "" for a critic that starts as a copy of the actor."""

    actor: str = ""
    critic: str = ""
    lora: LoraConfig | None = None
    dtype: str = "float32"
    device: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype: got {self.dtype!r}, expected one of {', '.join(DTYPES)}")


@dataclass(slots=True)
class Models:
    """What a loop trains. `reference` is None when it is the actor without its adapter, or is not needed."""

    actor: Any  # a transformers causal LM; LoRA layers, if any, are inside
    tokenizer: Any
    critic: Critic | ValueHead | None = None
    reference: Any = None
    source: str = ""  # the folder or name the actor came from
    autocast: torch.dtype | None = None
    files: dict[str, str] = field(default_factory=dict)  # texts that are saved beside the actor, by name
    guide: Guide | None = None  # for rows that were sampled under a grammar, made when there are some
    team: Team = field(default_factory=Team)  # who computes its passes

    @property
    def device(self) -> torch.device:
        return self.actor.device

    @property
    def compute_dtype(self) -> torch.dtype:
        return self.autocast or self.actor.dtype

    @property
    def lora(self) -> bool:
        return bool(getattr(self.actor, "_hf_peft_config_loaded", False))

    @property
    def context(self) -> int:
        """The longest row, in tokens, that the actor and the critic were made for."""
        configs = [self.actor.config] + ([self.critic.backbone.config] if isinstance(self.critic, Critic) else [])
        return min(int(getattr(c, "max_position_embeddings", None) or 1 << 30) for c in configs)

    def describe(self) -> str:
        """One line for people: sizes, what is trained, and in which arithmetic."""
        count = sum(p.numel() for p in self.actor.parameters())
        trained = sum(p.numel() for p in self.trainable())
        critic = "none"
        if self.critic is not None:
            kind = "a value head" if isinstance(self.critic, ValueHead) else "a model"
            critic = f"{kind} of {sum(p.numel() for p in self.critic.parameters()):,}"
        return (
            f"actor {self.source}: {count:,} parameters, {trained:,} of them trained; critic: {critic}; "
            f"{str(self.compute_dtype).removeprefix('torch.')} on {self.device}"
        )

    def computing(self) -> AbstractContextManager[Any]:
        """Around a forward pass."""
        return torch.autocast(self.device.type, self.autocast) if self.autocast else nullcontext()

    def trainable(self) -> list[nn.Parameter]:
        return [p for p in self.actor.parameters() if p.requires_grad]

    def spread(self) -> None:
        """Shard what is trained whole over the trainer processes."""
        if not self.lora:
            for model in filter(None, (self.actor, self.reference)):
                distributed.shard(model, model.get_decoder().layers)
        if isinstance(self.critic, Critic):
            distributed.shard(self.critic, self.critic.backbone.layers)

    def whole(self) -> Models:
        """The same with all the weights of what is trained (see `distributed.whole`)."""
        return replace(self, actor=distributed.whole(self.actor), critic=distributed.whole(self.critic))


def load(config: ModelConfig, *, critic: bool = False, reference: bool = False) -> Models:
    """Load what a run needs. Raises ModelError, in one line, for whatever cannot be loaded or trained."""
    device = _device(config.device)
    adapter = is_adapter(config.actor)  # it is trained further, whatever `lora` says
    base = DTYPES[config.dtype] if adapter or config.lora is not None else torch.float32
    actor, tokenizer = load_actor(config.actor, dtype=base, device=device)
    models = Models(actor, tokenizer, source=str(actor_folder(config.actor)))
    if config.dtype != "float32":
        models.autocast = DTYPES[config.dtype]
    if config.lora is not None and not adapter:
        add_lora(actor, config.lora, config.seed)
    _only_adapters_trainable(models)
    check_exact(models)
    if reference and (adapter or config.lora is None):  # else it is the actor without its fresh adapter
        models.reference = load_actor(config.actor, dtype=DTYPES[config.dtype], device=device)[0].requires_grad_(False)
    if critic and config.critic == VALUE_HEAD:
        models.critic = ValueHead(actor.config.hidden_size).to(device)
    elif critic:
        models.critic = load_critic(config.critic or config.actor, device=device)
        _check_critic(config.critic or config.actor, models.critic, tokenizer)
    return models


def actor_folder(path: str | Path) -> str | Path:
    """The model folder inside a checkpoint, or the path (or hub name) itself."""
    inner = Path(path) / "actor"
    return inner if (inner / "config.json").is_file() or (inner / ADAPTER_FILE).is_file() else path


def is_adapter(path: str | Path) -> bool:
    return (Path(actor_folder(path)) / ADAPTER_FILE).is_file()


def load_actor(
    path: str | Path, *, dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu"
) -> tuple[Any, Any]:
    """A causal LM and its tokenizer from a model folder, an adapter folder, a checkpoint or a hub name."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = actor_folder(path)
    with _loading(path):
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = _whole(AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, output_loading_info=True))
    return model.to(device).eval(), tokenizer


def load_tokenizer(path: str | Path) -> Any:
    """The tokenizer alone of what `load_actor` loads."""
    from transformers import AutoTokenizer

    with _loading(path):
        return AutoTokenizer.from_pretrained(actor_folder(path))


def load_critic(path: str | Path, *, device: str | torch.device = "cpu") -> Critic:
    """A critic from a model folder (the output layer is left out), from a saved critic, or from a hub name."""
    from transformers import AutoModel

    if is_adapter(path):
        raise ModelError(f"{path}: a critic needs a whole model, not an adapter: name one, or use {VALUE_HEAD}")
    folder = actor_folder(path)
    with _loading(path):
        critic = Critic(_whole(AutoModel.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)))
    load_head(critic, Path(folder))
    return critic.to(device).eval()


def _check_critic(path: str, critic: Critic, tokenizer: Any) -> None:
    """Refuse a critic that reads other tokens than the actor writes."""
    from transformers import AutoTokenizer

    size = critic.backbone.config.vocab_size
    other = size < len(tokenizer)
    if not other and (Path(actor_folder(path)) / "tokenizer.json").is_file():
        with _loading(path):
            other = AutoTokenizer.from_pretrained(actor_folder(path)).get_vocab() != tokenizer.get_vocab()
    if other:
        raise ModelError(
            f"{path}: the critic's tokens (of {size}) are not the actor's {len(tokenizer)}; "
            f"they must share a tokenizer: name another critic, {VALUE_HEAD}, or none for a copy of the actor"
        )


def add_lora(model: Any, config: LoraConfig, seed: int) -> None:
    """Put fresh adapters on every linear layer but the output layer; they change nothing until they are trained."""
    import peft

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model.add_adapter(
            peft.LoraConfig(r=config.rank, lora_alpha=config.alpha, target_modules="all-linear", task_type="CAUSAL_LM")
        )


def _only_adapters_trainable(models: Models) -> None:
    for name, parameter in models.actor.named_parameters():
        parameter.requires_grad_(not models.lora or "lora_" in name)
        if models.lora and parameter.requires_grad:
            parameter.data = parameter.data.float()


def _device(name: str) -> str:
    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name


def _whole(loaded: tuple[Any, Mapping[str, Any]]) -> Any:
    """The model, unless some of its weights were not in the folder and would be random."""
    model, info = loaded
    absent = sorted(map(str, [*info["missing_keys"], *info["mismatched_keys"]]))
    if absent:
        raise ValueError(f"{len(absent)} of its weights are not in the folder, {absent[0]} among them")
    return model


@contextmanager
def _loading(path: str | Path) -> Iterator[None]:
    """Load in silence; what goes wrong becomes one line."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    level = logging.get_verbosity()
    logging.set_verbosity_error()  # a critic leaves the output layer out on purpose; what is absent, `_whole` says
    try:
        yield
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"{path}: the model cannot be loaded: {first}") from error
    finally:
        logging.set_verbosity(level)
