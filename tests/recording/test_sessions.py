"""Segments by exact prefix: nothing trained twice, nothing lost without a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from socialrl_cli.calls import Call
from socialrl_cli.sessions import Counters, segments

ASK = {"role": "user", "content": "q"}
SAY = {"role": "assistant", "content": "a"}


def test_two_turns_are_one_segment(call: Any) -> None:
    # prompt 1 2 3, reply 4 5; then 1 2 3 4 5 and 6 7 of the counterpart, reply 8
    first, second = call([1, 2, 3], [4, 5], policy_version=7), call([1, 2, 3, 4, 5, 6, 7], [8], 1, policy_version=8)
    found, counters = segments([first, second])
    assert len(found) == 1
    assert found[0].token_ids.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert found[0].prompt_len == 3
    assert found[0].loss_mask.tolist() == [False] * 3 + [True] * 2 + [False] * 2 + [True]
    assert found[0].logprobs.tolist() == [0, 0, 0, -0.5, -1.5, 0, 0, -0.5]
    assert [(s.start, s.end, s.turn, s.policy_version) for s in found[0].spans] == [(3, 5, 0, 7), (7, 8, 1, 8)]
    assert counters == Counters(continued=1, trained=3)


def test_tokens_encoded_anew_are_drift_with_its_distance(call: Any) -> None:
    # the reply 4 5 6 comes back as 4 9: two of its tokens are not carried
    first = call([1, 2, 3], [4, 5, 6], messages=(ASK,), reply="a")
    second = call([1, 2, 3, 4, 9, 7], [8], 1, messages=(ASK, SAY, ASK))
    found, counters = segments([first, second])
    assert [s.token_ids.tolist() for s in found] == [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 9, 7, 8]]
    assert [s.loss_mask.sum() for s in found] == [3, 1]
    assert counters == Counters(drifted=1, max_drift=2, trained=4)


def test_a_shortened_history_starts_again(call: Any) -> None:
    first = call([1, 2, 3], [4], messages=(ASK,), reply="a")
    second = call([1, 9], [8], 1, messages=({"role": "user", "content": "summary"},))
    assert segments([first, second])[1] == Counters(restarted=1, trained=2)


def test_the_same_question_twice_is_two_segments(call: Any) -> None:
    first, second = call([1, 2], [4], messages=(ASK,)), call([1, 2], [5], 1, messages=(ASK,))
    found, counters = segments([first, second])
    assert [s.token_ids.tolist() for s in found] == [[1, 2, 4], [1, 2, 5]]
    assert counters == Counters(restarted=1, trained=2)


def test_a_failed_call_leaves_the_conversation_as_it_was(call: Any) -> None:
    failed = Call("s", 1, error="EngineError: gone")
    found, counters = segments([call([1], [2]), failed, call([1, 2, 3], [4], 2)])
    assert [s.token_ids.tolist() for s in found] == [[1, 2, 3, 4]]
    assert [s.turn for s in found[0].spans] == [0, 2]
    assert counters == Counters(continued=1, trained=2, untrained={"error": 0})


def test_every_untrained_token_has_its_reason(call: Any) -> None:
    calls = [
        call([1], [2, 3], temperature=0.0),
        Call("s", 1, completion_tokens=5),
        call([1], [7, 7, 7], 2, logprobs=np.zeros(2, np.float32)),
        call([1, 2, 3, 4], [5], 3),
        call([1, 2, 3, 4], [6, 6], 4, kind="probe"),
    ]
    found, counters = segments(calls)
    assert [s.loss_mask.tolist() for s in found] == [[False] * 4 + [True]]
    assert counters == Counters(continued=1, trained=1, untrained={"greedy": 2, "mismatch": 3, "no_ids": 5})
    probes, counted = segments(calls, "probe")
    assert [s.loss_mask.any() for s in probes] == [False]
    assert counted == Counters(untrained={"probe": 2})


def test_calls_count_by_arrival_whatever_their_order(call: Any) -> None:
    first, second = call([1], [2]), call([1, 2, 3], [4], 1)
    assert segments([second, first])[1] == segments([first, second])[1]


def test_counters_add_up() -> None:
    total = Counters(1, 2, 3, 4, 5, {"error": 1}) + Counters(10, 20, 30, 2, 50, {"error": 2, "greedy": 7})
    assert total == Counters(11, 22, 33, 4, 55, {"error": 3, "greedy": 7})


steps = st.lists(
    st.tuples(
        st.sampled_from(["continue", "drift", "restart", "error", "greedy", "probe", "no_ids", "mismatch"]),
        st.lists(st.integers(0, 9), max_size=4),  # context before the reply
        st.lists(st.integers(0, 9), max_size=4),  # the reply
    ),
    max_size=12,
)


@given(steps)
def test_each_sampled_token_is_trained_once_or_counted(plan: list) -> None:
    calls, past, rng = [], np.empty(0, np.int32), np.random.default_rng(0)
    for index, (what, context, said) in enumerate(plan):
        reply = np.array(said, np.int32)
        if what == "drift":
            past = past[: len(past) // 2]
        elif what == "restart":
            past = np.array([99], np.int32)
        prompt = np.concatenate((past, np.array([50, *context], np.int32)))
        logprobs = rng.standard_normal(len(reply)).astype(np.float32)
        fields: dict[str, Any] = {"prompt_ids": prompt, "token_ids": reply, "logprobs": logprobs}
        if what == "error":
            fields = {"error": "gone"}
        elif what == "no_ids":
            fields = {"completion_tokens": len(reply)}
        elif what == "mismatch":
            fields["logprobs"] = np.zeros(len(reply) + 1, np.float32)
        calls.append(
            Call("s", index, kind="probe" if what == "probe" else "play", temperature=float(what != "greedy"), **fields)
        )
        if what in ("continue", "drift", "restart", "greedy"):
            past = calls[-1].full_ids()
    found, counters = segments(calls)
    play = [c for c in calls if c.kind == "play"]
    whole = [c for c in play if c.token_ids is not None and len(c.logprobs) == len(c.token_ids)]

    sampled = sum(c.completion_tokens if c.token_ids is None else len(c.token_ids) for c in play)
    assert counters.trained + sum(counters.untrained.values()) == sampled
    assert sum(int(s.loss_mask.sum()) for s in found) == counters.trained
    spans = [(segment, span) for segment in found for span in segment.spans]
    assert [span.turn for _, span in spans] == [play.index(c) for c in whole]  # every call in exactly one place
    for (segment, span), each in zip(spans, whole, strict=True):
        assert segment.token_ids[: span.start].tolist() == each.prompt_ids.tolist()  # in its own context
        assert segment.token_ids[span.start : span.end].tolist() == each.token_ids.tolist()
        assert segment.logprobs[span.start : span.end].tolist() == each.logprobs.tolist()
        assert segment.loss_mask[span.start : span.end].all() == (each.temperature > 0 or not len(each.token_ids))
    for segment in found:
        outside = np.ones(len(segment.token_ids), bool)
        for span in segment.spans:
            outside[span.start : span.end] = False
        assert not segment.loss_mask[outside].any()
        assert segment.prompt_len == segment.spans[0].start
    assert counters.continued + counters.drifted + counters.restarted == max(0, len(whole) - 1)
