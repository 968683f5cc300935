"""Several trainer processes from the command line: what is refused, how they end, and that N does not matter."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from scenarios.errors import ModelError, RunError, UsageError
from socialrl_cli import rundir, tiny, trainers
from socialrl_cli.config import load
from socialrl_cli.engines.config import EngineConfig, VllmConfig
from socialrl_cli.engines.launching import environment
from socialrl_cli.main import run as socialrl
from socialrl_cli.placement import check_gpus
from socialrl_cli.rollouts import RolloutConfig, run_rollout
from socialrl_cli.runs import Run
from socialrl_cli.trainers import Trainers
from socialrl_cli.training import PpoRun, SftRun, check_ppo, run_sft

SMALL = tiny.TinyConfig(hidden=64, inner=96, layers=2, heads=2, kv_heads=1, critic_layers=1, vocab=600)
LEARN = ("sft.batch_tokens=400", "sft.epochs=50", "sft.save_every=1", "sft.schedule=constant", "sft.warmup=0")
TWO = ("--nproc", "2")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"nproc": 0}, "at least 1"),
        ({"nnodes": 2}, "--rdzv-endpoint HOST:PORT"),
        ({"nnodes": 2, "node_rank": 2, "rdzv_endpoint": "a:1"}, "it is 0 to 1"),
    ],
)
def test_numbers_of_processes_that_cannot_be_are_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Trainers(**given)


def test_machines_meet_where_they_are_told() -> None:
    config = trainers._launch_config(Trainers(4, 2, 1, "first:29500"))
    assert (config.min_nodes, config.max_nodes, config.nproc_per_node) == (2, 2, 4)
    assert (config.rdzv_backend, config.rdzv_endpoint, config.rdzv_configs["rank"]) == ("static", "first:29500", 1)


def test_the_embedded_engine_belongs_to_one_process(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert socialrl(["train", "ppo", "--model", "tiny", *TWO]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "socialrl: error: 2 trainer processes: the embedded engine belongs to one; "
        "leave --nproc and --nnodes out, or play with a server"
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("there", "train", "infer", "nproc", "said"),
    [
        (0, (0,), (), 1, "this machine has none; leave it empty to use the CPU"),
        (2, (0, 2), (), 2, "no GPU 2 here: this machine has 2"),
        (2, (1, 1), (), 2, "names a GPU twice"),
        (2, (0, 1), (1,), 2, "GPU 1 is a trainer's"),
        (2, (), (0,), 1, "GPU 0 is a trainer's"),
        (4, (0,), (3,), 2, "1 for --nproc 2"),
        (2, (), (), 4, "this machine has 2 GPUs"),
    ],
)
def test_gpus_are_checked_against_those_that_are_there(
    monkeypatch: pytest.MonkeyPatch, there: int, train: tuple[int, ...], infer: tuple[int, ...], nproc: int, said: str
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    with pytest.raises(UsageError, match=said):
        check_gpus(train, infer, nproc=nproc)
    recipe = PpoRun(train_gpus=train, engine=EngineConfig("vllm", vllm=VllmConfig(infer_gpus=infer)))
    with pytest.raises(UsageError, match=said):
        check_ppo(recipe, Trainers(nproc))


def test_gpus_that_are_there_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    check_gpus((0, 1), (2, 3), nproc=2)
    check_gpus((), (), nproc=4)
    check_gpus((), (), nproc=8, device="cpu")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    monkeypatch.setenv("RANK", "0")
    seen = environment(VllmConfig(infer_gpus=(2, 3)), "model")
    assert seen["CUDA_VISIBLE_DEVICES"] == "6,7"
    assert "RANK" not in seen


def end(ends: dict[int, dict[str, object]], failed: dict[int, int], size: int = 2) -> object:
    return trainers._end_of_all(size, ends, failed, dict.fromkeys(failed, " Its last lines: a | b"))


def test_the_first_error_is_everybodys() -> None:
    memory = {"at": 1.0, "error": "RunError", "message": "out of memory in a micro-batch of up to 64 tokens: lower it"}
    lost = {"at": 0.5, "error": "", "message": "RuntimeError: Connection closed by peer", "lost": True}
    with pytest.raises(RunError, match=r"^trainer 1 of 2: out of memory in a micro-batch of up to 64 tokens"):
        end({0: lost, 1: memory}, {0: 1, 1: 1})
    with pytest.raises(ModelError, match=r"^no weights$"):
        end({0: {"at": 1.0, "error": "ModelError", "message": "no weights"}}, {0: 1})
    with pytest.raises(RunError, match=r"trainer 1 of 2 was ended by SIGKILL \(out of memory\?\).*Its last lines: a"):
        end({0: lost}, {0: 1, 1: -9})
    with pytest.raises(RunError, match="trainer 0 of 2 lost the others"):
        end({0: lost}, {0: 1})
    with pytest.raises(KeyboardInterrupt):
        end({0: {"at": 1.0, "interrupted": True}, 1: lost}, {0: 130, 1: 1})
    assert end({0: {"at": 1.0, "document": {"step": 3}}, 1: {"at": 1.0, "document": {}}}, {}) == {"step": 3}
    assert end({2: {"at": 1.0, "document": {}}}, {}, size=4) is None


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model, and some games to learn from."""
    torch.set_num_threads(1)
    home = tmp_path_factory.mktemp("trainers")
    tiny.ensure(SMALL, seed=3, cache=home / "cache").rename(home / "model")
    with Run.open(home / "demos") as run:
        run_rollout(RolloutConfig(policies=("scripted:linear",), opponents=("scripted:conceder",), episodes=30), run)
    return home


