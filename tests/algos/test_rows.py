from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from algos.rows import actor_tokens
from scenarios.errors import DataError


def test_a_reward_is_paid_once_on_the_last_actor_token_across_segments(make: SimpleNamespace) -> None:
    rows = [
        make.row("a", ids=[3, 4, 5, 6], mask=[False, True, False, True], segment=1, reward=0.7),
        make.row("b", ids=[3, 4, 5], mask=[False, True, False], reward=0.2),
        make.row("a", ids=[7, 8, 9], mask=[False, True, True], segment=0, reward=0.7),
    ]
    batch = actor_tokens(rows)
    assert batch.ids.tolist() == [8, 9, 4, 6, 4]  # a's segment 0, then 1, then b
    assert batch.rewards.tolist() == [0, 0, 0, 0.7, 0.2]
    assert batch.starts.tolist() == [0, 4, 5]
    assert batch.episodes.tolist() == [0, 0, 0, 0, 1]
    assert batch.positions.tolist() == [1, 2, 1, 3, 1]
    assert batch.rows_of([1, 0]) == [2, 0, 1]
    assert batch.tokens_of([2, 0]).tolist() == [4, 0, 1]


def test_both_seats_of_an_episode_are_two_dialogues(make: SimpleNamespace) -> None:
    batch = actor_tokens([make.row("a", seat="A", reward=1.0), make.row("a", seat="B", reward=0.0)])
    assert len(batch.starts) == 3
    assert batch.rewards[batch.starts[1:] - 1].tolist() == [1.0, 0.0]


def test_an_episode_without_an_actor_token_is_left_out(make: SimpleNamespace) -> None:
    silent = make.row("b", ids=[3, 4], mask=[False, False])
    batch = actor_tokens([make.row("a", length=4), silent, make.row("c", length=5)])
    assert [row.episode_id for row in batch.rows] == ["a", "c"]
    assert batch.row_episodes.tolist() == [0, 1]
    assert len(actor_tokens([silent]).ids) == 0
    assert len(actor_tokens([]).ids) == 0


def test_a_segment_without_actor_tokens_keeps_its_episode(make: SimpleNamespace) -> None:
    rows = [make.row("a", length=5, reward=0.4), make.row("a", ids=[3, 4], mask=[False, False], segment=1, reward=0.4)]
    batch = actor_tokens(rows)
    assert batch.rewards.tolist() == [0, 0.4]
    assert batch.row_starts.tolist() == [0, 2, 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mask": [True, True, False]}, "first token"),
        ({"logprobs": np.zeros(2, np.float32)}, "aligned"),
        ({"logprobs": np.array([0, np.nan, 0], np.float32)}, "log-probability"),
        ({"reward": float("nan")}, "reward"),
        ({"temperature": 0.0}, "temperature"),
    ],
)
def test_a_row_that_cannot_be_right_is_refused(make: SimpleNamespace, change: dict, message: str) -> None:
    row = make.row("a", **({"ids": [3, 4, 5], "mask": [False, True, False]} | change))
    with pytest.raises(DataError, match=message):
        actor_tokens([row])


def test_temperatures_may_differ_by_token(make: SimpleNamespace) -> None:
    temperature = np.array([1, 0.5, 2, 1], np.float32)
    batch = actor_tokens([make.row("a", length=4, prompt=1, temperature=temperature), make.row("b", temperature=0.7)])
    assert batch.temperatures == pytest.approx([0.5, 2, 1, *[0.7] * 5])
