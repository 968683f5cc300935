"""What the trainer sees of an episode: rows of exact tokens, and the flat view of a batch of them.

A `Row` is one segment of one seat. The seat's *actor tokens* are those under `loss_mask`: the ones that the policy
sampled. `ActorTokens` lays the actor tokens of a whole batch end to end, episode after episode, segment after segment:
everything that the maths needs (rewards, values, advantages) is an array of that length, and what the policy did not
write does not exist there. Legend: R rows, T tokens of a row, E episodes of one seat, K actor tokens of the batch.

Left out: how rows come to be (the buffer), and the tensors of a forward pass (`packing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from algos.grammars import Grammar
from scenarios.errors import DataError


@dataclass(frozen=True, slots=True)
class Row:
    """One segment: `token_ids`, `loss_mask`, `logprobs` (behaviour, nats) and `temperature` are aligned, (T,)."""

    episode_id: str
    env: str
    opponent: str
    seat: str
    segment: int
    token_ids: np.ndarray  # int32
    prompt_len: int
    loss_mask: np.ndarray  # bool
    logprobs: np.ndarray  # float32
    temperature: np.ndarray | float  # float32
    reward: float  # of the seat's whole episode; every row repeats it, it is paid once
    policy_version: int = 0  # the oldest that wrote a token of the row
    group_id: str | None = None
    status: str = "finished"
    agent: str = ""
    grammars: tuple[tuple[int, int, Grammar], ...] = ()  # the tokens [start, end) that were sampled under one

    @property
    def episode(self) -> tuple[str, str]:
        return self.episode_id, self.seat


@dataclass(frozen=True, slots=True)
class ActorTokens:
    """The actor tokens of a batch; row r owns `row_starts[r]:row_starts[r + 1]`, episode e the same in `starts`."""

    rows: tuple[Row, ...]  # sorted by episode, seat and segment
    row_starts: np.ndarray  # (R + 1,)
    starts: np.ndarray  # (E + 1,)
    row_episodes: np.ndarray  # (R,) which episode a row belongs to
    positions: np.ndarray  # (K,) where the token stands in its row
    ids: np.ndarray  # (K,)
    logprobs: np.ndarray  # (K,) float32, of the policy that sampled them
    temperatures: np.ndarray  # (K,) float32
    rewards: np.ndarray  # (K,) float64: each episode's reward on its last actor token, 0 elsewhere

    @property
    def episodes(self) -> np.ndarray:
        """Which episode a token belongs to, (K,)."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def rows_of(self, episodes: Sequence[int] | np.ndarray) -> list[int]:
        """The rows of these episodes, episode after episode."""
        first = np.searchsorted(self.row_episodes, np.arange(len(self.starts)))
        return [r for e in episodes for r in range(first[e], first[e + 1])]

    def tokens_of(self, rows: Sequence[int]) -> np.ndarray:
        """The indices (within K) of these rows' actor tokens, row after row."""
        return np.concatenate([np.arange(self.row_starts[r], self.row_starts[r + 1]) for r in rows])


def actor_tokens(rows: Sequence[Row]) -> ActorTokens:
    """Lay out a batch, sorted by episode, seat and segment, so that it does not matter who finished first.

    The rows of an episode without a single actor token are left out.
    Raises DataError for rows that cannot be right: lengths that differ, a token without a predecessor, a reward or a
    log-probability that is not a number.
    """
    ordered = sorted(rows, key=lambda row: (*row.episode, row.segment))
    numbers = {episode: i for i, episode in enumerate(dict.fromkeys(row.episode for row in ordered))}
    masks = [_checked(row) for row in ordered]
    counts = np.array([len(m) for m in masks], dtype=np.int64)
    episode = np.array([numbers[row.episode] for row in ordered], dtype=np.int64)
    totals = np.bincount(episode, weights=counts, minlength=len(numbers)).astype(np.int64)

    kept = [i for i in range(len(ordered)) if totals[episode[i]]]
    ordered, masks = [ordered[i] for i in kept], [masks[i] for i in kept]
    starts = np.concatenate([[0], np.cumsum(totals[totals > 0])]).astype(np.int64)
    rewards = np.zeros(starts[-1])
    renumbered = np.cumsum(totals > 0) - 1  # without the empty ones
    row_episodes = renumbered[episode[kept]] if kept else np.zeros(0, np.int64)
    for row, e in zip(ordered, row_episodes, strict=True):
        rewards[starts[e + 1] - 1] = row.reward

    def gather(values: list[np.ndarray], dtype: type) -> np.ndarray:
        return np.concatenate(values).astype(dtype) if values else np.zeros(0, dtype)

    pairs = list(zip(ordered, masks, strict=True))
    return ActorTokens(
        rows=tuple(ordered),
        row_starts=np.concatenate([[0], np.cumsum([len(m) for m in masks])]).astype(np.int64),
        starts=starts,
        row_episodes=row_episodes,
        positions=gather(masks, np.int64),
        ids=gather([row.token_ids[m] for row, m in pairs], np.int64),
        logprobs=gather([row.logprobs[m] for row, m in pairs], np.float32),
        temperatures=gather(
            [np.broadcast_to(np.asarray(row.temperature, np.float32), (len(row.token_ids),))[m] for row, m in pairs],
            np.float32,
        ),
        rewards=rewards,
    )


def _checked(row: Row) -> np.ndarray:
    """The positions of the row's actor tokens; refuses a row that would make a silent error."""
    name = f"episode {row.episode_id}, seat {row.seat}, segment {row.segment}"
    size = len(row.token_ids)
    if len(row.loss_mask) != size or len(row.logprobs) != size:
        raise DataError(
            f"{name}: {size} tokens, {len(row.loss_mask)} mask entries and {len(row.logprobs)} log-probabilities; "
            "they must be aligned"
        )
    positions = np.flatnonzero(row.loss_mask)
    if len(positions) and positions[0] == 0:
        raise DataError(f"{name}: the first token is marked as sampled, but nothing stands before it to predict it")
    if not np.isfinite(row.reward):
        raise DataError(f"{name}: the reward is {row.reward}")
    if not np.isfinite(row.logprobs[positions]).all():
        raise DataError(f"{name}: a sampled token has a log-probability that is not a number")
    if not (np.asarray(row.temperature) > 0).all():
        raise DataError(f"{name}: a temperature is not above 0; greedy tokens cannot be trained on")
    return positions
