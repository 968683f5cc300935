"""Play joined to learning, end to end, with the bundled model at a very small size."""

import asyncio
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from algos import ppo, sft
from algos.loop import learn
from algos.models import ModelConfig
from envs.agents.llm import HarnessConfig
from scenarios.errors import UsageError
from socialrl_cli import buffer, tiny
from socialrl_cli.cast import read_harness
from socialrl_cli.delegate import POLICY
from socialrl_cli.engines.config import EmbeddedConfig, EngineConfig
from socialrl_cli.episodes import PlayConfig
from socialrl_cli.evals import EvalConfig, compare, run_eval
from socialrl_cli.player import GamesConfig, Player, ValidationConfig
from socialrl_cli.rollouts import RolloutConfig, run_rollout
from socialrl_cli.runs import Run
from socialrl_cli.training import PpoRun, SftRun, check_ppo, check_sft, run_ppo, run_sft

SMALL = tiny.TinyConfig(hidden=64, inner=96, layers=2, heads=2, kv_heads=1, critic_layers=1, vocab=600)
DEMOS = RolloutConfig(
    policies=("scripted:linear",),
    opponents=("scripted:conceder",),
    episodes=60,
    transcript=HarnessConfig(prompt="compact"),
)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    torch.set_num_threads(1)
    return tmp_path_factory.mktemp("training")


@pytest.fixture(scope="module")
def model(small_model):
    return small_model


@pytest.fixture(scope="module")
def demos(home):
    with Run.open(home / "demos") as run:
        run_rollout(DEMOS, run)
    return home / "demos"


@pytest.fixture(scope="module")
def warm(home, model, demos):
    config = SftRun(
        data=(str(demos),),
        model=ModelConfig(actor=str(model / "actor")),
        sft=sft.Config(lr=5e-3, batch_tokens=1024, epochs=8, teachers=("scripted:linear",)),
    )
    with Run.open(home / "warm") as run:
        run_sft(config, run)
        return run.latest()


def recipe(warm, model, steps=2):
    return PpoRun(
        model=ModelConfig(actor=str(warm), critic=str(model / "critic")),
        games=GamesConfig(opponents=("scripted:linear",), max_tokens=24, play=PlayConfig(moves_per_seat=4, retries=0)),
        validation=ValidationConfig(scenarios=2),
        engine=EngineConfig(embedded=EmbeddedConfig(slots=4, capacity=768, deterministic=True)),
        ppo=ppo.Config(
            batch=6, mini_batch=3, steps=steps, critic_warmup=1, actor_lr=1e-3, critic_lr=1e-3, save_every=1
        ),
    )


def player(config, models, run):
    parts = {"engine": config.engine, "batch": config.ppo.batch, "steps": config.ppo.steps, "seed": config.seed}
    return Player(config.games, config.validation, {POLICY: models}, run, **parts)


def weights(folder):
    from safetensors.torch import load_file

    return load_file(folder / "actor" / "model.safetensors")


async def test_the_tiny_model_is_built_from_its_seed_alone(home, model):
    """In a running loop, where a command opens its participants, as well as outside of one."""
    again = tiny.ensure(SMALL, seed=3, cache=home / "again")
    for name in ("actor/model.safetensors", "critic/model.safetensors", "actor/tokenizer.json"):
        assert (again / name).read_bytes() == (model / name).read_bytes()
    other = tiny.ensure(SMALL, seed=4, cache=home / "again")
    assert (other / "actor/model.safetensors").read_bytes() != (model / "actor/model.safetensors").read_bytes()
    assert read_harness(model / "actor").prompt == "compact"


def test_a_models_name_changes_with_what_its_games_come_from_and_with_nothing_else(tmp_path, monkeypatch):
    played = set()

    def watch(frame, event, _):
        if event == "call" and frame.f_code.co_name != "<module>":
            played.add(Path(frame.f_code.co_filename))

    async def games():
        sys.setprofile(watch)
        try:
            return await tiny.scripted_texts(12, 0)
        finally:
            sys.setprofile(None)

    asyncio.run(games())
    ours = {str(path.relative_to(tiny.ROOT)) for path in played if path.is_relative_to(tiny.ROOT)}
    ours = {name for name in ours if name.split("/")[0] in ("envs", "rewards", "scenarios", "socialrl_cli")}
    assert len(ours) > 20
    assert ours <= set(tiny.SOURCES)
    folder = tmp_path / "packages"
    for name in ("envs", "rewards", "scenarios", "socialrl_cli"):
        shutil.copytree(tiny.ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(tiny, "ROOT", folder)
    before = tiny._digest(SMALL)
    for name in ("envs/agents/werewolf.py", "envs/craigslist.py"):
        (folder / name).write_text("")
        assert tiny._digest(SMALL) == before
    (folder / "envs/agents/phrases.py").write_text("")
    assert tiny._digest(SMALL) != before


def test_a_phrase_of_the_game_is_one_token_and_a_digit_another(model):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model / "actor")
    ids = tokenizer.encode('{"move":"propose","offer":{"book":12', add_special_tokens=False)
    assert [tokenizer.decode([i]) for i in ids][-2:] == ["1", "2"]
    chat = [{"role": "user", "content": "1/10"}, {"role": "assistant", "content": "no"}]
    assert tokenizer.apply_chat_template(chat, tokenize=False) == "<|user|>1/10<|assistant|>no<|end|>"


