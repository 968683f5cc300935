"""The model calls of one session → segments to train on. Pure functions over token ids.

A call whose prompt begins with all of the previous call's prompt and reply continues the segment; the tokens between
are context. Any other call starts a new segment: it is `drifted` when the conversation goes on but its tokens do not
(a template that strips reasoning, text encoded anew), `restarted` when the conversation itself is another one
(truncated history, a summary, the same question again). Each sampled token is trained in exactly one segment, at the
place where it was sampled, and every sampled token that is not is counted with its reason:

    error    the call failed          probe    asked outside the conversation
    no_ids   no token ids came back   greedy   temperature 0 has no log-probabilities of a policy
    mismatch not one log-probability a token
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from socialrl_cli.calls import Call, shared

CONTINUED, DRIFTED, RESTARTED = "continued", "drifted", "restarted"


@dataclass(frozen=True, slots=True)
class Span:
    """The tokens [start, end) of a segment that one call sampled. `turn` is the call's place among its kind."""

    start: int
    end: int
    turn: int
    policy_version: int
    temperature: float
    grammar: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """One sequence with the tokens to train on. `last` is the call that ends it."""

    token_ids: np.ndarray  # (T,) int32
    prompt_len: int  # tokens before the first sampled one
    loss_mask: np.ndarray  # (T,) bool, True at trained tokens
    logprobs: np.ndarray  # (T,) float32, 0 where nothing was sampled
    spans: tuple[Span, ...]
    last: Call


@dataclass(frozen=True, slots=True)
class Counters:
    """How a session's calls follow each other; `max_drift` and `untrained` are in tokens."""

    continued: int = 0
    drifted: int = 0
    restarted: int = 0
    max_drift: int = 0
    trained: int = 0
    untrained: dict[str, int] = field(default_factory=dict)

    def __add__(self, other: Counters) -> Counters:
        reasons = self.untrained.keys() | other.untrained.keys()
        return Counters(
            self.continued + other.continued,
            self.drifted + other.drifted,
            self.restarted + other.restarted,
            max(self.max_drift, other.max_drift),
            self.trained + other.trained,
            {reason: self.untrained.get(reason, 0) + other.untrained.get(reason, 0) for reason in sorted(reasons)},
        )


def relation(previous: Call, call: Call) -> tuple[str, int]:
    """How `call` follows `previous`, and how many of the earlier tokens it does not carry."""
    earlier = previous.full_ids()
    prompt = call.prompt_ids if call.prompt_ids is not None else np.empty(0, np.int32)
    lost = len(earlier) - shared(earlier, prompt)
    if lost == 0:
        return CONTINUED, 0
    return (DRIFTED if goes_on(previous, call.messages) else RESTARTED), lost


def goes_on(previous: Call, messages: Sequence) -> bool:
    """Do `messages` hold the previous call's, and an answer to them?"""
    n = len(previous.messages)
    return (
        n > 0
        and len(messages) > n
        and messages[n].get("role") == "assistant"
        and all(ours == theirs for ours, theirs in zip(messages[:n], previous.messages, strict=True))
    )


def fault(call: Call) -> str | None:
    """Why the call's tokens cannot be placed in a sequence, or None."""
    if call.error is not None:
        return "error"
    if call.prompt_ids is None or call.token_ids is None:
        return "no_ids"
    if call.logprobs is None or len(call.logprobs) != len(call.token_ids):
        return "mismatch"
    return None


def segments(calls: Iterable[Call], kind: str = "play") -> tuple[list[Segment], Counters]:
    """The calls of one session and one kind, in order, as segments. Probe tokens are never trained.

    Calls of other kinds are looked over; a call with a fault gives no segment and leaves the conversation as it was.
    """
    continued = drifted = restarted = max_drift = trained = 0
    untrained: dict[str, int] = {}
    chains: list[list[tuple[int, Call]]] = []
    asked = sorted((call for call in calls if call.kind == kind), key=lambda call: call.index)
    for turn, call in enumerate(asked):
        reason = fault(call)
        tokens = call.completion_tokens if call.token_ids is None else len(call.token_ids)
        if reason is None:
            how, lost = relation(chains[-1][-1][1], call) if chains else ("", 0)
            if how == CONTINUED:
                continued += 1
                chains[-1].append((turn, call))
            else:
                drifted, restarted = drifted + (how == DRIFTED), restarted + (how == RESTARTED)
                max_drift = max(max_drift, lost) if how == DRIFTED else max_drift
                chains.append([(turn, call)])
            reason = "probe" if kind != "play" else "greedy" if call.temperature == 0 else None
        if reason:
            untrained[reason] = untrained.get(reason, 0) + tokens
        else:
            trained += tokens
    counters = Counters(continued, drifted, restarted, max_drift, trained, dict(sorted(untrained.items())))
    return [_segment(chain, kind) for chain in chains], counters


def _segment(chain: Sequence[tuple[int, Call]], kind: str) -> Segment:
    """The last call's prompt and reply, with the place of every reply before it."""
    first, last = chain[0][1], chain[-1][1]
    token_ids = last.full_ids()
    loss_mask = np.zeros(len(token_ids), bool)
    logprobs = np.zeros(len(token_ids), np.float32)
    spans = []
    for turn, call in chain:
        assert call.prompt_ids is not None
        assert call.token_ids is not None
        start = len(call.prompt_ids)
        end = start + len(call.token_ids)
        logprobs[start:end] = call.logprobs
        loss_mask[start:end] = kind == "play" and call.temperature != 0
        spans.append(Span(start, end, turn, call.policy_version, call.temperature, call.grammar))
    assert first.prompt_ids is not None
    return Segment(token_ids, len(first.prompt_ids), loss_mask, logprobs, tuple(spans), last)
