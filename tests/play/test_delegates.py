"""Two delegates that are trained in one run: each has a seat of every game, its own model and its own checkpoints."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from algos import ppo
from algos.critic import HEAD_FILE
from algos.loop import Batch
from algos.models import ModelConfig
from algos.rows import Row
from envs.agents.harness import HarnessOverride
from scenarios.errors import ModelError, UsageError
from socialrl_cli import buffer, main
from socialrl_cli.callfiles import read_calls
from socialrl_cli.delegate import PARTNER, POLICY
from socialrl_cli.engines.config import EmbeddedConfig, EngineConfig, VllmConfig
from socialrl_cli.episodes import PlayConfig
from socialrl_cli.models import resolve
from socialrl_cli.player import GamesConfig, ValidationConfig, fresh, seats_in_turn
from socialrl_cli.rundir import find_checkpoint, read_metrics
from socialrl_cli.runs import Run
from socialrl_cli.store import read_games
from socialrl_cli.trainers import Trainers
from socialrl_cli.training import PartnerConfig, PpoRun, check_ppo, run_ppo

BOTH = (POLICY, PARTNER)


@pytest.fixture(scope="module")
def models(small_model, tmp_path_factory):
    """Two untrained actors that differ, and a critic for both that already has an opinion, so that there is something
    to learn from games that pay nothing."""
    from safetensors.torch import load_file, save_file

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("delegates")
    other, critic = (Path(shutil.copytree(small_model / part, folder / part)) for part in ("actor", "critic"))
    generator = torch.Generator().manual_seed(0)
    moved = {
        name: weight + 0.03 * torch.randn(weight.shape, generator=generator)
        for name, weight in load_file(other / "model.safetensors").items()
    }
    save_file(moved, other / "model.safetensors", {"format": "pt"})
    head = {"weight": torch.randn((1, 64), generator=generator), "bias": torch.zeros(1)}
    torch.save(head, critic / HEAD_FILE)
    return str(small_model / "actor"), str(other), str(critic)


def recipe(models, steps=2, **partner):
    actor, other, critic = models
    return PpoRun(
        model=ModelConfig(actor=actor, critic=critic),
        partner=PartnerConfig(actor=other, **partner),
        games=GamesConfig(
            opponents=("scripted:linear",), max_tokens=12, play=PlayConfig(moves_per_seat=2, retries=0)
        ),
        validation=ValidationConfig(scenarios=0),
        engine=EngineConfig(embedded=EmbeddedConfig(slots=4, capacity=768, deterministic=True)),
        ppo=ppo.Config(
            batch=4, mini_batch=2, steps=steps, critic_warmup=0, actor_lr=1e-3, critic_lr=1e-3, save_every=1
        ),
    )  # fmt: skip


def trained(config, path, resume=False):
    with Run.open(path, resume=resume) as run:
        return run_ppo(config, run)


def weights(folder):
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def same(one, other):
    one, other = weights(one), weights(other)
    assert one.keys() == other.keys()
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def whole(models, tmp_path_factory):
    """A finished run of two steps."""
    path = tmp_path_factory.mktemp("whole") / "run"
    trained(recipe(models), path)
    return path


def test_a_game_gives_each_of_the_two_the_rows_of_its_own_seat_and_its_own_reward(models, tmp_path):
    config = recipe(models, steps=1)  # under a schema untrained models make legal moves, and deals
    games = replace(config.games, max_tokens=40, harness=HarnessOverride(format="schema"))
    trained(replace(config, games=games), tmp_path / "run")
    rows = buffer.read(tmp_path / "run" / "buffer").to_pylist()
    seats = {}
    for row in rows:
        seats.setdefault(row["episode_id"], {})[row["agent"]] = row["seat"]
        assert row["opponent"] == (PARTNER if row["agent"] == POLICY else POLICY)
    assert len(seats) == 4
    assert all(sorted(taken.values()) == ["a", "b"] for taken in seats.values())
    assert {taken[POLICY] for taken in seats.values()} == {"a", "b"}  # in turn
    games = read_games(tmp_path / "run")
    said = {(game.episode_id, game.policy): 0 for game in games}
    for row in rows:
        said[row["episode_id"], row["agent"]] += len(row["call_spans"] or ())
    assert said == {(game.episode_id, game.policy): game.decisions for game in games}
    assert len(said) == 8
    assert (
        len({said[game, POLICY] - said[game, PARTNER] for game in seats}) > 1
    )  # who spoke last is not always the same
    for name in BOTH:
        assert len(read_calls(tmp_path / "run" / "calls" / name)) == sum(
            count for (_, who), count in said.items() if who == name
        )
    (line,) = read_metrics(tmp_path / "run")
    for name in BOTH:
        own = [row for row in rows if row["agent"] == name]
        used = {row["episode_id"]: row["utility"] for row in own}
        assert line[f"{name}/utility_mean"] == pytest.approx(sum(used.values()) / 4)
        spoken = [row for row in own if row["token_ids"]]  # a game may end before a seat has its turn
        paid = {row["episode_id"]: row["reward"] for row in spoken}
        assert line[f"{name}/reward_mean"] == pytest.approx(sum(paid.values()) / len(paid))
        assert line[f"{name}/actor_tokens"] == sum(sum(row["loss_mask"]) for row in spoken)
        assert (line[f"{name}/policy_version"], line[f"{name}/staleness_max"]) == (1, 0)
        assert line[f"{name}/parity"] < 1e-4
    rewards = {(row["episode_id"], row["agent"]): row["reward"] for row in rows}
    assert any(rewards[game, POLICY] != rewards[game, PARTNER] for game in seats)


def test_a_run_of_two_that_was_killed_in_a_step_ends_with_the_weights_of_a_whole_one(models, whole, tmp_path):
    """Of the second step's games one is written down for one of the two alone, and is played again; two are not."""
    cut = tmp_path / "cut"
    shutil.copytree(whole, cut)
    shutil.rmtree(cut / "checkpoints" / "step-2")
    lines = (whole / "games.jsonl").read_text().splitlines()
    (cut / "games.jsonl").write_text("\n".join(lines[: 8 + 5]) + "\n")
    trained(recipe(models), cut, resume=True)
    assert len((cut / "games.jsonl").read_text().splitlines()) == 13 + 4
    assert len({(game.episode_id, game.policy) for game in read_games(cut)}) == len(lines) == 16
    for name in BOTH:
        before, one, other = (
            path / "checkpoints" / step / name / "actor"
            for path, step in ((whole, "step-1"), (whole, "step-2"), (cut, "step-2"))
        )
        assert same(one, other)
        assert not same(one, before)
    last, again = (read_metrics(path)[-1] for path in (whole, cut))
    assert [line["step"] for line in read_metrics(cut)] == [1, 2]
    named = ("reward_mean", "utility_mean", "agreement", "invalid", "moves", "approx_kl", "value_loss")
    assert all(last[f"{name}/{metric}"] == again[f"{name}/{metric}"] for name in BOTH for metric in named)