def test_scripted_games_become_conversations_to_learn_from(demos):
    rows = buffer.message_rows(buffer.read(demos / "buffer"))
    assert len(rows) == 120  # both seats
    assert {row["agent"] for row in rows} == {"scripted:linear", "scripted:conceder"}
    for row in rows:
        assert [m["role"] for m in row["messages"]][:3] == ["system", "user", "assistant"]
        assert json.loads(row["messages"][-1]["content"])["move"]


def test_an_interrupted_rollout_plays_the_rest_and_nothing_twice(tmp_path, demos):
    with Run.open(tmp_path / "half") as run:
        run_rollout(replace(DEMOS, episodes=10), run)
    with Run.open(tmp_path / "half", resume=True) as run:
        document = run_rollout(DEMOS, run)
    assert document["episodes"] == 60
    both = [buffer.read(folder / "buffer") for folder in (tmp_path / "half", demos)]
    ids = [
        sorted(zip(t["episode_id"].to_pylist(), t["seat"].to_pylist(), t["messages"].to_pylist(), strict=False))
        for t in both
    ]
    assert ids[0] == ids[1]


def test_imitation_lowers_the_loss_and_its_checkpoint_plays(warm, home):
    metrics = [json.loads(line) for line in (home / "warm" / "metrics.jsonl").read_text().splitlines()]
    assert metrics[-1]["loss"] < metrics[0]["loss"]
    assert (warm / "actor" / "socialrl.json").exists()


