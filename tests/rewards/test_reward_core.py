"""Scoring by the name of the environment."""

import pytest

from rewards.core import score
from scenarios.core import Scenario
from scenarios.errors import UsageError


def test_a_scenario_of_an_unknown_environment_names_the_known_ones():
    with pytest.raises(UsageError, match="unknown environment 'dmd'; did you mean 'dnd'"):
        score(Scenario("x", "dmd", "test", "test", {}), {"status": "timeout"})
