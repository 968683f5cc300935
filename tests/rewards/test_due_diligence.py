"""What a reasonable buyer decides, decision by decision."""

import pytest

from rewards.marketplace import due_diligence


@pytest.mark.parametrize(
    ("decisions", "share"),
    [
        ([], 0),
        ([("propose", 60)], 1),  # opened below the reservation of 90
        ([("propose", 90)], 0),
        ([("propose", 60), ("propose", 74)], 1),  # 14 of the 30 that were left
        ([("propose", 60), ("propose", 75)], 1 / 2),  # 15 of 30 is half
        ([("propose", 60), ("propose", 74), ("propose", 81)], 1),  # 7 of 16
        ([("propose", 60), ("propose", 60), ("propose", 55)], 1),  # holding and asking for more again
        ([("propose", 60), ("accept", 80)], 1),
        ([("propose", 60), ("accept", 90)], 1),
        ([("propose", 60), ("accept", 91)], 1 / 2),  # a loss
        ([("accept", 80)], 0),  # never tried a lower price
        ([("propose", 80), ("accept", 80)], 1 / 2),  # its own price is no lower one
        ([("propose", 95), ("propose", 95)], 0),
        ([("propose", 95), ("propose", 85), ("accept", 88)], 2 / 3),
    ],
)
def test_each_decision_is_sound_or_not(decisions, share):
    assert due_diligence(90, decisions) == pytest.approx(share)
