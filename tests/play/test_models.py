"""What a user calls a model becomes a folder, or one line that says what is missing."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from scenarios.errors import ModelError, UsageError
from socialrl_cli.models import resolve
from socialrl_cli.runs import Run


def test_a_run_names_the_actor_and_the_critic_of_its_best_checkpoint(tmp_path: Path) -> None:
    with Run.open(tmp_path / "run") as run:
        for step, score in ((1, 0.5), (2, 0.4)):
            run.save(step, lambda folder: (folder / "actor").mkdir())
            run.mark_best(step, score)
    checkpoints = tmp_path / "run" / "checkpoints"
    assert resolve(f"run:{tmp_path}/run") == str(checkpoints / "step-1" / "actor")
    assert resolve(f"run:{tmp_path}/run@2", critic=True) == str(checkpoints / "step-2" / "critic")
    with pytest.raises(UsageError, match="has no checkpoint 3; it has 1, 2, best, latest"):
        resolve(f"run:{tmp_path}/run@3")


def test_a_hub_that_cannot_be_reached_is_said_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import constants

    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", url)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr("socialrl_cli.models.getproxies", dict)
        assert resolve("nosuch/model") == "nosuch/model"
    with pytest.raises(ModelError, match=f"nosuch/model: .* {url} cannot be reached .*; write ./nosuch/model"):
        resolve("nosuch/model")