def command(home: Path, path: Path, *words: str) -> list[str]:
    sets = [word for item in LEARN for word in ("--set", item)]
    data = ["--data", str(home / "demos"), "--model", str(home / "model" / "actor"), "--run", str(path)]
    return [sys.executable, "-m", "socialrl_cli.main", "train", "sft", *data, *sets, *words]


def begin(words: list[str]) -> subprocess.Popen[str]:
    place = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(words, env=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_a_step(path: Path, process: subprocess.Popen[str], seconds: float = 180) -> None:
    until = time.monotonic() + seconds
    while not rundir.read_metrics(path):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.slow
def test_asked_to_stop_two_processes_save_and_one_goes_on(home: Path, tmp_path: Path) -> None:
    process = begin(command(home, tmp_path / "run", *TWO))
    wait_for_a_step(tmp_path / "run", process)
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=120)
    assert (process.returncode, out, said.splitlines()[-1]) == (130, "", "socialrl: interrupted")
    done = rundir.steps(tmp_path / "run")[-1]
    assert [row["step"] for row in rundir.read_metrics(tmp_path / "run")] == list(range(1, done + 1))

    config = load(SftRun, tmp_path / "run" / "config.toml")
    config = replace(config, sft=replace(config.sft, max_steps=done + 1))
    ends = []
    for name in ("run", "alone"):
        with Run.open(tmp_path / name, resume=name == "run") as run:
            run_sft(config, run)
        folder = tmp_path / name / "checkpoints" / f"step-{done + 1}"
        state = torch.load(folder / "optimisers.pt")["optimisers"]["actor"]["state"]
        moments = {f"{number} {name}": value for number, values in state.items() for name, value in values.items()}
        ends.append(load_file(folder / "actor" / "model.safetensors") | moments)
    assert ends[0].keys() == ends[1].keys()
    for name, tensor in ends[0].items():
        torch.testing.assert_close(tensor, ends[1][name], rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_a_process_that_is_killed_ends_all_and_is_named(home: Path, tmp_path: Path) -> None:
    process = begin(command(home, tmp_path / "run", *TWO))
    wait_for_a_step(tmp_path / "run", process)
    pid = int((tmp_path / "run" / "attempts" / "1.rank1.log").read_text().split()[-1])
    os.kill(pid, signal.SIGKILL)
    said = process.communicate(timeout=60)[1].splitlines()[-1]
    assert process.returncode == 1
    assert said.startswith("socialrl: error: trainer 1 of 2 was ended by SIGKILL (out of memory?); continue with")
    assert said.endswith(f"Its last lines: trainer 1 of 2, process {pid}")


@pytest.mark.slow
def test_two_machines_train_as_one(home: Path, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        place = ("--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{probe.getsockname()[1]}", "--set", "sft.max_steps=2")
    nodes = [begin(command(home, tmp_path / f"node{rank}", *place, "--node-rank", str(rank))) for rank in (0, 1)]
    said = [node.communicate(timeout=180) for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said
    assert ("trained" in said[0][0], said[1][0]) == (True, "")
    assert rundir.steps(tmp_path / "node0") == [1, 2]
    assert sorted(str(path.relative_to(tmp_path / "node1")) for path in (tmp_path / "node1").rglob("*.*")) == [
        "attempts/1.rank1.log"
    ]
