"""`socialrl proxy` as a program: its address on stdout, its record on disk, its end on a signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import openai
import pytest

from socialrl_cli.callfiles import read_calls
from socialrl_cli.main import run

ANSWER = {
    "id": "x", "object": "chat.completion", "created": 1, "model": "m", "prompt_token_ids": [1, 2],
    "choices": [
        {
            "index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "deal"}, "token_ids": [3],
            "logprobs": {"content": [{"token": "deal", "logprob": -0.5, "bytes": None, "top_logprobs": []}]},
        }
    ],
    "usage": {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3},
}  # fmt: skip


class Upstream(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        self.answer({"data": [{"id": "m"}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(ANSWER)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


def started(upstream: str, folder: Path, *more: str) -> tuple[subprocess.Popen, str]:
    words = ["proxy", "--upstream", upstream, "--port", "0", "--run", str(folder), "--json", *more]
    child = subprocess.Popen(
        [sys.executable, "-m", "socialrl_cli.main", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    printed = ""
    while not printed.endswith("}\n"):
        line = child.stdout.readline()
        assert line, child.communicate()
        printed += line
    return child, json.loads(printed)["base_url"]


def asked(base_url: str, session: str) -> str | None:
    with openai.OpenAI(base_url=base_url.replace("SESSION", session), api_key="none", max_retries=0) as client:
        answer = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "q"}])
        return answer.choices[0].message.content


def test_it_records_until_it_is_stopped_and_goes_on_after_a_kill(upstream: str, tmp_path: Path) -> None:
    child, base_url = started(upstream, tmp_path / "run")
    assert asked(base_url, "one") == "deal"
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    assert [call.session for call in read_calls(tmp_path / "run" / "calls")] == ["one"]

    child, base_url = started(upstream, tmp_path / "run", "--resume")
    assert asked(base_url, "two") == "deal"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=20)
    assert child.returncode == 0
    assert out == ""
    assert "recorded 1 calls" in err
    calls = read_calls(tmp_path / "run" / "calls")
    assert [(call.session, call.reply, call.logprobs.tolist()) for call in calls] == [
        ("one", "deal", [-0.5]),
        ("two", "deal", [-0.5]),
    ]


def test_a_full_disk_ends_it_with_one_line(upstream: str, tmp_path: Path) -> None:
    child, base_url = started(upstream, tmp_path / "run")
    (tmp_path / "run" / "calls").write_text("in the way")
    with pytest.raises(openai.InternalServerError, match="could not be recorded"):
        asked(base_url, "one")
    _, err = child.communicate(timeout=20)
    assert child.returncode == 1
    assert err.strip().splitlines()[-1].startswith("socialrl: error:")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--upstream", "localhost:1"], 2, "not a base URL"),
        (["--upstream", "http://localhost:1", "--mode", "fast"], 2, "expected rl or distill"),
        (["--upstream", "http://localhost:1", "--host", "0.0.0.0"], 2, "without a token"),
        (["--upstream", "http://localhost:1", "--timeout-s", "0"], 2, "positive"),
        ([], 2, "--upstream"),
    ],
)
def test_wrong_use_is_one_line(words: list[str], code: int, message: str, tmp_path: Path, capfd: Any) -> None:
    assert run(["proxy", "--run", str(tmp_path / "run"), *words]) == code
    err = capfd.readouterr().err.strip().splitlines()
    assert message in err[-1]
    assert not (tmp_path / "run").exists()
    assert "Traceback" not in "".join(err)


def test_a_port_in_use_leaves_no_folder(upstream: str, tmp_path: Path, capfd: Any) -> None:
    port = upstream.split(":")[2].removesuffix("/v1")
    assert run(["proxy", "--upstream", upstream, "--port", port, "--run", str(tmp_path / "run")]) == 1
    assert f"{port}: cannot listen (the port is in use)" in capfd.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_not_empty_is_not_written_into(tmp_path: Path, capfd: Any) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert run(["proxy", "--upstream", "http://localhost:1", "--port", "0", "--run", str(tmp_path)]) == 1
    assert "not empty" in capfd.readouterr().err
