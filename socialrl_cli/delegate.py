"""A model that is trained, as it sits at the table: the engine that answers for it, the record of its calls, and the
check that engine and trainer mean the same policy.

It is known by its participant text, which the rows of its seats bear as `agent`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs.agents.harness import HarnessOverride
from socialrl_cli import parity
from socialrl_cli.cast import Cast, read_harness

if TYPE_CHECKING:
    from algos.models import Models
    from socialrl_cli.engines.config import EngineConfig

POLICY, PARTNER = "policy", "partner"  # the first delegate of a run, and the second one where there are two


class Delegate:
    """Close it. `label` is the name of its folders in the run; "" where it is alone."""

    def __init__(
        self,
        name: str,
        models: Models,
        run: Path,
        *,
        engine: EngineConfig,
        harness: HarnessOverride,
        temperature: float,
        overlapping: bool,
        label: str = "",
    ) -> None:
        from socialrl_cli.engines.opening import open_engine
        from socialrl_cli.recorder import Recorder

        self.name, self.temperature = name, temperature
        self.models = replace(models)  # the trainer's own keep their parts, where they are sharded
        self.gap = 0.0  # nats between engine and trainer, at the last look
        self.harness = harness.over(read_harness(models.source))
        self.engine = open_engine(
            engine, name=name, path=models.source, work=run / "engine" / label, trained=self.models,
            overlapping=overlapping,
        )  # fmt: skip
        self.recorder = Recorder(self.engine, run / "calls" / label)

    @property
    def version(self) -> int:
        """The policy version that answers."""
        return self.engine.policy_version

    def join(self, cast: Cast) -> None:
        """Take the seats that bear its name."""
        cast.adopt(self.name, self.engine, self.recorder, self.harness)

    def publish(self, version: int, actor: object, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        """Hand the weights on, and see that the engine answers with them. Raises EngineError when it does not."""
        self.models.actor = actor  # where the trained one is sharded, this one is whole
        wait(self.engine.publish(version))
        constrained = self.harness.format == "schema"
        answers = wait(parity.answers(self.engine, self.temperature, constrained=constrained))
        self.gap = parity.check(self.models, answers, self.engine.model, version)

    def metrics(self) -> dict[str, float]:
        """How far its conversations have kept their tokens, so far, and the engine its policy."""
        counters = self.recorder.counters
        return {
            "drift/continued": counters.continued,
            "drift/drifted": counters.drifted,
            "drift/restarted": counters.restarted,
            "parity": self.gap,
        }
