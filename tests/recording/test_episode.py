"""A whole game, played by a stock client over HTTP and by our own harness in process: the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

import envs
from envs.agents.llm import HarnessConfig, LLMAgent
from envs.agents.scripted import scripted as scripted_agent
from envs.core import Limits, run
from scenarios.core import packaged
from socialrl_cli.buffer import BufferWriter, EpisodeRecord, read, rows, to_rows
from socialrl_cli.callfiles import read_calls
from socialrl_cli.proxy import Proxy
from socialrl_cli.recorder import Recorder
from socialrl_cli.sessions import segments

HARNESS = HarnessConfig(prompt="compact", temperature=0.8, max_tokens=12)


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> Any:
    """A model of random weights: its words are nonsense, half of them in splits the tokenizer would never make."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, max_position_embeddings=2048, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    return Qwen3ForCausalLM(config).eval()


def fresh_engine(model: Any, tokenizer: Any) -> Any:
    from socialrl_cli.engines.embedded import EmbeddedConfig, EmbeddedEngine

    return EmbeddedEngine(model, tokenizer, EmbeddedConfig(slots=2, deterministic=True))


async def play(chat: Any, opponent: str = "linear") -> tuple[Any, Any]:
    env = envs.make(packaged("dnd", "val")[0], seed=3, limits=Limits(moves_per_seat=3))
    agents = {
        "a": LLMAgent(chat, env="dnd", config=HARNESS, seed=11),
        "b": scripted_agent("dnd", opponent, seed=5, options={}),
    }
    return env, await run(env, agents)


def record(outcome: Any, calls: list) -> EpisodeRecord:
    seat = outcome.seats["a"]
    return EpisodeRecord(
        run="r", episode_id="e", env="dnd", scenario_id="s", split="val", seat="a", agent="model:random",
        opponent="scripted:linear", reward=seat.reward, utility=seat.utility, status=outcome.status, calls=calls,
    )  # fmt: skip


async def test_a_stock_client_gives_the_rows_of_the_in_process_path(
    model: Any, tokenizer: Any, tmp_path: Path, same_call: Any
) -> None:
    engine = fresh_engine(model, tokenizer)
    inside = Recorder(engine, tmp_path / "inside")
    _, outcome = await play(lambda request: inside.chat("ep", request))
    calls = inside.finish("ep")
    await engine.close()

    engine = fresh_engine(model, tokenizer)
    outside = Recorder(engine, tmp_path / "outside")
    async with (
        Proxy(outside) as proxy,
        openai.AsyncOpenAI(base_url=proxy.session_url("ep"), api_key="none", max_retries=0) as stock,
    ):

        async def chat(request: dict[str, Any]) -> dict[str, Any]:
            return (await stock.chat.completions.create(**request)).model_dump()

        _, other_outcome = await play(chat)
    other_calls = outside.finish("ep")
    await engine.close()

    assert other_outcome == outcome
    assert len(calls) == len(other_calls) >= 3
    for ours, theirs in zip(rows(record(outcome, calls)), rows(record(other_outcome, other_calls)), strict=True):
        for name, value in ours.items():
            if isinstance(value, np.ndarray):
                assert value.tobytes() == theirs[name].tobytes(), name
            else:
                assert value == theirs[name], name

    # and both are what is on disk
    assert all(map(same_call, calls, read_calls(tmp_path / "inside")))
    assert all(map(same_call, other_calls, read_calls(tmp_path / "outside")))


async def test_recorded_log_probabilities_are_those_of_a_forward_pass_over_the_row(
    model: Any, tokenizer: Any, tmp_path: Path
) -> None:
    import torch

    engine = fresh_engine(model, tokenizer)
    recorder = Recorder(engine, tmp_path / "calls")
    _, outcome = await play(lambda request: recorder.chat("ep", request))
    calls = recorder.finish("ep")
    await engine.close()
    found, counters = segments(calls)
    assert len(found) == 1  # full memory: one segment however odd the words
    assert counters.continued == len(calls) - 1
    assert counters.trained == sum(len(call.token_ids) for call in calls if call.token_ids is not None)
    with BufferWriter(tmp_path / "buffer") as writer:
        writer.add(rows(record(outcome, calls)))
    (row,) = to_rows(read(tmp_path / "buffer"))
    with torch.no_grad():
        logits = model(torch.from_numpy(row.token_ids.astype(np.int64))[None]).logits[0]
    expected = torch.log_softmax(logits.double() / HARNESS.temperature, -1).numpy()
    sampled = np.flatnonzero(row.loss_mask)
    got = row.logprobs[sampled]
    np.testing.assert_allclose(got, expected[sampled - 1, row.token_ids[sampled]], atol=1e-4)
    fresh = tokenizer.encode(tokenizer.decode(row.token_ids), add_special_tokens=False)
    assert fresh != row.token_ids.tolist()  # the test would not notice decoding and encoding otherwise
