"""The difficulty-aware curve, by its worked numbers and its properties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.curve import curve

unit = st.floats(0, 1)


@pytest.mark.parametrize(
    ("z", "m", "expected"),
    [
        # σ(.5)=.622459, σ(-2.5)=.075858, σ(2.5)=.924142: (.622459-.075858)/(.924142-.075858)
        (0.6, 0.5, 0.644361),
        (0.6, 0.8, 0.351935),
        (0.8, 0.8, 0.675968),
        (0.7, 0.7, 0.597121),
        (0.6, 0.7, 0.441767),
        (5 / 36, 23 / 36, 0.044521),
    ],
)
def test_the_curve_has_its_worked_numbers(z, m, expected):
    assert curve(z, m) == pytest.approx(expected, abs=1e-6)


@given(unit)
def test_nothing_pays_zero_and_everything_pays_one(m):
    assert curve(0.0, m) == 0.0
    assert curve(1.0, m) == 1.0


@given(unit, unit)
def test_every_reward_lies_between_zero_and_one(z, m):
    assert 0.0 <= curve(z, m) <= 1.0


@given(st.integers(0, 999), st.integers(1, 1000), unit)
def test_more_utility_always_pays_more(low, gap, m):
    high = min(low + gap, 1000)
    assert curve(low / 1000, m) < curve(high / 1000, m)


@given(st.floats(0.05, 0.95), st.floats(0.02, 0.98))
def test_no_step_pays_more_than_the_one_around_the_reference(m, z):
    def step(x):
        return curve(min(x + 0.01, 1.0), m) - curve(max(x - 0.01, 0.0), m)

    assert step(z) <= step(m) + 1e-12


@pytest.mark.parametrize(("z", "m"), [(-0.1, 0.5), (1.1, 0.5), (0.5, -0.1), (0.5, 1.1), (float("nan"), 0.5)])
def test_numbers_outside_the_unit_interval_are_refused(z, m):
    with pytest.raises(ValueError, match="must lie in"):
        curve(z, m)