def test_beside_one_whose_rate_is_zero_the_other_learns_as_against_it_frozen(models, tmp_path):
    both = recipe(models, actor_lr=0.0)
    trained(both, tmp_path / "both")
    alone = replace(both, partner=None, games=replace(both.games, opponents=(f"model:{models[1]}",)))
    trained(alone, tmp_path / "alone")
    learned = tmp_path / "both" / "checkpoints" / "step-2"
    assert same(learned / POLICY / "actor", tmp_path / "alone" / "checkpoints" / "step-2" / "actor")
    assert not same(learned / POLICY / "actor", Path(models[0]))
    assert same(learned / PARTNER / "actor", Path(models[1]))


@pytest.mark.parametrize(
    ("env", "seat", "ranks"), [("dnd", "", {POLICY: 4, PARTNER: 2}), ("craigslist", "buyer", {})], ids=["dnd", "roles"]
)
def test_from_the_command_line_two_are_trained_and_their_checkpoints_play(env, seat, ranks, models, tmp_path, capsys):
    """Two adapters of one base, seats in turn; and two whole models, each with a role of its own."""
    run, quick = tmp_path / "two", ["play.moves_per_seat=2", "play.retries=0", "max_tokens=12"]
    small = ["engine.embedded.slots=4", "engine.embedded.capacity=1024"]

    def called(*argv, sets=()):
        words = [word for item in (*small, *sets) for word in ("--set", item)]
        assert main.run([*argv, *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    sets = [f"games.{key}" for key in quick] + [f"games.env={env}", f"games.seat={seat}", "validation.scenarios=1"]
    sets += ["steps=2", "batch=2", "critic_warmup=1", "save_every=1", "actor_lr=1e-3"]
    sets += ["model.lora.rank=4", "partner.lora.rank=2"] if ranks else []
    train = ["train", "ppo", "--model", models[0], "--partner", models[0 if ranks else 1], "--run", str(run)]
    document = called(*train, "--opponent", "scripted:linear", sets=sets)
    assert (document["step"], document["policy/policy_version"], document["partner/policy_version"]) == (2, 1, 1)
    metrics = read_metrics(run)[-1]
    taken = {(row["agent"], row["seat"]) for row in buffer.read(run / "buffer").to_pylist()}
    if seat:
        assert taken == {(POLICY, "buyer"), (PARTNER, "seller")}
    for name in BOTH:
        assert 0 <= metrics[f"{name}/validation"] <= 1
        assert document[f"{name}/best"] == str(find_checkpoint(run / name))
    for name, rank in ranks.items():
        settings = json.loads((find_checkpoint(run / name) / "actor" / "adapter_config.json").read_text())
        assert (settings["r"], settings["base_model_name_or_path"]) == (rank, models[0])
    assert main.run(["train", "ppo", "--run", str(run), "--resume", "--json"]) == 0  # nothing is left to do
    capsys.readouterr()

    one, other = f"run:{run}/policy@1", f"run:{run}/partner@2"
    few = ["--env", env, "--scenarios", "1"]
    games = called(
        "eval", "--policy", one, "--opponent", other, "--baseline", "none", "--trials", "1", *few, sets=quick
    )
    assert games["environments"][env]["policies"][one]["games"] == 1
    matrix = called("eval", "cross-play", one, other, *few, sets=quick)["environments"][env]
    assert [[cell["games"] for cell in row["by_opponent"].values()] for row in matrix.values()] == [[2, 2], [2, 2]]
    assert all(cell["failed"] == 0 for row in matrix.values() for cell in row["by_opponent"].values())


def test_each_has_a_role_of_its_own_or_all_seats_in_turn():
    assert seats_in_turn(GamesConfig(env="dnd"), BOTH) == {POLICY: ("a", "b"), PARTNER: ("a", "b")}
    fixed = seats_in_turn(GamesConfig(env="craigslist", seat="seller"), BOTH)
    assert fixed == {POLICY: ("seller",), PARTNER: ("buyer",)}


def test_an_episode_that_is_too_old_for_one_is_dropped_for_both():
    def row(name, episode, version):
        ids = np.zeros(1, np.int32)
        return Row(episode, "dnd", "", name, 0, ids, 0, ids > 0, ids, 1.0, 0.0, policy_version=version, agent=name)

    versions = {POLICY: {"e1": 0, "e2": 2, "e3": 1}, PARTNER: {"e1": 5, "e2": 5, "e3": 3}}
    batches = {name: Batch([row(name, *one) for one in own.items()]) for name, own in versions.items()}
    kept = fresh(batches, {POLICY: 1, PARTNER: 4})
    assert [[one.episode_id for one in kept[name].rows] for name in BOTH] == [["e2"], ["e2"]]
    assert [batch.metrics["dropped_stale"] for batch in kept.values()] == [2, 2]


def test_a_delegate_of_a_run_is_named_and_a_wrong_name_is_told_the_right_ones(whole, tmp_path):
    assert resolve(f"run:{whole}/partner@1", critic=True) == str(whole / "checkpoints/step-1/partner/critic")
    assert resolve(f"run:{whole}/policy") == str(whole / "checkpoints/step-2/policy/actor")
    with pytest.raises(UsageError, match=r"has several delegates: name run:.*/partner or run:.*/policy"):
        resolve(f"run:{whole}@1")
    with pytest.raises(UsageError, match=r"has no delegate 'polcy': name run:.*/partner or"):
        resolve(f"run:{whole}/polcy")
    with Run.open(tmp_path / "one") as run:
        run.save(1, lambda folder: (folder / "actor").mkdir())
    with pytest.raises(UsageError, match=r"one has no delegate 'policy': name run:.*one$"):
        resolve(f"run:{tmp_path}/one/policy")


def test_the_best_checkpoint_of_each_is_kept(tmp_path):
    with Run.open(tmp_path / "run", keep=1) as run:
        for step, scores in enumerate([(0.9, 0.1), (0.2, 0.8), (0.3, 0.3), (0.1, 0.2)], start=1):
            run.save(step, lambda folder: [(folder / name / "actor").mkdir(parents=True) for name in BOTH])
            for name, score in zip(BOTH, scores, strict=True):
                run.mark_best(step, score, name)
    assert sorted(path.name for path in run.path.glob("checkpoints/step-*")) == ["step-1", "step-2", "step-4"]
    assert find_checkpoint(tmp_path / "run" / POLICY) == run.path / "checkpoints" / "step-1" / POLICY
    assert find_checkpoint(tmp_path / "run" / PARTNER) == run.path / "checkpoints" / "step-2" / PARTNER


def test_what_two_cannot_do_is_refused_in_a_line(models, tmp_path):
    config = recipe(models)
    for env in ("calendar", "marketplace", "werewolf"):
        with pytest.raises(UsageError, match=f"{env} has no two seats .*: dnd, casino, craigslist, job_interview"):
            check_ppo(replace(config, games=GamesConfig(env=env)))
    served = EngineConfig(kind="vllm", vllm=VllmConfig(urls=("http://127.0.0.1:9/v1",)))
    with pytest.raises(UsageError, match="2 trainer processes: two delegates are trained by one"):
        check_ppo(replace(config, engine=served), Trainers(nproc=2))
    with pytest.raises(UsageError, match="port: 8000 is one"):
        check_ppo(replace(config, engine=EngineConfig(kind="vllm", vllm=VllmConfig(port=8000))))
    with pytest.raises(UsageError, match="nowhere"):
        check_ppo(replace(config, partner=PartnerConfig(actor="./nowhere")))
    with pytest.raises(ModelError, match="two delegates on one server are two adapters"):
        trained(replace(config, engine=served), tmp_path / "run")
    with pytest.raises(ValueError, match="seat, got 'seller', expected one that is trained in marketplace: buyer"):
        GamesConfig(env="marketplace", seat="seller")
