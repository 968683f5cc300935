"""What a user calls a model becomes a folder, or one line that says what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.errors import UsageError
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
