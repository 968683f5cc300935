"""The recorder in process: on disk before the answer leaves, exact tokens, nothing recorded twice."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scenarios.errors import EngineError, ModelError, RunError, UsageError
from socialrl_cli.callfiles import read_calls
from socialrl_cli.recorder import Recorder
from socialrl_cli.requests import NEUTRAL, Refused
from socialrl_cli.sessions import segments

OPENING = [{"role": "system", "content": "be fair"}, {"role": "user", "content": "hello there"}]


def ask(messages: Any = OPENING, **fields: Any) -> dict[str, Any]:
    return {"model": "policy", "messages": messages, "max_tokens": 16, **fields}


def content(answer: dict) -> str:
    return answer["choices"][0]["message"]["content"]


def onwards(messages: list, answer: dict, text: str = "go on") -> list:
    return [*messages, {"role": "assistant", "content": content(answer)}, {"role": "user", "content": text}]


async def test_a_call_is_on_disk_when_its_answer_arrives(tmp_path: Path, scripted: Any, reply: Any) -> None:
    engine = scripted([reply("I propose one book", bytewise=True)])
    recorder = Recorder(engine, tmp_path)
    answer = await recorder.chat("k", ask(temperature=0.7, seed=5))
    (call,) = read_calls(tmp_path)
    assert content(answer) == call.reply == "I propose one book"
    assert call.prompt_ids.tolist() == engine.asked[0]["prompt_token_ids"] == recorder.renderer.render(OPENING)
    assert call.token_ids.tolist() == reply("I propose one book", bytewise=True)[0]
    assert call.logprobs.tobytes() == (-np.arange(1, 20, dtype=np.float32) / 7).tobytes()
    assert (call.session, call.index, call.kind, call.temperature, call.policy_version) == ("k", 0, "play", 0.7, 3)
    assert (call.finish_reason, call.error, list(call.messages)) == ("stop", None, OPENING)
    assert (call.params["seed"], call.params["max_tokens"]) == (5, 16)
    assert call.started_at <= call.finished_at
    assert [c.index for c in recorder.finish("k")] == [0]
    assert recorder.finish("k") == []


async def test_an_answer_has_only_what_was_asked_for(tmp_path: Path, scripted: Any, reply: Any) -> None:
    recorder = Recorder(scripted([reply("deal")] * 4), tmp_path)
    plain = await recorder.chat("k", ask())
    ids = await recorder.chat("k", ask(return_token_ids=True))
    logprobs = await recorder.chat("k", ask(logprobs=True))
    both = await recorder.chat("k", ask(logprobs=True, return_token_ids=True))
    assert not {"prompt_token_ids", "policy_version"} & plain.keys()
    assert plain["choices"][0].keys() == {"index", "message", "finish_reason", "logprobs"}
    assert plain["choices"][0]["logprobs"] is None
    assert ids["choices"][0]["token_ids"] == reply("deal")[0]
    assert ids["choices"][0]["logprobs"] is None
    assert "token_ids" not in logprobs["choices"][0]
    assert len(logprobs["choices"][0]["logprobs"]["content"]) == len(reply("deal")[0])
    assert "prompt_token_ids" in both
    assert both["choices"][0]["token_ids"] == reply("deal")[0]
    assert both["choices"][0]["logprobs"] is not None
    assert len({call.logprobs.tobytes() for call in read_calls(tmp_path)}) == 1  # recorded alike, however asked


async def test_answers_that_ended_at_their_limit_are_counted(tmp_path: Path, scripted: Any, reply: Any) -> None:
    recorder = Recorder(scripted([reply("deal"), reply("I prop", finish="length")]), tmp_path)
    await recorder.chat("k", ask())
    assert recorder.counters.truncated == 0
    await recorder.chat("k", ask())
    assert (recorder.counters.calls, recorder.counters.truncated) == (2, 1)


async def test_neutral_sampling_is_sent_in_words(tmp_path: Path, scripted: Any, reply: Any) -> None:
    engine = scripted([reply("deal")])
    await Recorder(engine, tmp_path).chat("k", ask(stream=True, stream_options={}, top_p=1, top_k=0))
    sent = engine.asked[0]
    assert {name: sent[name] for name in NEUTRAL} == dict(NEUTRAL)
    assert sent["temperature"] == 1.0
    assert sent["return_token_ids"] is True
    assert "stream" not in sent


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("top_p", 0.9), ("top_k", 40), ("min_p", 0.1), ("n", 2), ("logit_bias", {"5": -100}), ("presence_penalty", 0.5),
        ("frequency_penalty", -0.1), ("repetition_penalty", 1.1), ("best_of", 3), ("min_tokens", 4),
        ("bad_words", ["no"]), ("allowed_token_ids", [1]), ("use_beam_search", True), ("typical_p", 0.5),
        ("temperature", -1), ("temperature", "hot"), ("temperature", float("nan")), ("messages", []),
        ("messages", "hello"), ("messages", [{"content": "x"}]), ("chat_template", "{{ 1 }}"),
        ("chat_template_kwargs", {"enable_thinking": False}), ("add_generation_prompt", False),
    ],
)  # fmt: skip
async def test_what_would_bend_the_record_is_refused_by_name(
    tmp_path: Path, scripted: Any, field: str, value: Any
) -> None:
    engine = scripted([])
    recorder = Recorder(engine, tmp_path)
    with pytest.raises(Refused, match=field) as refused:
        await recorder.chat("k", ask(**{field: value}) if field != "messages" else {"messages": value})
    assert refused.value.field == field
    assert engine.asked == []
    assert recorder.counters.refused == 1
    assert read_calls(tmp_path) == []


async def test_distillation_takes_any_sampling_and_any_engine(tmp_path: Path, scripted: Any, reply: Any) -> None:
    engine = scripted([reply("deal")], token_input=False, ids=False)
    recorder = Recorder(engine, tmp_path, mode="distill")
    answer = await recorder.chat("k", ask(top_p=0.5))
    assert content(answer) == "deal"
    assert engine.asked[0]["top_p"] == 0.5
    assert not {"return_token_ids", "logprobs", "top_k", "temperature"} & engine.asked[0].keys()
    (call,) = read_calls(tmp_path)
    assert (call.prompt_ids, call.token_ids, call.logprobs, call.reply) == (None, None, None, "deal")
    assert call.params["top_p"] == 0.5
    assert segments([call])[1].untrained == {"no_ids": 3}  # two of text and the stop


async def test_an_engine_without_token_ids_is_refused_for_training(tmp_path: Path, scripted: Any, reply: Any) -> None:
    recorder = Recorder(scripted([reply("deal")], token_input=False, ids=False), tmp_path)
    with pytest.raises(EngineError, match=r"no prompt_token_ids and no token_ids and no logprobs.*distill"):
        await recorder.chat("k", ask())
    assert "no prompt_token_ids" in read_calls(tmp_path)[0].error


async def test_lengths_that_differ_are_an_error(tmp_path: Path, scripted: Any, reply: Any) -> None:
    whole = scripted([reply("deal")])
    response = await whole.chat(ask(logprobs="tokens"))
    response["choices"][0]["token_logprobs"].pop()
    recorder = Recorder(scripted([response]), tmp_path)
    with pytest.raises(EngineError, match="3 token ids, 2 log-probabilities and 3 counted tokens"):
        await recorder.chat("k", ask())
    (call,) = recorder.finish("k")
    assert call.token_ids.tolist() == reply("deal")[0]  # kept, and not trained on
    assert segments([call])[1].untrained == {"error": 3}


@pytest.mark.parametrize("response", [{}, {"choices": []}, {"choices": [{}]}, {"choices": [{"message": None}]}])
async def test_an_answer_that_is_none_is_an_error(tmp_path: Path, scripted: Any, response: dict) -> None:
    recorder = Recorder(scripted([response]), tmp_path)
    with pytest.raises(EngineError, match="not a chat completion"):
        await recorder.chat("k", ask())
    assert read_calls(tmp_path)[0].error is not None


async def test_a_conversation_keeps_its_ids_turn_after_turn(tmp_path: Path, scripted: Any, reply: Any) -> None:
    said = ["I propose one book", "no", "please deal"]
    engine = scripted([reply(text, bytewise=True) for text in said])
    recorder = Recorder(engine, tmp_path)
    messages = OPENING
    for _ in said:
        messages = onwards(messages, await recorder.chat("k", ask(messages)))
    assert (recorder.counters.continued, recorder.counters.drifted, recorder.counters.restarted) == (2, 0, 0)
    found, counters = segments(recorder.finish("k"))
    assert len(found) == 1
    assert counters.trained == sum(len(reply(text, bytewise=True)[0]) for text in said)
    assert found[0].token_ids[found[0].loss_mask].tolist() == [
        i for text in said for i in reply(text, bytewise=True)[0]
    ]


async def test_text_engines_drift_where_the_split_was_unusual(tmp_path: Path, scripted: Any, reply: Any) -> None:
    # "I propose one book" byte by byte is 18 tokens and a stop; encoded anew it shares fewer of them
    engine = scripted([reply("I propose one book", bytewise=True), reply("no")], token_input=False)
    recorder = Recorder(engine, tmp_path)
    messages = onwards(OPENING, await recorder.chat("k", ask()))
    await recorder.chat("k", ask(messages))
    assert recorder.counters.drifted == 1
    assert 0 < recorder.counters.max_drift <= 19
    assert segments(recorder.finish("k"))[1].max_drift == recorder.counters.max_drift


async def test_a_rewritten_history_restarts(tmp_path: Path, scripted: Any, reply: Any) -> None:
    recorder = Recorder(scripted([reply("yes"), reply("no")]), tmp_path)
    await recorder.chat("k", ask())
    await recorder.chat("k", ask([{"role": "user", "content": "a summary"}]))
    assert (recorder.counters.restarted, recorder.counters.drifted) == (1, 0)


async def test_a_probe_stands_outside_the_conversation(tmp_path: Path, scripted: Any, reply: Any) -> None:
    recorder = Recorder(scripted([reply("one book"), reply("a plan"), reply("deal")]), tmp_path)
    messages = onwards(OPENING, await recorder.chat("k", ask()))
    await recorder.chat("k", ask(onwards(messages[:-1], {"choices": [{"message": {"content": "x"}}]})), kind="probe")
    await recorder.chat("k", ask(messages))
    calls = recorder.finish("k")
    assert [call.kind for call in calls] == ["play", "probe", "play"]
    assert len(segments(calls)[0]) == 1
    assert recorder.counters.continued == 1


@pytest.mark.parametrize("error", [EngineError("the engine died"), ModelError("too long"), UsageError("no such field")])
async def test_a_failed_call_is_recorded_and_raised_as_it_is(
    tmp_path: Path, scripted: Any, reply: Any, error: Exception
) -> None:
    recorder = Recorder(scripted([error, reply("deal")]), tmp_path)
    with pytest.raises(type(error), match=str(error)):
        await recorder.chat("k", ask())
    await recorder.chat("k", ask())
    failed, fine = recorder.finish("k")
    assert failed.error == f"{type(error).__name__}: {error}"
    assert fine.error is None
    assert [c.error for c in read_calls(tmp_path)] == [failed.error, None]
    assert (recorder.counters.calls, recorder.counters.errors) == (2, 1)


async def test_an_unforeseen_failure_is_an_engine_error(tmp_path: Path, scripted: Any) -> None:
    recorder = Recorder(scripted([ZeroDivisionError("by zero")]), tmp_path)
    with pytest.raises(EngineError, match="scripted-engine: the call failed: ZeroDivisionError"):
        await recorder.chat("k", ask())


async def test_a_cancelled_call_is_recorded_as_such(tmp_path: Path, scripted: Any, reply: Any) -> None:
    engine = scripted([reply("deal")])
    engine.gate = asyncio.Event()
    recorder = Recorder(engine, tmp_path)
    task = asyncio.create_task(recorder.chat("k", ask()))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert read_calls(tmp_path)[0].error == "cancelled"


async def test_a_retry_gets_the_first_answer_and_is_recorded_once(tmp_path: Path, scripted: Any, reply: Any) -> None:
    recorder = Recorder(scripted([reply("one"), reply("two")]), tmp_path)
    first = await recorder.chat("k", ask(), idempotency_key="x")
    again = await recorder.chat("k", ask(), idempotency_key="x")
    other = await recorder.chat("k", ask(), idempotency_key="y")
    assert first == again
    assert content(other) == "two"
    assert (recorder.counters.calls, recorder.counters.retries) == (2, 1)
    assert len(read_calls(tmp_path)) == 2


async def test_a_retry_while_the_first_try_runs_waits_for_it(tmp_path: Path, scripted: Any, reply: Any) -> None:
    engine = scripted([reply("one"), reply("two")])
    engine.gate = asyncio.Event()
    recorder = Recorder(engine, tmp_path)
    first = asyncio.create_task(recorder.chat("k", ask(), idempotency_key="x"))
    await asyncio.sleep(0.01)
    first.cancel()  # its client gave up waiting
    second = asyncio.create_task(recorder.chat("k", ask(), idempotency_key="x"))
    await asyncio.sleep(0.01)
    engine.gate.set()
    assert content(await second) == "one"
    assert len(read_calls(tmp_path)) == 1
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_retry_of_a_failed_try_is_asked_anew(tmp_path: Path, scripted: Any, reply: Any) -> None:
    recorder = Recorder(scripted([EngineError("busy"), reply("one")]), tmp_path)
    with pytest.raises(EngineError, match="busy"):
        await recorder.chat("k", ask(), idempotency_key="x")
    assert content(await recorder.chat("k", ask(), idempotency_key="x")) == "one"


async def test_a_first_try_is_no_retry_whatever_its_key(tmp_path: Path, scripted: Any, reply: Any) -> None:
    recorder = Recorder(scripted([reply("one"), reply("two")]), tmp_path)
    await recorder.chat("k", ask(), idempotency_key="x", first_try=True)
    second = await recorder.chat("k", ask(), idempotency_key="x", first_try=True)
    again = await recorder.chat("k", ask(), idempotency_key="x")
    assert content(second) == content(again) == "two"


async def test_a_key_with_another_body_is_refused(tmp_path: Path, scripted: Any, reply: Any) -> None:
    recorder = Recorder(scripted([reply("one")]), tmp_path)
    await recorder.chat("k", ask(), idempotency_key="x")
    with pytest.raises(Refused, match="another body"):
        await recorder.chat("k", ask(max_tokens=1), idempotency_key="x")


async def test_sessions_do_not_mix(tmp_path: Path, scripted: Any, reply: Any, same_call: Any) -> None:
    recorder = Recorder(scripted([reply(f"{n} books") for n in range(60)]), tmp_path)

    async def play(key: str) -> None:
        messages = OPENING
        for _ in range(6):
            messages = onwards(messages, await recorder.chat(key, ask(messages)))

    await asyncio.gather(*(play(f"s{n}") for n in range(10)))
    on_disk = read_calls(tmp_path)
    for n in range(10):
        calls = recorder.finish(f"s{n}")
        assert [call.index for call in calls] == list(range(6))
        assert all(map(same_call, calls, [call for call in on_disk if call.session == f"s{n}"]))
        assert len(segments(calls)[0]) == 1
    assert recorder.counters.continued == 50


async def test_overlapping_calls_of_a_session_are_numbered_by_arrival(
    tmp_path: Path, scripted: Any, reply: Any
) -> None:
    engine = scripted([reply("slow"), reply("quick")])
    gate, open_gate = asyncio.Event(), asyncio.Event()
    open_gate.set()
    recorder = Recorder(engine, tmp_path)
    engine.gate = gate
    slow = asyncio.create_task(recorder.chat("k", ask()))
    await asyncio.sleep(0.01)
    engine.gate = open_gate
    await recorder.chat("k", ask())
    gate.set()
    await slow
    assert [(c.index, c.reply) for c in read_calls(tmp_path)] == [(1, "quick"), (0, "slow")]
    assert [c.reply for c in recorder.finish("k")] == ["slow", "quick"]


async def test_an_open_session_is_not_opened_again(tmp_path: Path, scripted: Any) -> None:
    recorder = Recorder(scripted([]), tmp_path)
    recorder.open("k")
    with pytest.raises(ValueError, match="open already"):
        recorder.open("k")


async def test_a_finished_session_takes_no_more_calls_until_it_is_opened_again(
    tmp_path: Path, scripted: Any, reply: Any
) -> None:
    recorder = Recorder(scripted([reply("one"), reply("two")]), tmp_path)
    await recorder.chat("k", ask())
    recorder.finish("k")
    with pytest.raises(Refused, match="is finished") as late:
        await recorder.chat("k", ask())
    assert late.value.status == 410
    recorder.open("k")
    await recorder.chat("k", ask())
    assert [call.index for call in recorder.finish("k")] == [0]


async def test_finishing_gives_up_what_is_under_way(tmp_path: Path, scripted: Any, reply: Any) -> None:
    engine = scripted([reply("one")])
    engine.gate = asyncio.Event()
    recorder = Recorder(engine, tmp_path)
    waiting = asyncio.create_task(recorder.chat("k", ask(), idempotency_key="x"))
    await asyncio.sleep(0.01)
    recorder.finish("k")
    with pytest.raises(Refused, match="is finished"):
        await waiting
    assert [call.error for call in read_calls(tmp_path)] == ["cancelled"]


async def test_ids_that_are_none_are_an_error(tmp_path: Path, scripted: Any, reply: Any) -> None:
    response = await scripted([reply("deal")]).chat(ask(logprobs="tokens"))
    response["choices"][0]["token_ids"] = [5, -1, 1]
    with pytest.raises(EngineError, match=r"not a chat completion.*token ids must be"):
        await Recorder(scripted([response]), tmp_path).chat("k", ask())


async def test_what_cannot_be_written_gets_no_answer(tmp_path: Path, scripted: Any, reply: Any) -> None:
    recorder = Recorder(scripted([reply("one"), reply("two")], token_input=False), tmp_path)
    with pytest.raises(Refused, match="recorded as JSON"):
        await recorder.chat("k", ask([{"role": "user", "content": "hello", "extra": {1, 2}}]))
    assert recorder.failure is None
    assert content(await recorder.chat("k", ask())) == "two"
    assert [call.reply for call in read_calls(tmp_path)] == ["two"]


async def test_closing_gives_up_what_is_under_way_without_a_trace(tmp_path: Path, scripted: Any, reply: Any) -> None:
    engine = scripted([reply("one"), reply("two")])
    recorder = Recorder(engine, tmp_path)
    await recorder.chat("k", ask())
    engine.gate = asyncio.Event()
    waiting = asyncio.create_task(recorder.chat("k", ask(), idempotency_key="x"))
    await asyncio.sleep(0.01)
    recorder.close()
    with pytest.raises(Refused):
        await waiting
    assert len(read_calls(tmp_path)) == 1
    assert len(list(tmp_path.iterdir())) == 1


async def test_a_stand_alone_recorder_forgets_sessions_but_not_their_numbers(
    tmp_path: Path, scripted: Any, reply: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("socialrl_cli.recorder.KEPT_SESSIONS", 2)
    recorder = Recorder(scripted([reply("deal")] * 5), tmp_path, keep=False)
    for key in ("a", "b", "c", "d", "a"):
        await recorder.chat(key, ask())
    assert len(recorder._sessions) == 2
    assert [(call.session, call.index) for call in read_calls(tmp_path)] == [
        ("a", 0), ("b", 0), ("c", 0), ("d", 0), ("a", 1),
    ]  # fmt: skip
    assert recorder.finish("a") == []


async def test_a_full_disk_stops_the_run_and_no_answer_leaves(tmp_path: Path, scripted: Any, reply: Any) -> None:
    engine = scripted([reply("one")] * 3)
    recorder = Recorder(engine, tmp_path)
    await recorder.chat("k", ask())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (recorder.writer.bytes_written + 50, hard))
    try:
        with pytest.raises(RunError, match="could not be recorded"):
            await recorder.chat("other", ask())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(RunError):
        await recorder.chat("k", ask())
    assert len(engine.asked) == 2  # the third was not even asked
    with pytest.raises(RunError):
        recorder.finish("k")
    assert recorder.failure is not None


async def test_a_grammar_has_a_name_that_stands_for_its_text(tmp_path: Path, scripted: Any, reply: Any) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "move", "schema": {"type": "object"}}}
    recorder = Recorder(scripted([reply("{}")] * 4), tmp_path)
    for fields in ({"response_format": schema}, {"response_format": dict(schema)}, {"tool_choice": "required"}, {}):
        await recorder.chat("k", ask(**fields))
    first, same, other, none = [call.grammar for call in recorder.finish("k")]
    assert first == same != other
    assert none is None
