"""An episode's seat → rows of the buffer: one for each segment of its calls, or one of its messages.

Rows to train on have the token columns; those of scripted or text-only play have `messages` (JSON) and null token
columns, as has the one row of an episode that failed before it said anything. Every row repeats the seat's reward.
The calls of probes become rows of kind `probe`, whose tokens are never trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from socialrl_cli.calls import Call
from socialrl_cli.sessions import Segment, segments

TOKEN_COLUMNS = ("token_ids", "loss_mask", "behaviour_logprobs")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRecord:
    """What one seat of one episode was and earned; `calls` of a model, or `messages` of a scripted seat."""

    run: str
    episode_id: str
    env: str
    scenario_id: str
    split: str
    seat: str
    agent: str
    opponent: str
    reward: float | None
    utility: float | None
    status: str
    session_key: str = ""
    world: int | None = None
    pair_id: str | None = None
    group_id: str | None = None
    sample: int = 0
    calls: Sequence[Call] | None = None
    messages: Sequence[Mapping[str, Any]] | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    turn_probes: Sequence[Mapping[str, Any]] = ()  # each {"turn", "name", "value"}
    reward_parts: Mapping[str, float] = field(default_factory=dict)
    outcome: Mapping[str, Any] = field(default_factory=dict)
    policy_version: int = 0  # where no call says it
    error: str | None = None
    started_at: float = 0.0
    finished_at: float = 0.0
    kind: str = "play"


def rows(record: EpisodeRecord) -> list[dict[str, Any]]:
    """The record as rows of SCHEMA: its segments, then its probes' calls; one row without tokens if it has none."""
    calls = record.calls or ()
    play, probes = segments(calls)[0], segments(calls, "probe")[0]
    common = _common(record, calls)
    if record.kind == "probe":
        play, probes = [], [*play, *probes]
    out = [_token_row(common, record, segment, i, len(play)) for i, segment in enumerate(play)]
    if not out and record.kind == "play":
        out = _message_rows(common, record, calls)
    return out + [
        {**_token_row(common, record, segment, i, len(probes)), "kind": "probe", "turn_probes": None}
        for i, segment in enumerate(probes)
    ]


def _common(record: EpisodeRecord, calls: Sequence[Call]) -> dict[str, Any]:
    outcome = record.outcome
    return {
        **{name: getattr(record, name) for name in ("run", "episode_id", "kind", "env", "scenario_id", "world")},
        **{name: getattr(record, name) for name in ("pair_id", "group_id", "sample", "split", "seat", "agent")},
        **{name: getattr(record, name) for name in ("opponent", "reward", "utility", "status", "error")},
        **{name: getattr(record, name) for name in ("started_at", "finished_at", "policy_version")},
        "session_key": record.session_key or (calls[0].session if calls else ""),
        "turn_probes": [{**probe, "value": _json(probe.get("value"))} for probe in record.turn_probes],
        "reward_parts": sorted(record.reward_parts.items()),
        "outcome": {
            "status": outcome.get("status"),
            "by": outcome.get("by"),
            "agreement": _json(outcome.get("agreement")),
        },
    }


def _token_row(common: dict, record: EpisodeRecord, segment: Segment, number: int, count: int) -> dict[str, Any]:
    return {
        **common,
        "policy_version": min((span.policy_version for span in segment.spans), default=record.policy_version),
        "segment": number,
        "n_segments": count,
        "token_ids": segment.token_ids,
        "prompt_len": segment.prompt_len,
        "loss_mask": segment.loss_mask,
        "behaviour_logprobs": segment.logprobs,
        "call_spans": [
            {name: getattr(span, name) for name in ("start", "end", "turn", "policy_version", "temperature", "grammar")}
            for span in segment.spans
        ],
        "messages": _json(segment.last.conversation()),
        "tools": _json(segment.last.tools),
    }


def _message_rows(common: dict, record: EpisodeRecord, calls: Sequence[Call]) -> list[dict[str, Any]]:
    """Rows without tokens: the given messages, or each conversation among the calls, or one that is only a status."""
    talks: list[tuple[Any, Any]] = []
    if record.messages is not None:
        talks = [(record.messages, record.tools)]
    answered = sorted((c for c in calls if c.kind == "play" and c.error is None), key=lambda call: call.index)
    for call, following in zip(answered, [*answered[1:], None], strict=False):  # none: nothing to pair
        if following is None or list(following.messages[: len(call.messages)]) != list(call.messages):
            talks.append((call.conversation(), call.tools))
    versions = [call.policy_version for call in answered]
    common = {**common, "policy_version": min(versions, default=record.policy_version)}
    empty = dict.fromkeys((*TOKEN_COLUMNS, "prompt_len", "call_spans"))
    return [
        {**common, **empty, "segment": i, "n_segments": len(talks), "messages": _json(talk), "tools": _json(tools)}
        for i, (talk, tools) in enumerate(talks or [(None, record.tools)])
    ]


def _json(value: Any) -> str | None:
    return None if value is None else orjson.dumps(value, _plain, orjson.OPT_NON_STR_KEYS).decode()


def _plain(value: Any) -> Any:
    """What orjson does not know: mappings of other kinds."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
