"""The vLLM engine against a stand-in of its server: what is started, asked, published, restarted and ended."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from algos.models import LoraConfig, ModelConfig, load
from scenarios.errors import EngineError, ModelError, UsageError
from socialrl_cli import tiny
from socialrl_cli.engines import launching, server, supervise
from socialrl_cli.engines import live as live_weights
from socialrl_cli.engines.config import EngineConfig, VllmConfig, check_engine, engine_sets
from socialrl_cli.engines.opening import open_engine

SMALL = tiny.TinyConfig(hidden=64, inner=96, layers=2, heads=2, kv_heads=1, critic_layers=1, vocab=600)
HELLO = {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 4, "logprobs": "tokens"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.set_num_threads(1)
    return str(tiny.ensure(SMALL, seed=3, cache=tmp_path_factory.mktemp("cache")) / "actor")


@pytest.fixture
def python(tmp_path: Path) -> str:
    """An interpreter that has our stand-in for vLLM."""
    script = tmp_path / "python-with-vllm"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name("fake_vllm.py")} "$@"\n')
    script.chmod(0o755)
    return str(script)


@pytest.fixture
async def opened(model: str, python: str, tmp_path: Path):
    """Opens engines, and closes them."""
    engines = []

    def make(trained=None, **config):
        wanted = EngineConfig(kind="vllm", vllm=VllmConfig(**{"python": python, "start_timeout_s": 20.0, **config}))
        engines.append(open_engine(wanted, name="small", path=model, work=tmp_path / "work", trained=trained))
        return engines[-1]

    yield make
    for engine in engines:
        await engine.close()


def adapted(model: str):
    return load(ModelConfig(actor=model, lora=LoraConfig(rank=4, alpha=8)))


def journal(engine) -> list[list[str]]:
    return server.ask(f"{engine._servers[0].base_url}/journal")


def children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


async def until(true) -> bool:
    for _ in range(100):
        if true():
            return True
        await asyncio.sleep(0.05)
    return False


def test_the_engine_is_a_kind_or_a_url() -> None:
    assert engine_sets("") == []
    assert engine_sets("vllm") == ["engine.kind=vllm"]
    assert engine_sets("http://a:1, http://b:2") == [
        "engine.kind=vllm",
        'engine.vllm.urls=["http://a:1", "http://b:2"]',
    ]
    with pytest.raises(UsageError, match="embedded, vllm, or the URL"):
        engine_sets("vlm")


def test_without_vllm_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(launching.VARIABLE, raising=False)
    monkeypatch.setattr(launching, "find_spec", lambda _name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match=r"not installed here.*SOCIALRL_VLLM_PYTHON"):
        check_engine(EngineConfig(kind="vllm"))
    with pytest.raises(UsageError, match="/no/python: no interpreter with vLLM"):
        check_engine(EngineConfig(kind="vllm", vllm=VllmConfig(python="/no/python")))


def test_the_command_vllm_serves_where_no_interpreter_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "vllm"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    monkeypatch.delenv(launching.VARIABLE, raising=False)
    monkeypatch.setattr(launching, "find_spec", lambda _name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    words = launching.command(launching.find(), VllmConfig(), "folder", port=1, dtype="float32", rank=0, gpu=True)
    assert words[:4] == [str(command), "serve", "folder", "--served-model-name"]
    assert "--enable-lora" not in words


def test_an_adapter_gets_the_next_rank_that_there_is() -> None:
    launcher = launching.Launcher(("python", "-m", launching.MODULE), "0")
    words = launching.command(launcher, VllmConfig(max_loras=3), "m", port=1, dtype="float32", rank=12, gpu=False)
    assert words[words.index("--max-lora-rank") + 1] == "16"
    assert words[words.index("--max-loras") + 1] == "3"
    with pytest.raises(UsageError, match="rank 1000"):
        launching.command(launcher, VllmConfig(), "m", port=1, dtype="float32", rank=1000, gpu=False)


async def test_an_answer_carries_the_exact_prompt_and_the_sampled_tokens(opened, capfd) -> None:
    engine = opened()
    body = await engine.chat({**HELLO, "seed": 5})
    prompt = engine.tokenizer.apply_chat_template(HELLO["messages"], add_generation_prompt=True, return_dict=False)
    assert body["prompt_token_ids"] == prompt
    assert len(body["choices"][0]["token_ids"]) == 4
    assert body["choices"][0]["token_logprobs"] == [-4.0] * 4
    assert (await engine.chat({**HELLO, "seed": 5}))["choices"][0]["token_ids"] == body["choices"][0]["token_ids"]
    assert engine.capacity == 512  # the server's, where it is smaller than the model's
    assert "vLLM 0.0.fake at http://127.0.0.1:" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("raw", r"lacks log-probabilities after temperature \(start it with --logprobs-mode processed_logprobs\)"),
        ("no ids", "lacks token ids"),
        ("tokens", "another tokenizer"),
        ("dies", r"did not start: exit code 3; ValueError: no room for the cache.*log: .*vllm.log"),
    ],
)
def test_a_server_that_will_not_do_is_refused_with_the_reason(
    opened, wrong: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM", wrong)
    with pytest.raises((ModelError, EngineError), match=message):
        opened()


def test_a_server_that_never_answers_is_given_up_and_ended(opened, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FAKE_VLLM", "hangs")
    monkeypatch.setattr(server, "GRACE_S", 0.5)
    begun = time.monotonic()
    with pytest.raises(EngineError, match=r"not ready within 1 s: .*starting with"):
        opened(start_timeout_s=1.0)
    assert time.monotonic() - begun < 6


def test_a_port_in_use_is_named(opened) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EngineError, match=f"port {port} is in use"):
            opened(port=port)


async def test_each_version_has_a_name_of_its_own_and_old_ones_go(opened, model, tmp_path) -> None:
    engine = opened(trained=adapted(model))
    for version in (1, 2, 3):
        await engine.publish(version)
        assert (await engine.chat(HELLO))["policy_version"] == version
    loads = [name for what, name in journal(engine) if what == "/v1/load_lora_adapter"]
    unloads = [name for what, name in journal(engine) if what == "/v1/unload_lora_adapter"]
    asked = [name for what, name in journal(engine) if what == "completion" and name != "base"]
    assert [name.rsplit("-", 1)[0] for name in loads] == ["policy-v1", "policy-v2", "policy-v3"]
    assert asked == loads
    assert unloads == loads[:2]
    kept = sorted(path.name for path in (tmp_path / "work" / "weights").iterdir())
    assert kept == loads[1:]  # the files of version 2, unloaded just now, go with the next sync


async def test_an_adapter_stays_while_a_request_has_it(opened, model) -> None:
    engine = opened(trained=adapted(model))
    await engine.publish(1)
    slow = asyncio.ensure_future(engine.chat({**HELLO, "max_tokens": 400}))
    assert await until(lambda: engine.weights.current.leases == 1)
    await engine.publish(2)
    assert [what for what, _ in journal(engine)].count("/v1/unload_lora_adapter") == 0
    assert (await slow)["policy_version"] == 1
    assert await until(lambda: [what for what, _ in journal(engine) if "unload" in what] == ["/v1/unload_lora_adapter"])


async def test_a_sync_that_does_not_end_raises(opened, model, monkeypatch) -> None:
    monkeypatch.setenv("FAKE_VLLM", "slow")
    engine = opened(trained=adapted(model), sync_timeout_s=0.3)
    with pytest.raises(EngineError, match=r"version 1 was not taken over within 0.3 s|no answer within 0.3 s"):
        await engine.publish(1)
    assert engine.policy_version == 0


async def test_full_weights_wait_for_the_requests_under_way(opened, model) -> None:
    engine = opened(trained=load(ModelConfig(actor=model)))
    slow = asyncio.ensure_future(engine.chat({**HELLO, "max_tokens": 300}))
    assert await until(lambda: engine.weights.current.leases == 1)
    publishing = asyncio.ensure_future(engine.publish(1))
    await asyncio.sleep(0.05)
    later = asyncio.ensure_future(engine.chat(HELLO))
    assert (await slow)["policy_version"] == 0
    await publishing
    assert (await later)["policy_version"] == 1
    (reload,) = [path for what, path in journal(engine) if what == "/collective_rpc"]
    assert (Path(reload) / "model.safetensors").exists()


def test_full_weights_of_a_tied_model_are_refused(opened, model) -> None:
    models = load(ModelConfig(actor=model))
    models.actor.config.tie_word_embeddings = True
    with pytest.raises(ModelError, match="tied to its embeddings"):
        opened(trained=models)


def test_adapters_need_a_server_that_takes_them(opened, model, monkeypatch) -> None:
    monkeypatch.setenv("FAKE_VLLM", "no lora")
    with pytest.raises(ModelError, match="start it with --enable-lora"):
        opened(trained=adapted(model))


async def test_a_server_that_dies_is_started_once_with_its_weights(opened, model, capfd) -> None:
    engine = opened(trained=adapted(model))
    await engine.publish(1)
    (script,) = children(engine.owned._process.pid)
    together = [asyncio.ensure_future(engine.chat({**HELLO, "seed": n, "max_tokens": 200})) for n in range(4)]
    assert await until(lambda: engine.weights.current.leases == 4)
    os.kill(script, signal.SIGKILL)
    assert [body["policy_version"] for body in await asyncio.gather(*together)] == [1] * 4
    assert "the server died and is started once more" in capfd.readouterr().err
    assert ["/v1/load_lora_adapter", engine.weights.current.name] in journal(engine)
    with pytest.raises(EngineError, match="died again after it was restarted: exit code 137"):
        await engine.chat({**HELLO, "max_tokens": 13})


async def test_several_servers_share_the_load(opened, model) -> None:
    first, second = opened(), opened()
    urls = tuple(engine._servers[0].base_url for engine in (first, second))
    both = opened(urls=urls)
    await asyncio.gather(*(both.chat({**HELLO, "max_tokens": 50}) for _ in range(6)))
    assert [sum(what == "completion" for what, _ in journal(one)) for one in (first, second)] == [2 + 2 + 3] * 2


async def test_the_whole_group_ends_with_its_owner(tmp_path: Path) -> None:
    """Killed with -9, the starter closes the pipe all the same."""
    inner = "import os,sys,time\nif os.fork(): time.sleep(60)\nelse: time.sleep(60)"
    starter = (
        "import subprocess,sys,time\n"
        f"p = subprocess.Popen([sys.executable, '-I', {supervise.__file__!r}, '1', sys.executable, '-c', {inner!r}],"
        " stdin=subprocess.PIPE, start_new_session=True)\nprint(p.pid, flush=True)\ntime.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    watcher = int(owner.stdout.readline())
    assert await until(lambda: children(watcher) and children(children(watcher)[0]))
    (command,) = children(watcher)
    group = [watcher, command, *children(command)]
    assert len(group) == 3
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert await until(lambda: all(gone(pid) for pid in group))


def test_files_are_whole_or_not_there(tmp_path: Path) -> None:
    def breaks(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise ValueError("torn")

    with pytest.raises(ValueError, match="torn"):
        live_weights.write(tmp_path / "policy-v1", breaks)
    assert list(tmp_path.iterdir()) == []
