"""A training run that is killed again and again, at random moments, ends as if nothing had happened."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

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
{more}
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


def check_whole(run, document, labels, steps, log):
    """As many steps, episodes and rows as there should be, each once. `labels`: the delegates' before their figures."""
    assert document["step"] == steps, log
    assert all(document[f"{label}policy_version"] == document["step"] - warm(run) for label in labels.values())
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in metrics] == list(range(1, steps + 1))
    assert all([row[f"{label}episodes"] for row in metrics] == [BATCH] * steps for label in labels.values())
    assert len(finished(run)) == steps * BATCH * len(labels), log
    rows = buffer.read(run / "buffer")
    segments = list(zip(*(rows[name].to_pylist() for name in ("episode_id", "seat", "segment")), strict=True))
    assert len(segments) == len(set(segments)), log
    assert {episode for episode, _, _ in segments} == {episode for episode, _ in finished(run)}


def warm(run):
    """Steps that train the critic alone, and publish nothing."""
    return tomllib.loads((run / "config.toml").read_text())["ppo"]["critic_warmup"]


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
    text["more"] = "[partner]" if both else ""
    labels = {"policy": "policy/", "partner": "partner/"} if both else {"": ""}
    places = {"actor": model / "actor", "critic": model / "critic"}
    recipe.write_text(RECIPE.format(batch=BATCH, steps=STEPS, **places, **text))
    seed = random.randrange(1 << 30)
    log = [f"seed {seed}"]
    document = killed_until_it_is_done(recipe, tmp_path / "killed", random.Random(seed), log)
    print("\n".join(log))

    check_whole(tmp_path / "killed", document, labels, STEPS, log)
    if deterministic and not ahead:
        whole = start(recipe, tmp_path / "whole")
        _, err = whole.communicate(timeout=300)
        assert whole.returncode == 0, err
        for delegate in labels:
            one, other = (weights(tmp_path / name, delegate) for name in ("killed", "whole"))
            assert all(torch.equal(one[name], other[name]) for name in other), log


OVER_A_SERVER = """
[model.lora]
rank = 8
[engine]
kind = "vllm"
[engine.vllm]
max_model_len = 768
max_num_seqs = 8
start_timeout_s = 400
"""


def children(pid):
    """The processes that a process has started, from any of its threads."""
    return [int(one) for task in Path(f"/proc/{pid}/task").glob("*/children") for one in task.read_text().split()]


def server_of(trainer):
    """The process group of the server that a trainer owns."""
    for child in children(trainer):
        if b"supervise.py" in Path(f"/proc/{child}/cmdline").read_bytes() and (group := children(child)):
            return group[0]
    raise AssertionError("the trainer has no server")


def comes_to_an_end(group, within_s=30):
    ends = time.monotonic() + within_s
    while time.monotonic() < ends:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.vllm
def test_a_server_and_its_trainer_are_killed_at_random_moments(tmp_path):
    """Each of an attempt's victims dies a random time after another episode has ended; the server is restarted once."""
    model, run, steps = tiny.ensure(seed=0), tmp_path / "run", 4
    recipe, seed = tmp_path / "recipe.toml", random.randrange(1 << 30)
    text = {"ahead": 0, "deterministic": "false", "process": "false", "more": OVER_A_SERVER}
    recipe.write_text(RECIPE.format(batch=BATCH, steps=steps, actor=model / "actor", critic=model / "critic", **text))
    rng, log, kept = random.Random(seed), [f"seed {seed}"], {}
    for victims in (("server", "trainer"), ("trainer and server",), ()):
        going = start(recipe, run, *(["--resume"] if kept else []))
        for victim in victims:
            until, ends = len(finished(run)) + 1, time.monotonic() + 400
            while going.poll() is None and len(finished(run)) < until and time.monotonic() < ends:
                time.sleep(0.02)
            time.sleep(rng.uniform(0, 1))
            assert going.poll() is None, going.communicate()[1]
            group = server_of(going.pid)
            if "trainer" in victim:
                os.kill(going.pid, signal.SIGKILL)
            if "server" in victim:
                os.killpg(group, signal.SIGKILL)
            log.append(f"killed: {victim}, with {len(finished(run))} episodes")
            assert comes_to_an_end(group), f"the server outlives the death of: {victim}"
        out, err = going.communicate(timeout=600)
        now = finished(run)
        assert {name: now.get(name) for name in kept} == kept, "a finished episode was lost or played again"
        log.append(f"exit {going.returncode}, {len(kept)} episodes in, {len(now)} out")
        kept = now
        assert going.returncode == (-signal.SIGKILL if victims else 0), err
        assert ("started once more" in err) == ("server" in victims), err
    print("\n".join(log))
    check_whole(run, json.loads(out), {"": ""}, steps, log)
