"""One real vLLM server for all tests that want one (marker vllm): tiny in float32, with room for adapters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from socialrl_cli.engines import launching, server
from socialrl_cli.engines.config import VllmConfig
from socialrl_cli.models import resolve


@pytest.fixture(scope="session")
def tiny_model() -> str:
    return resolve("tiny")


@pytest.fixture(scope="session")
def vllm_url(tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the server. Without vLLM this is an error, not a skip: `make test-vllm` sets it up."""
    config, port = VllmConfig(max_num_seqs=32), server.free_port()
    words = launching.command(launching.find(), config, tiny_model, port=port, dtype="float32", rank=8, gpu=False)
    log: Path = tmp_path_factory.mktemp("server") / "vllm.log"
    environment = launching.environment(config, tiny_model)
    process = server.Server("tiny", words, environment, port=port, log=log, start_timeout_s=400)
    process.start()
    yield process.url
    process.stop()
