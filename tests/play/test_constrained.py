"""A model that plays under a grammar: recorded, kept, and learned from over the same tokens that it chose among."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from algos import ppo
from algos.grammars import backend_version
from algos.models import ModelConfig, load
from algos.packing import packs
from algos.policy import BatchTensors, allowed, check_rows
from algos.policy import policy as rate
from algos.rows import actor_tokens
from envs.agents.harness import HarnessOverride
from scenarios.errors import DataError, UsageError
from socialrl_cli import buffer, grammars, tiny
from socialrl_cli.callfiles import read_calls
from socialrl_cli.cast import read_harness
from socialrl_cli.engines.config import EmbeddedConfig, EngineConfig
from socialrl_cli.episodes import PlayConfig
from socialrl_cli.rollouts import RolloutConfig, check, run_rollout
from socialrl_cli.rundir import find_checkpoint, read_metrics
from socialrl_cli.runs import Run
from socialrl_cli.training import GamesConfig, PpoRun, ValidationConfig, run_ppo

SMALL = tiny.TinyConfig(hidden=64, inner=96, layers=2, heads=2, kv_heads=1, critic_layers=1, vocab=600)
SCHEMA = HarnessOverride(format="schema")
SLOTS = EmbeddedConfig(slots=4, capacity=1024)
ENGINE = EngineConfig(embedded=SLOTS)
PLAY = PlayConfig(moves_per_seat=4, retries=1)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    torch.set_num_threads(1)
    return tmp_path_factory.mktemp("constrained")


@pytest.fixture(scope="module")
def model(home):
    """Of random weights: without a grammar it writes nothing but nonsense."""
    return tiny.ensure(SMALL, seed=3, cache=home / "cache")


@pytest.fixture(scope="module", params=[False, True], ids=["usual", "deterministic"])
def played(home, model, request):
    """A rollout under the schema."""
    config = RolloutConfig(
        policies=(f"model:{model / 'actor'}",), opponents=("scripted:linear",), episodes=8, temperature=0.8,
        max_tokens=24, harness=SCHEMA, play=PLAY,
        engine=EngineConfig(embedded=replace(SLOTS, deterministic=request.param)),
    )  # fmt: skip
    check(config)
    path = home / f"played-{request.param}"
    with Run.open(path) as run:
        document = run_rollout(config, run)
    assert document["failed"] == 0
    return path


def rows_of(path, **more):
    table = buffer.read(path / "buffer")
    return [row for row in buffer.to_rows(table, grammars.read(path / "buffer")) if row.agent.startswith("model:")]


def test_every_answer_is_a_legal_move_or_the_beginning_of_one(played):
    invalid = []
    for file in sorted((played / "events").glob("*.jsonl")):
        for line in file.read_text().splitlines():
            for answer in json.loads(line)["answers"]:
                if answer["kind"] == "invalid":
                    invalid.append(answer["reason"])
    assert all("cut off after 24 tokens" in reason for reason in invalid)
    table = buffer.read(played / "buffer").to_pylist()
    talks = [json.loads(row["messages"]) for row in table if row["agent"].startswith("model:")]
    said = [m["content"] for talk in talks for m in talk if m["role"] == "assistant"]
    moves = [json.loads(text)["move"] for text in said if text.endswith("}")]
    assert len(set(moves)) > 2
    assert all(text.startswith('{"move":"') for text in said)


def test_the_grammars_are_kept_once_beside_the_shards(played):
    kept = grammars.read(played / "buffer")
    lines = (played / "buffer" / grammars.FILE).read_text().splitlines()
    assert len(lines) == len(kept)
    spans = [span for row in buffer.read(played / "buffer").to_pylist() for span in row["call_spans"] or ()]
    assert {span["grammar"] for span in spans} == set(kept)
    assert len(spans) > len(kept)
    for grammar in kept.values():
        assert (grammar.backend, grammar.version) == ("llguidance", backend_version())
        schema = json.loads(grammar.text)["grammars"][0]["json_schema"]
        assert {option["properties"]["move"]["const"] for option in schema["anyOf"]} >= {"message", "propose"}


def test_the_trainers_log_probabilities_are_the_recorded_ones(played, model):
    models = load(ModelConfig(actor=str(model / "actor"), device="cpu"))
    batch = actor_tokens(rows_of(played))
    check_rows(models, batch)
    masks = allowed(models, batch)
    tensors = BatchTensors.of(batch, models.device, masks)
    ours, entropies = np.zeros(len(batch.ids)), np.zeros(len(batch.ids))
    with torch.no_grad():
        for pack in packs(batch, range(len(batch.rows)), 512, models.device):
            logprobs, entropy, _ = rate(models, models.actor, pack, tensors)
            ours[pack.tokens], entropies[pack.tokens] = logprobs, entropy
    assert np.abs(ours - batch.logprobs).max() < 1e-4
    assert (batch.logprobs == 0).mean() > 0.1  # forced
    assert (entropies[batch.logprobs == 0] == 0).all()
    free = BatchTensors.of(batch, models.device)
    with torch.no_grad():
        (pack,) = packs(batch, range(1), 10_000, models.device)
        unmasked = rate(models, models.actor, pack, free)[0].numpy()
    assert np.abs(unmasked - batch.logprobs[pack.tokens]).max() > 1  # the masks matter


def test_masks_are_kept_packed_and_once(played, model):
    models = load(ModelConfig(actor=str(model / "actor"), device="cpu"))
    batch = actor_tokens(rows_of(played))
    masks = allowed(models, batch)
    assert masks.table.shape[1] == -(-models.actor.config.vocab_size // 32)
    assert len(masks.table) < len(batch.ids) / 3
    assert allowed(models, actor_tokens([replace(row, grammars=()) for row in batch.rows])) is None


def test_beliefs_and_predictions_are_kept_by_turn(home, model):
    config = RolloutConfig(
        policies=(f"model:{model / 'actor'}",), opponents=("scripted:linear",), episodes=3, max_tokens=64,
        harness=HarnessOverride(format="schema", scaffold="tom"), play=PLAY, engine=ENGINE,
    )  # fmt: skip
    check(config)
    with Run.open(home / "tom") as run:
        assert run_rollout(config, run)["failed"] == 0
    told = 0
    for row in buffer.read(home / "tom" / "buffer").to_pylist():
        probes = row["turn_probes"]
        if not row["agent"].startswith("model:"):
            assert probes == []
            continue
        turns = [span["turn"] for span in row["call_spans"]]
        assert [(p["turn"], p["name"]) for p in probes] == [(t, n) for t in turns for n in ("infer", "anticipate")]
        replies = [m["content"] for m in json.loads(row["messages"]) if m["role"] == "assistant"]
        for probe, text in zip(probes[::2], replies, strict=True):
            value = json.loads(probe["value"])
            if text.endswith("}"):
                said = json.loads(text)
                if set(said) >= {"infer", "move", "anticipate"}:
                    assert value["said"] == said["infer"]
                    told += 1
            assert value["right"] in (True, False)
    assert told > 0


@pytest.mark.parametrize(
    "memory", [HarnessOverride("schema", "window", window=1), HarnessOverride("json", "summary", summary_chars=90)]
)
def test_a_memory_that_forgets_makes_segments_and_trains_each_token_once(home, model, memory):
    config = RolloutConfig(
        policies=(f"model:{model / 'actor'}",), opponents=("scripted:boulware",), episodes=2, max_tokens=12,
        harness=memory, play=PLAY, engine=ENGINE,
    )  # fmt: skip
    path = home / f"forgets-{memory.memory}"
    with Run.open(path) as run:
        assert run_rollout(config, run)["failed"] == 0
    rows = [row for row in buffer.read(path / "buffer").to_pylist() if row["agent"].startswith("model:")]
    calls = [call for call in read_calls(path / "calls") if call.error is None]
    assert sum(sum(row["loss_mask"]) for row in rows) == sum(len(call.token_ids) for call in calls)
    spans = [(row["episode_id"], row["seat"], span["turn"]) for row in rows for span in row["call_spans"]]
    assert len(set(spans)) == len(spans) == len(calls)
    assert max(row["n_segments"] for row in rows) > 1
    if memory.memory == "summary":
        said = [json.loads(row["messages"])[1]["content"] for row in rows if row["segment"] > 0]
        assert all(text.startswith("so far: ") for text in said)


def test_rows_whose_grammar_is_lost_are_refused(played):
    with pytest.raises(DataError, match=r"the grammar 'g-\w+' is not beside the shards"):
        buffer.to_rows(buffer.read(played / "buffer"))


def test_ppo_learns_under_a_grammar(home, model):
    config = PpoRun(
        model=ModelConfig(actor=str(model / "actor"), critic=str(model / "critic")),
        games=GamesConfig(opponents=("scripted:linear",), max_tokens=24, harness=SCHEMA, play=PLAY),
        validation=ValidationConfig(scenarios=0),
        engine=ENGINE,
        ppo=ppo.Config(batch=6, mini_batch=3, steps=2, critic_warmup=1, actor_lr=1e-3, critic_lr=1e-3, eta=0.1),
    )
    with Run.open(home / "ppo") as run:
        run_ppo(config, run)
    warm, step = read_metrics(home / "ppo")
    assert abs(step["mismatch"]) < 1e-7  # the ratio is 1 before the first update
    assert step["reference_penalty"] >= 0
    assert step["grad_norm/actor"] > 0
    assert 0 < step["entropy"] < 6
    assert warm["failed"] == step["failed"] == 0
    actor = find_checkpoint(home / "ppo") / "actor"
    assert read_harness(actor) == replace(read_harness(model / "actor"), format="schema")


def test_a_harness_that_cannot_be_is_refused_with_its_key():
    from socialrl_cli.config import loads

    with pytest.raises(UsageError, match="harness: format is 'xml', expected json or tools or schema"):
        loads(RolloutConfig, '[harness]\nformat = "xml"\n', "recipe.toml")
