"""The Parquet contract: what is written is read, whole shards survive crashes, and the schema moves on purpose only."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.errors import DataError, RunError
from socialrl_cli.buffer import SCHEMA, SCHEMA_VERSION, BufferWriter, EpisodeRecord, message_rows, read, rows, to_rows
from socialrl_cli.calls import Call

FROZEN = """schema_version int32 · run string · episode_id string · session_key string · kind string · env string
scenario_id string · world int32 · pair_id string · group_id string · sample int32 · split string · seat string
agent string · opponent string · policy_version int64 · segment int32 · n_segments int32
token_ids list<item: int32> · prompt_len int32 · loss_mask list<item: bool> · behaviour_logprobs list<item: float>
call_spans list<item: struct<start: int32, end: int32, turn: int32, policy_version: int64, temperature: double, \
grammar: string>>
turn_probes list<item: struct<turn: int32, name: string, value: string>> · reward double
reward_parts map<string, double> · outcome struct<status: string, by: string, agreement: string> · utility double
messages string · tools string · status string · error string · started_at double · finished_at double"""


def record(number: int = 0, **fields: Any) -> EpisodeRecord:
    common: dict[str, Any] = {
        "run": "r", "episode_id": f"e{number}", "env": "dnd", "scenario_id": "dnd-1", "split": "train", "seat": "a",
        "agent": "model:tiny", "opponent": "scripted:linear", "reward": 0.5, "utility": 5.0, "status": "agreement",
    }  # fmt: skip
    return EpisodeRecord(**{**common, **fields})


def talk(session: str = "s", version: int = 4) -> list[Call]:
    """Two turns that go on, then one with a rewritten history."""

    def one(index: int, prompt: list[int], tokens: list[int], messages: list[str], said: str, version: int) -> Call:
        roles = ("user", "assistant")
        return Call(
            session, index, prompt_ids=np.array(prompt, np.int32), token_ids=np.array(tokens, np.int32),
            logprobs=-np.arange(len(tokens), dtype=np.float32) - 0.25, temperature=0.7, policy_version=version,
            messages=tuple({"role": roles[i % 2], "content": text} for i, text in enumerate(messages)), reply=said,
            message={"role": "assistant", "content": said},
        )  # fmt: skip

    return [
        one(0, [1, 2], [3, 4], ["q"], "a", version + 1),
        one(1, [1, 2, 3, 4, 5], [6], ["q", "a", "r"], "b", version),
        one(2, [9, 9], [8, 7], ["short"], "c", version + 2),
    ]


def test_the_schema_is_the_frozen_one() -> None:
    columns = [part.strip() for line in FROZEN.split("\n") for part in line.split(" · ")]
    assert [f"{column.name} {column.type}" for column in SCHEMA] == columns
    assert SCHEMA_VERSION == 1  # another version: another frozen copy, and a word in LOG.md
    assert SCHEMA.metadata == {b"socialrl_schema_version": b"1"}


def test_an_episode_is_one_row_a_segment_with_its_reward_on_each(tmp_path: Path) -> None:
    with BufferWriter(tmp_path) as writer:
        writer.add(rows(record(calls=talk(), reward_parts={"deal": 1.0, "fair": 0.25},
                               outcome={"status": "agreement", "by": "b", "agreement": {"book": 1}})))  # fmt: skip
    first, second = read(tmp_path).to_pylist()
    assert (first["segment"], second["segment"]) == (0, 1)
    assert {row["n_segments"] for row in (first, second)} == {2}
    assert {row["reward"] for row in (first, second)} == {0.5}
    assert first["token_ids"] == [1, 2, 3, 4, 5, 6]
    assert first["loss_mask"] == [False, False, True, True, False, True]
    assert first["behaviour_logprobs"] == [0, 0, -0.25, -1.25, 0, -0.25]
    assert first["prompt_len"] == 2
    assert (first["policy_version"], second["policy_version"]) == (4, 6)  # the oldest in each
    assert first["call_spans"] == [
        {"start": 2, "end": 4, "turn": 0, "policy_version": 5, "temperature": 0.7, "grammar": None},
        {"start": 5, "end": 6, "turn": 1, "policy_version": 4, "temperature": 0.7, "grammar": None},
    ]
    assert first["reward_parts"] == [("deal", 1.0), ("fair", 0.25)]
    assert first["outcome"] == {"status": "agreement", "by": "b", "agreement": '{"book":1}'}
    assert [m["content"] for m in json.loads(first["messages"])] == ["q", "a", "r", "b"]
    assert [m["content"] for m in json.loads(second["messages"])] == ["short", "c"]
    assert first["session_key"] == "s"


def test_the_trainer_sees_the_same_tokens(tmp_path: Path) -> None:
    with BufferWriter(tmp_path) as writer:
        writer.add(rows(record(calls=talk(), group_id="g")))
        writer.add(rows(record(1, messages=[{"role": "user", "content": "x"}])))  # nothing to train on
        writer.add(rows(record(2, calls=talk("t"), reward=None, utility=None, status="failed", error="gone")))
    first, second = to_rows(read(tmp_path))
    assert first.token_ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert first.token_ids.dtype == np.int32
    assert first.loss_mask.dtype == bool
    assert first.logprobs.dtype == np.float32
    assert first.logprobs.tolist() == [0, 0, -0.25, -1.25, 0, -0.25]
    assert first.temperature.tolist() == np.array([1, 1, 0.7, 0.7, 1, 0.7], np.float32).tolist()
    assert (first.episode_id, first.seat, first.segment, first.prompt_len, first.reward) == ("e0", "a", 0, 2, 0.5)
    assert (first.policy_version, first.group_id, first.status, first.agent) == (4, "g", "agreement", "model:tiny")
    assert second.token_ids.tolist() == [9, 9, 8, 7]


def test_probe_calls_are_rows_of_their_own_and_their_results_stand_in_the_play_row(tmp_path: Path) -> None:
    ids = {"prompt_ids": np.array([1, 2, 3, 4, 5], np.int32), "token_ids": np.array([6], np.int32)}
    probe = Call("s", 3, kind="probe", logprobs=np.zeros(1, np.float32), **ids)
    plan = {"turn": 0, "name": "plan", "value": {"room": 3}}
    with BufferWriter(tmp_path) as writer:
        writer.add(rows(record(calls=[*talk()[:2], probe], turn_probes=[plan])))
    play, probed = read(tmp_path).to_pylist()
    assert (play["kind"], probed["kind"]) == ("play", "probe")
    assert play["turn_probes"] == [{"turn": 0, "name": "plan", "value": '{"room":3}'}]
    assert not any(probed["loss_mask"])
    assert probed["reward"] == 0.5
    assert len(to_rows(read(tmp_path))) == 1


def test_messages_without_tokens_are_rows_to_distil_from(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "x"}, {"role": "assistant", "content": '{"move":"accept"}'}]
    with BufferWriter(tmp_path) as writer:
        writer.add(rows(record(agent="scripted:linear", messages=said, tools=[{"type": "function"}])))
        writer.add(rows(record(1, calls=[Call("s", c.index, messages=c.messages, reply=c.reply, message=c.message)
                                         for c in talk()])))  # fmt: skip
        writer.add(rows(record(2, status="failed", reward=None, error="the engine died")))
    table = read(tmp_path)
    assert table["token_ids"].null_count == len(table) == 4
    scripted, first, second = message_rows(table)
    assert scripted["messages"] == said
    assert scripted["tools"] == [{"type": "function"}]
    assert [m["content"] for m in first["messages"]] == ["q", "a", "r", "b"]  # two calls, one conversation
    assert [m["content"] for m in second["messages"]] == ["short", "c"]
    failed = table.slice(3).to_pylist()[0]
    assert (failed["status"], failed["error"], failed["n_segments"]) == ("failed", "the engine died", 0)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
lists = st.integers(0, 6)


@st.composite
def any_row(draw: Any) -> dict[str, Any]:
    n = draw(lists)
    tokens = draw(st.booleans())
    span = {"start": 0, "end": n, "turn": 1, "policy_version": 2, "temperature": draw(st.floats(0, 2)), "grammar": None}
    floats = st.lists(st.floats(width=32, allow_nan=False), min_size=n, max_size=n)
    ints = st.lists(st.integers(0, 2**31 - 1), min_size=n, max_size=n)
    masks = st.lists(st.booleans(), min_size=n, max_size=n)
    return {
        **{name: draw(texts) for name in ("run", "episode_id", "session_key", "kind", "env", "scenario_id", "split")},
        **{name: draw(texts) for name in ("seat", "agent", "opponent", "status")},
        **{name: draw(st.one_of(st.none(), texts)) for name in ("pair_id", "group_id", "error", "messages", "tools")},
        **{name: draw(st.floats(allow_nan=False)) for name in ("reward", "utility", "started_at", "finished_at")},
        "schema_version": SCHEMA_VERSION,
        "world": draw(st.one_of(st.none(), st.integers(0, 1))),
        **{name: draw(st.integers(0, 99)) for name in ("sample", "policy_version", "segment", "n_segments")},
        "token_ids": np.array(draw(ints), np.int32) if tokens else None,
        "prompt_len": 0 if tokens else None,
        "loss_mask": np.array(draw(masks), bool) if tokens else None,
        "behaviour_logprobs": np.array(draw(floats), np.float32) if tokens else None,
        "call_spans": [span] if tokens else None,
        "turn_probes": draw(st.sampled_from([None, [], [{"turn": 1, "name": "p", "value": "1"}]])),
        "reward_parts": draw(st.lists(st.tuples(texts, st.floats(allow_nan=False)), max_size=2)),
        "outcome": {"status": draw(texts), "by": None, "agreement": "{}"},
    }


@settings(max_examples=30, deadline=None)
@given(st.lists(any_row(), max_size=6), st.integers(1, 4))
def test_writing_and_reading_is_the_identity(tmp_path_factory: Any, some: list, rows_per_shard: int) -> None:
    folder = tmp_path_factory.mktemp("buffer")
    with BufferWriter(folder, rows_per_shard) as writer:
        for row in some:
            writer.add([row])
    plain = [{name: v.tolist() if isinstance(v, np.ndarray) else v for name, v in row.items()} for row in some]
    assert read(folder).to_pylist() == [{name: row[name] for name in SCHEMA.names} for row in plain]


def test_predicates_and_columns_are_pyarrows(tmp_path: Path) -> None:
    writer = BufferWriter(tmp_path)
    for number, env in enumerate(["dnd", "casino", "dnd"]):
        writer.add(rows(record(number, env=env, calls=talk())))
        if number == 0:
            writer.flush()  # the others stay pending
    table = read(tmp_path, (pc.field("env") == "dnd") & (pc.field("segment") == 0), ["episode_id", "reward"])
    assert table.to_pylist() == [{"episode_id": "e0", "reward": 0.5}, {"episode_id": "e2", "reward": 0.5}]
    assert len(read(tmp_path)) == 6
    writer.close()
    assert len(read(tmp_path)) == 6


def test_a_torn_shard_is_set_aside_and_the_others_are_read(tmp_path: Path, capsys: Any) -> None:
    with BufferWriter(tmp_path, 1) as writer:
        for number in range(3):
            writer.add(rows(record(number, messages=[])))
    torn = tmp_path / "shard-000002.parquet"
    torn.write_bytes(torn.read_bytes()[:-20])
    assert read(tmp_path)["episode_id"].to_pylist() == ["e0", "e2"]
    assert "shard-000002.parquet: torn" in capsys.readouterr().err
    assert (tmp_path / "shard-000002.parquet.torn").exists()
    assert len(read(tmp_path)) == 2
    assert capsys.readouterr().err == ""
    with BufferWriter(tmp_path) as writer:  # its number is not used again
        writer.add(rows(record(3, messages=[])))
    assert read(tmp_path)["episode_id"].to_pylist() == ["e0", "e2", "e3"]


def test_a_wrong_question_sets_nothing_aside(tmp_path: Path, capsys: Any) -> None:
    with BufferWriter(tmp_path) as writer:
        writer.add(rows(record(messages=[])))
    with pytest.raises(Exception, match="nowhere"):
        read(tmp_path, pc.field("nowhere") == 1)
    assert len(read(tmp_path)) == 1
    assert capsys.readouterr().err == ""


def test_greedy_tokens_are_kept_and_not_trained_on(tmp_path: Path) -> None:
    calls = [replace(call, temperature=0.0) for call in talk()]
    with BufferWriter(tmp_path) as writer:
        writer.add(rows(record(calls=calls)))
    table = read(tmp_path)
    assert table["token_ids"][0].as_py() == [1, 2, 3, 4, 5, 6]
    assert table["call_spans"][0][0].as_py()["temperature"] == 0
    for row in to_rows(table):
        assert not row.loss_mask.any()
        assert (row.temperature == 1).all()


def test_rows_for_the_trainer_are_its_own_to_change(tmp_path: Path) -> None:
    with BufferWriter(tmp_path) as writer:
        writer.add(rows(record(calls=talk())))
    row = to_rows(read(tmp_path))[0]
    assert all(column.flags.writeable for column in (row.token_ids, row.loss_mask, row.logprobs))


def test_mappings_of_any_kind_are_written(tmp_path: Path) -> None:
    outcome = {"status": "agreement", "agreement": MappingProxyType({"a": MappingProxyType({"book": 1})})}
    with BufferWriter(tmp_path) as writer:
        writer.add(rows(record(messages=[], outcome=outcome)))
    assert read(tmp_path)["outcome"][0].as_py()["agreement"] == '{"a":{"book":1}}'


def test_a_shard_of_another_version_is_refused(tmp_path: Path) -> None:
    with BufferWriter(tmp_path) as writer:
        writer.add(rows(record(messages=[])))
    (shard,) = tmp_path.glob("*.parquet")
    table = pq.read_table(shard)
    pq.write_table(table.replace_schema_metadata({"socialrl_schema_version": "99"}), shard)
    with pytest.raises(DataError, match="schema version 99, expected 1"):
        read(tmp_path)


def test_what_was_added_is_there_before_it_is_flushed(tmp_path: Path) -> None:
    writer = BufferWriter(tmp_path)
    writer.add(rows(record(0, calls=talk())))
    assert read(tmp_path)["episode_id"].to_pylist() == ["e0", "e0"]
    again = BufferWriter(tmp_path)  # as after a kill
    assert [path.suffix for path in tmp_path.iterdir()] == [".parquet"]
    again.add(rows(record(1, calls=talk())))
    again.close()
    assert read(tmp_path)["episode_id"].to_pylist() == ["e0", "e0", "e1", "e1"]


def test_pending_rows_are_used_up_to_where_they_are_torn(tmp_path: Path, capsys: Any) -> None:
    writer = BufferWriter(tmp_path)
    for number in range(3):
        writer.add(rows(record(number, messages=[])))
    (pending,) = tmp_path.glob("*.pending")
    pending.write_bytes(pending.read_bytes()[:-40])
    BufferWriter(tmp_path).close()
    assert read(tmp_path)["episode_id"].to_pylist() == ["e0", "e1"]
    assert "torn" in capsys.readouterr().err


def test_a_shard_and_its_pending_rows_are_not_read_twice(tmp_path: Path) -> None:
    writer = BufferWriter(tmp_path)
    writer.add(rows(record(0, messages=[])))
    (pending,) = tmp_path.glob("*.pending")
    kept = pending.read_bytes()
    writer.close()
    pending.write_bytes(kept)  # a kill between the rename and the removal
    assert len(read(tmp_path)) == 1
    BufferWriter(tmp_path).close()
    assert len(read(tmp_path)) == 1
    assert not pending.exists()


def test_a_full_disk_is_a_run_error(tmp_path: Path) -> None:
    writer = BufferWriter(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(RunError, match="could not be written"):
            writer.add([row for number in range(100) for row in rows(record(number, calls=talk()))])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_buffer_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such buffer"):
        read(tmp_path / "nowhere")


KILLED = """
import sys
sys.path.insert(0, sys.argv[2])
from test_buffer import record, rows, talk, BufferWriter
writer = BufferWriter(sys.argv[1], rows_per_shard=4)
for number in range(100_000):
    writer.add(rows(record(number, calls=talk())))
    print(number, flush=True)
"""


def test_kill_9_during_shard_writes_loses_no_added_row(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path), str(Path(__file__).parent)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    for _ in range(10):
        child.stdout.readline()
    time.sleep(0.1)
    os.kill(child.pid, signal.SIGKILL)
    acknowledged = 10 + len(child.stdout.read().split("\n")) - 1
    child.wait()
    child.stdout.close()
    BufferWriter(tmp_path).close()
    names = read(tmp_path)["episode_id"].to_pylist()
    assert len(names) in (2 * acknowledged, 2 * acknowledged + 2)
    assert names == [f"e{number // 2}" for number in range(len(names))]
