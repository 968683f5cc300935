"""The raw record gives back what was written, bit for bit, and survives kills and full disks."""

from __future__ import annotations

import itertools
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.errors import DataError, RunError
from socialrl_cli.callfiles import MAGIC, CallWriter, parts, read_calls
from socialrl_cli.calls import Call, pack, unpack


@given(st.lists(st.integers(0, 2**31 - 1), max_size=40))
def test_packed_ids_come_back(ids: list[int]) -> None:
    array = np.array(ids, np.int32)
    bits, data = pack(array)
    assert unpack(bits, len(ids), data + b"more").tolist() == ids


words = st.sampled_from(["hello", "deal", "ö — ✓", "", '{"move": "accept"}'])
messages = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant"]), "content": words}), max_size=4
)
ids = st.one_of(st.none(), st.lists(st.integers(0, 200_000), max_size=6).map(lambda i: np.array(i, np.int32)))
floats = st.lists(st.floats(width=32), max_size=6).map(lambda f: np.array(f, np.float32))
calls = st.builds(
    Call,
    session=st.sampled_from(["a", "b"]),
    index=st.integers(0, 50),
    kind=st.sampled_from(["play", "probe"]),
    prompt_ids=ids,
    token_ids=ids,
    logprobs=st.one_of(st.none(), floats),
    messages=messages.map(tuple),
    reply=words,
    message=st.one_of(
        words.map(lambda w: {"role": "assistant", "content": w}),
        st.just({"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}),
    ),
    tools=st.one_of(st.none(), st.just([{"type": "function"}])),
    temperature=st.floats(0, 2),
    policy_version=st.integers(0, 2**40),
    finish_reason=st.one_of(st.none(), st.just("stop")),
    grammar=st.one_of(st.none(), st.just("g-1")),
    params=st.just({"max_tokens": 5}),
    completion_tokens=st.integers(0, 9),
    started_at=st.floats(0, 2e9),
    finished_at=st.floats(0, 2e9),
    error=st.one_of(st.none(), st.just("EngineError: gone")),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(calls, max_size=8))
def test_writing_and_reading_is_the_identity(tmp_path_factory: Any, same_call: Any, some: list[Call]) -> None:
    folder = tmp_path_factory.mktemp("calls")
    writer = CallWriter(folder)
    for each in some:
        writer.write(each)
    writer.close()
    back = read_calls(folder)
    assert len(back) == len(some)
    assert all(map(same_call, some, back))


def conversation(turns: int, session: str = "s") -> Iterator[Call]:
    """Calls that go on, each adding 20 context tokens and a reply of 5."""
    rng, past, said = np.random.default_rng(0), np.empty(0, np.int32), ({"role": "system", "content": "rules " * 40},)
    for index in range(turns):
        said = (*said, {"role": "user", "content": f"turn {index}"})
        prompt = np.concatenate((past, rng.integers(0, 2048, 20, dtype=np.int32)))
        reply, logprobs = rng.integers(0, 2048, 5, dtype=np.int32), rng.standard_normal(5).astype(np.float32)
        message = {"role": "assistant", "content": f"answer {index}"}
        tokens = {"prompt_ids": prompt, "token_ids": reply, "logprobs": logprobs}
        call = Call(session, index, messages=said, reply=f"answer {index}", message=message, **tokens)
        yield call
        past, said = call.full_ids(), (*said, message)


def test_a_conversation_costs_only_what_is_new(tmp_path: Path, same_call: Any) -> None:
    writer = CallWriter(tmp_path)
    sizes = []
    for each in conversation(30):
        before = writer.bytes_written
        writer.write(each)
        sizes.append(writer.bytes_written - before)
    assert sizes[-1] < sizes[0]  # although the conversation is thirty times as long
    assert all(map(same_call, conversation(30), read_calls(tmp_path)))


def test_a_long_call_stays_under_3_kb(tmp_path: Path) -> None:
    # 500 prompt ids and 128 new ones that repeat nothing, 3 KB of messages: a session's first call
    rng, writer = np.random.default_rng(0), CallWriter(tmp_path)
    for number in range(50):
        text = "".join(map(chr, rng.integers(97, 123, 400)))
        said = ({"role": "user", "content": f"game {number} " + "Answer with one short sentence. " * 90},)
        writer.write(
            Call(
                f"s{number}", 0, prompt_ids=rng.integers(0, 2048, 500, dtype=np.int32),
                token_ids=rng.integers(0, 2048, 128, dtype=np.int32),
                logprobs=rng.standard_normal(128).astype(np.float32), messages=said, reply=text,
            )
        )  # fmt: skip
    assert writer.bytes_written / 50 < 3000


def test_each_writer_and_each_full_part_begins_a_new_one(tmp_path: Path, same_call: Any) -> None:
    every = list(conversation(12))
    for some in (every[:6], every[6:]):
        writer = CallWriter(tmp_path, part_bytes=1500)
        for each in some:
            writer.write(each)
        writer.close()
    assert len(parts(tmp_path)) > 2
    assert all(map(same_call, every, read_calls(tmp_path)))


def test_forgotten_sessions_are_written_whole(tmp_path: Path, same_call: Any) -> None:
    every = list(itertools.chain.from_iterable(zip(*(conversation(4, f"s{i}") for i in range(5)), strict=True)))
    writer = CallWriter(tmp_path, remembered=2)
    for each in every:
        writer.write(each)
    assert all(map(same_call, every, read_calls(tmp_path)))


def test_a_torn_last_call_is_set_aside_wherever_it_is_torn(tmp_path: Path, same_call: Any, capsys: Any) -> None:
    every = list(conversation(3))
    writer = CallWriter(tmp_path)
    ends = []
    for each in every:
        writer.write(each)
        ends.append(writer.bytes_written)
    (part,) = parts(tmp_path)
    whole = part.read_bytes()
    for size in range(ends[1] + 1, ends[2]):
        part.write_bytes(whole[:size])
        back = read_calls(tmp_path)
        assert len(back) == 2
        assert all(map(same_call, every, back))
        assert "is torn" in capsys.readouterr().err
    part.write_bytes(whole[: ends[1]] + bytes(50))  # as some file systems leave it
    assert len(read_calls(tmp_path)) == 2
    assert "is torn" in capsys.readouterr().err
    part.write_bytes(whole[: ends[1]])
    assert len(read_calls(tmp_path)) == 2
    assert capsys.readouterr().err == ""


def test_a_part_without_a_call_is_no_error(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "part-000001.calls").write_bytes(MAGIC[:3])
    assert read_calls(tmp_path) == []
    assert "left by a crash" in capsys.readouterr().err


def test_damage_inside_a_part_is_an_error_with_its_place(tmp_path: Path) -> None:
    writer = CallWriter(tmp_path)
    for each in conversation(3):
        writer.write(each)
    (part,) = parts(tmp_path)
    data = bytearray(part.read_bytes())
    data[30] ^= 1
    part.write_bytes(data)
    with pytest.raises(DataError, match=r"part-000001.calls: damaged at byte 8"):
        read_calls(tmp_path)


def test_a_full_disk_ends_the_recording(tmp_path: Path) -> None:
    every = list(conversation(40))
    writer = CallWriter(tmp_path)
    writer.write(every[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (writer.bytes_written + 300, hard))
    try:
        with pytest.raises(RunError, match="could not be recorded") as failure:
            list(map(writer.write, every[1:]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(RunError) as again:  # also when there is room again
        writer.write(every[-1])
    assert again.value is failure.value
    assert writer.failure is failure.value
    assert len(read_calls(tmp_path)) >= 1


def test_a_directory_that_cannot_be_made_is_a_run_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="could not be recorded"):
        CallWriter(tmp_path / "file" / "calls").write(next(conversation(1)))


KILLED = """
import sys
sys.path.insert(0, sys.argv[2])
from test_callfiles import conversation
from socialrl_cli.callfiles import CallWriter
writer = CallWriter(sys.argv[1])
for call in conversation(100_000):
    writer.write(call)
    print(call.index, flush=True)
"""


def test_nothing_written_is_lost_to_kill_9(tmp_path: Path, same_call: Any) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path), str(Path(__file__).parent)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    for _ in range(20):
        child.stdout.readline()
    time.sleep(0.05)
    os.kill(child.pid, signal.SIGKILL)
    acknowledged = 20 + len(child.stdout.read().split("\n")) - 1
    child.wait()
    child.stdout.close()
    back = read_calls(tmp_path)
    assert len(back) in (acknowledged, acknowledged + 1)
    assert all(map(same_call, conversation(len(back)), back))
