"""Two trainer processes give what one gives: the same parameters, metrics and checkpoints."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from algos import distributed
from algos.rows import actor_tokens
from algos.team import Team

PROGRAM = Path(__file__).with_name("trained.py")
UNALIKE = ("_s", "memory")  # in metrics that say how long it took and what it held


def program() -> Any:
    spec = importlib.util.spec_from_file_location("trained", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAIRED = program()


def start(*words: str) -> list[subprocess.Popen[str]]:
    """The program in two processes that find each other."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    shared["PYTHONPATH"] = str(PROGRAM.parents[2])
    return [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), *words], env=os.environ | shared | {"RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in (0, 1)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """What one process and what two have made of the same trainings, by the name of the training."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("trained")
    for case in PAIRED.BEGUN:
        PAIRED.train(case, folder / f"{case}-begun", steps=2)
    both = start("train", str(folder))
    one = {case: PAIRED.train(case, folder / f"{case}-alone") for case in PAIRED.CASES}
    said = [process.communicate(timeout=300)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    two = {file.stem: torch.load(file, weights_only=False) for file in folder.glob("*.pt")}
    return SimpleNamespace(one=one, two=two, folder=folder)


def assert_same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=0, atol=5e-5)


def figures(metrics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if not any(word in k for word in UNALIKE)} for row in metrics]


@pytest.mark.parametrize("case", PAIRED.CASES)
def test_two_processes_train_what_one_does(trained: SimpleNamespace, case: str) -> None:
    one, two = trained.one[case], trained.two[case]
    assert_same(one["weights"], two["weights"])
    for ours, theirs in zip(figures(one["metrics"]), figures(two["metrics"]), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-5)
    start = PAIRED.start(case)
    assert max(float((one["weights"][name] - start[name]).abs().max()) for name in start) > 5e-4


def test_whole_weights_are_published(trained: SimpleNamespace) -> None:
    for case in PAIRED.BEGUN:
        found = trained.two[case]
        assert_same(found["published"], {name: found["weights"][name] for name in found["published"]})


@pytest.mark.parametrize("case", PAIRED.BEGUN)
def test_a_checkpoint_does_not_tell_how_many_wrote_it(trained: SimpleNamespace, tmp_path: Path, case: str) -> None:
    """What one began two end, and the other way round, with the optimisers' states."""
    assert_same(trained.one[case]["weights"], trained.two[f"{case}-begun"]["weights"])
    shutil.copytree(trained.folder / case / "step-2", tmp_path / "step-2")
    assert_same(trained.one[case]["weights"], PAIRED.train(case, tmp_path)["weights"])
    ours, theirs = (
        sorted(str(file.relative_to(folder)) for file in folder.rglob("*"))
        for folder in (trained.folder / f"{case}-alone" / "step-3", trained.folder / case / "step-3")
    )
    assert ours == theirs


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("size", [2, 3, 20])
def test_every_row_has_one_process_and_all_make_as_many_passes(
    make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, size: int, workers: int
) -> None:
    batch = actor_tokens(make.rows(7))
    monkeypatch.setattr(distributed, "size", lambda: size)
    parts = []
    for rank in range(size):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        parts.append(Team(workers).packs(batch, range(len(batch.rows)), 60, torch.device("cpu")))
    tokens = torch.cat([pack.tokens for own in parts for pack in own])
    assert tokens.sort().values.tolist() == list(range(len(batch.ids)))
    assert len({len(own) for own in parts}) == 1


def test_a_process_that_hangs_is_not_waited_for_beyond_the_deadline() -> None:
    one, other = start("hang")
    said, _ = one.communicate(timeout=60)
    other.kill()
    other.communicate()
    assert (one.returncode, said.splitlines()[-1]) == (0, "lost")
