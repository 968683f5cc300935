"""The packaged scenarios are not one text with other numbers."""

import pytest

from scenarios import ENVIRONMENTS
from scenarios.core import SPLITS, Scenario, packaged

TEXTLESS = {"dnd", "job_interview", "werewolf"}  # numbers alone, or texts of fewer than eight words


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_ten_scenarios_drawn_at_random_hardly_repeat_a_sequence_of_eight_words(env, split, repeated):
    share = repeated(packaged(env, split))
    assert (share is None) == (env in TEXTLESS)
    assert share is None or share < 0.05


def test_numbers_and_names_do_not_make_a_text_new(repeated):
    def told(town, price):
        return f"The old bicycle from {town} costs {price} dollars and its chain is new. I swear."

    same = [Scenario("", "x", "test", "", {"text": [told(f"Town{i}", f"{i},000")]}) for i in range(10)]
    other = [
        Scenario("", "x", "test", "", {"text": " ".join(f"w{chr(97 + i)}{chr(97 + j)}" for j in range(12))})
        for i in range(10)
    ]
    assert repeated(same) == 1
    assert repeated(other) == 0
    assert repeated([Scenario("", "x", "test", "", {"n": 1})] * 10) is None
