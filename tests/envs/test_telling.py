"""What a seat is told of where the game stands."""

import pytest

import envs
from envs.events import Event
from envs.telling import tell
from scenarios import NEGOTIATIONS


def turn(**payload):
    asked = {"round": 10, "limit": 10, "replies_left": 1, "moves_left": 1, "standing": None} | payload
    return Event(3, "notification", "turn", asked, 7, "a10", (), None)


@pytest.mark.parametrize(
    ("replies_left", "compact", "full"), [(1, "10/10", "has 1 move left"), (0, "10/10 last", "has 0 moves left")]
)
def test_a_seat_is_told_whether_its_move_has_the_last_word(replies_left, compact, full):
    event = turn(replies_left=replies_left)
    assert tell(event, "a", "compact", str, str) == compact
    assert full in tell(event, "a", "full", str, str)


@pytest.mark.parametrize("env", NEGOTIATIONS)
def test_a_small_model_is_told_as_much(env):
    assert envs.module(env).tell(turn(replies_left=0), envs.module(env).SEATS[0], "compact").endswith(" last")
