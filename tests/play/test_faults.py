"""A training run that is killed again and again, at random moments, ends as if nothing had happened."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
import torch

from socialrl_cli import buffer, tiny

SMALL = tiny.TinyConfig(hidden=64, inner=96, layers=2, heads=2, kv_heads=1, critic_layers=1, vocab=600)
STEPS, BATCH, KILLS = 6, 8, 4
RECIPE = """
threads = 1
[model]
actor = "{actor}"
critic = "{critic}"
{partner}
[games]
opponents = ["scripted:linear", "scripted:boulware"]
max_tokens = 24
max_ahead = {ahead}
[games.play]
moves_per_seat = 4
retries = 0
concurrency = 4
[validation]
scenarios = 0
[engine.embedded]
slots = 4
capacity = 768
deterministic = {deterministic}
process = {process}
[ppo]
batch = {batch}
mini_batch = 4
steps = {steps}
critic_warmup = 1
actor_lr = 1e-3
critic_lr = 1e-3
save_every = 2
"""


def start(recipe, run, *more):
    command = [
        sys.executable,
        "-m",
        "socialrl_cli.main",
        "train",
        "ppo",
        str(recipe),
        "--run",
        str(run),
        "--json",
        *more,
    ]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )  # fmt: skip


def finished(run):
    path = run / "games.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    found = {}
    for line in lines:
        try:
            game = json.loads(line)
            found[game["episode_id"], game["policy"]] = line
        except ValueError:
            continue  # torn by the kill
    return found


def killed_until_it_is_done(recipe, run, rng, log):
    """Kill the trainer and all it has started, or the engine's process alone, after a random time; then resume."""
    kept = {}
    for attempt in range(KILLS + 1):
        going = start(recipe, run, *(["--resume"] if (run / "config.toml").exists() else []))
        if attempt < KILLS:
            until, moment = len(kept) + 1, rng.uniform(0, 3)  # every attempt comes on by a game or more
            while going.poll() is None and len(finished(run)) < until:
                time.sleep(0.02)
            time.sleep(moment)
        if attempt < KILLS and going.poll() is None:
            os.killpg(going.pid, signal.SIGKILL)
        out, err = going.communicate(timeout=300)
        now = finished(run)
        assert {name: now.get(name) for name in kept} == kept, "a finished episode was lost or played again"
        log.append(f"attempt {attempt}: exit {going.returncode}, {len(kept)} episodes in, {len(now)} out")
        kept = now
        if going.returncode == 0:
            return json.loads(out)
        assert going.returncode == -signal.SIGKILL, err
    raise AssertionError("\n".join(log))


def weights(run, delegate):
    from safetensors.torch import load_file

    return load_file(run / "checkpoints" / f"step-{STEPS}" / delegate / "actor" / "model.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ahead", "deterministic", "process", "both"),
    [(0, True, False, False), (0, True, True, False), (1, False, True, False), (0, True, False, True)],
    ids=str,
)
def test_a_run_that_is_killed_at_random_moments_loses_nothing_and_trains_nothing_twice(
    tmp_path, ahead, deterministic, process, both
):
    model = tiny.ensure(SMALL, seed=3, cache=tmp_path / "cache")
    recipe = tmp_path / "recipe.toml"
    text = {"ahead": ahead, "deterministic": str(deterministic).lower(), "process": str(process).lower()}
    text["partner"] = "[partner]" if both else ""
    labels = {"policy": "policy/", "partner": "partner/"} if both else {"": ""}
    places = {"actor": model / "actor", "critic": model / "critic"}
    recipe.write_text(RECIPE.format(batch=BATCH, steps=STEPS, **places, **text))
    seed = random.randrange(1 << 30)
    log = [f"seed {seed}"]
    document = killed_until_it_is_done(recipe, tmp_path / "killed", random.Random(seed), log)
    print("\n".join(log))

    assert document["step"] == STEPS, log
    assert all(document[f"{label}policy_version"] == STEPS - 1 for label in labels.values())
    metrics = [json.loads(line) for line in (tmp_path / "killed" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in metrics] == list(range(1, STEPS + 1))
    assert all([row[f"{label}episodes"] for row in metrics] == [BATCH] * STEPS for label in labels.values())
    games = (tmp_path / "killed" / "games.jsonl").read_text().splitlines()
    assert len(finished(tmp_path / "killed")) == STEPS * BATCH * len(labels), log
    rows = buffer.read(tmp_path / "killed" / "buffer")
    segments = list(zip(*(rows[name].to_pylist() for name in ("episode_id", "seat", "segment")), strict=True))
    assert len(segments) == len(set(segments)), log
    assert {episode for episode, _, _ in segments} == {episode for episode, _ in finished(tmp_path / "killed")}
    assert len(games) >= STEPS * BATCH

    if deterministic and not ahead:
        whole = start(recipe, tmp_path / "whole")
        _, err = whole.communicate(timeout=300)
        assert whole.returncode == 0, err
        for delegate in labels:
            one, other = (weights(tmp_path / name, delegate) for name in ("killed", "whole"))
            assert all(torch.equal(one[name], other[name]) for name in other), log