def test_every_recorded_token_of_ppo_is_recomputed_by_the_trainer(tmp_path, warm, model):
    with Run.open(tmp_path / "ppo") as run:
        document = run_ppo(recipe(warm, model), run)
        metrics = run.metrics()
    assert document["step"] == 2
    assert document["policy_version"] == 1
    assert metrics[1]["mismatch"] < 1e-6
    assert 0 <= metrics[1]["truncated"] <= 1
    assert metrics[1]["drift/drifted"] == metrics[1]["drift/restarted"] == 0
    table = buffer.read(tmp_path / "ppo" / "buffer")
    assert set(table["policy_version"].to_pylist()) == {0}  # both batches were played before the first update
    assert len(set(table["episode_id"].to_pylist())) == 12


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(tmp_path, warm, model):
    config = recipe(warm, model, steps=3)
    with Run.open(tmp_path / "whole") as run:
        run_ppo(config, run)
    with Run.open(tmp_path / "parts") as run:
        run_ppo(replace(config, ppo=replace(config.ppo, steps=2)), run)
    with Run.open(tmp_path / "parts", resume=True) as run:
        run_ppo(config, run)
    whole, parts = (weights(tmp_path / name / "checkpoints" / "step-3") for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    start = weights(warm)
    assert any(not torch.equal(start[name], whole[name]) for name in whole)


def test_games_of_a_step_that_was_cut_off_are_not_played_again(tmp_path, warm, model):
    from algos.models import load
    from socialrl_cli.models import located

    config = recipe(warm, model)
    models = load(located(config.model), critic=True)
    with Run.open(tmp_path / "cut") as run:
        first = player(config, models, run)
        first.publish(POLICY, 0, models.actor)
        before = first.play(1)[POLICY]
        first.close()
        again = player(config, models, run)
        again.publish(POLICY, 0, models.actor)
        after = again.play(1)[POLICY]
        calls = again.delegates[POLICY].recorder.counters.calls
        again.close()
    assert calls == 0
    assert [row.episode_id for row in before.rows] == [row.episode_id for row in after.rows]
    for one, other in zip(before.rows, after.rows, strict=True):
        assert np.array_equal(one.token_ids, other.token_ids)
        assert np.array_equal(one.logprobs, other.logprobs)
    assert POLICY in {row.agent for row in after.rows}


def test_play_that_is_never_ahead_is_the_loop_without_overlap(tmp_path, warm, model):
    """The same weights, bit for bit, as a loop that plays each step's games by itself before it trains."""
    from algos.models import load
    from socialrl_cli.models import located

    config = recipe(warm, model, steps=3)
    with Run.open(tmp_path / "gated") as run:
        run_ppo(config, run)

    class Alone(Player):
        def play(self, step):
            return self.ahead.run(self._play(step))

    models = load(located(config.model), critic=True)
    with Run.open(tmp_path / "plain") as run:
        parts = {"engine": config.engine, "batch": 6, "steps": 3, "seed": 0}
        plain = Alone(config.games, config.validation, {POLICY: models}, run, **parts)
        try:
            learner = ppo.Learner(config.ppo, models)
            learn({POLICY: learner}, steps=3, save_every=1, play=plain.play, publish=plain.publish, run=run)
        finally:
            plain.close()
    gated, alone = (weights(tmp_path / name / "checkpoints" / "step-3") for name in ("gated", "plain"))
    assert all(torch.equal(gated[name], alone[name]) for name in gated)


@pytest.mark.parametrize("process", [False, True])
def test_play_ahead_of_the_trainer_is_stale_by_no_more_than_it_may_be(tmp_path, warm, model, process):
    config = recipe(warm, model, steps=4)
    engine = EngineConfig(embedded=EmbeddedConfig(slots=4, capacity=768, process=process))
    config = replace(config, games=replace(config.games, max_ahead=1), engine=engine)
    with Run.open(tmp_path / "ahead") as run:
        document = run_ppo(config, run)
        metrics = run.metrics()
    assert document["step"] == 4
    assert document["policy_version"] == 3
    assert [row["staleness_max"] for row in metrics] == [0, 0, 1, 1]  # the first step trains the critic alone
    assert metrics[3]["staleness/1"] > 0
    assert all(row["drift/drifted"] == 0 for row in metrics)
    assert metrics[1]["mismatch"] < 1e-6  # sampled by the version that is trained: recomputed exactly
    assert metrics[3]["mismatch"] > 1e-6  # by an older one
    table = buffer.read(tmp_path / "ahead" / "buffer")
    assert set(table["policy_version"].to_pylist()) >= {0, 1}


def test_episodes_that_are_too_stale_are_dropped_and_counted(tmp_path, warm, model):
    config = recipe(warm, model, steps=4)
    config = replace(config, games=replace(config.games, max_ahead=2, max_staleness=0))
    with Run.open(tmp_path / "ahead") as run:
        document = run_ppo(config, run)
        metrics = run.metrics()
    assert document["step"] == 4
    assert [row["dropped_stale"] for row in metrics][:3] == [0, 0, 6]
    assert all(row.get("staleness_max", 0) == 0 for row in metrics)


def test_an_evaluation_shows_the_baselines_and_two_are_compared_by_game(tmp_path, home, warm):
    config = EvalConfig(
        policy=f"run:{home / 'warm'}",
        scenarios=3,
        trials=1,
        opponents=("scripted:linear",),
        max_tokens=16,
        engine=EngineConfig(embedded=EmbeddedConfig(slots=4, capacity=768)),
        play=PlayConfig(moves_per_seat=2),
    )
    with Run.open(tmp_path / "a") as run:
        document = run_eval(config, run)
    assert set(document["environments"]["dnd"]["policies"]) == {
        config.policy,
        "scripted:demand_all",
        "scripted:first_offer",
    }
    with Run.open(tmp_path / "b") as run:
        run_eval(replace(config, policy="scripted:boulware"), run)
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found["difference"]["games"] == 3
    assert found["difference"]["mean"] == pytest.approx(found["b"]["mean"] - found["a"]["mean"])
    with pytest.raises(UsageError, match="no evaluation here"):
        compare(tmp_path / "a", tmp_path)


def test_a_model_that_writes_nonsense_loses_its_games_and_the_run_goes_on(tmp_path, model):
    config = EvalConfig(policy=f"model:{model / 'actor'}", scenarios=2, trials=1, opponents=("scripted:boulware",),
                        baselines=("none",), max_tokens=8,
                        engine=EngineConfig(embedded=EmbeddedConfig(slots=4, capacity=2048)))  # fmt: skip
    with Run.open(tmp_path / "nonsense") as run:
        found = run_eval(config, run)["environments"]["dnd"]["policies"][config.policy]
    assert found["invalid"] == 1.0
    assert found["failed"] == 0
    assert found["mean"] == 0.0


def test_what_cannot_be_trained_is_refused_before_anything_is_written(demos):
    with pytest.raises(UsageError, match="no model to train"):
        check_ppo(PpoRun())
    with pytest.raises(UsageError, match="nowhere"):
        check_sft(SftRun(data=(str(demos),), model=ModelConfig(actor="./nowhere")))
    with pytest.raises(UsageError, match="no data folder"):
        check_sft(SftRun(data=("nowhere",), model=ModelConfig(actor="tiny")))
