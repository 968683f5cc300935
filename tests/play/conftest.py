"""The bundled model at a very small size, built once for all the tests of play."""

from __future__ import annotations

from pathlib import Path

import pytest

from socialrl_cli import tiny

SMALL = tiny.TinyConfig(hidden=64, inner=96, layers=2, heads=2, kv_heads=1, critic_layers=1, vocab=600)


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its folder, of seed 3; to be left as it is."""
    return tiny.ensure(SMALL, seed=3, cache=tmp_path_factory.mktemp("cache"))
