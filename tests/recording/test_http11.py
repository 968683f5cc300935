"""The small HTTP client reads what servers send, in whatever pieces it arrives."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from socialrl_cli.engines.http11 import Client, Connection, Head, parse_head

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKS = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;x=1\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: x\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
OLD = b"HTTP/1.0 200 OK\r\n\r\nhello"  # ends with the connection
ANSWERS = [
    (PLAIN, 200, b"hello"),
    (CHUNKS, 200, b"hello"),
    (INTERIM, 200, b"hello"),
    (EMPTY, 204, b""),
    (OLD, 200, b"hello"),
]


class Pipe:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written, self.closed = b"", False

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


async def fed(pieces: Sequence[bytes], *, end: bool = True) -> tuple[int, bytes]:
    connection = Connection()
    connection.connection_made(Pipe())  # type: ignore[arg-type]
    asked = asyncio.ensure_future(connection.ask(b"request"))
    await asyncio.sleep(0)
    for piece in pieces:
        connection.data_received(piece)
    if end:
        connection.connection_lost(None)
    return await asked


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(ANSWERS), st.lists(st.integers(0, 120), max_size=5))
def test_an_answer_is_the_same_in_any_pieces(answer: tuple, cuts: list[int]) -> None:
    data, status, body = answer
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(places)]
    assert asyncio.run(fed(pieces)) == (status, body)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/2 200\r\n\r\n",
        b"hello\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"x" * 100_000,
    ],
)
async def test_what_is_no_answer_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        await fed([data])


@pytest.mark.parametrize("data", [b"", PLAIN[:20], PLAIN[:-1], CHUNKS[:-1], INTERIM[:30]])
async def test_an_answer_that_breaks_off_is_a_connection_error(data: bytes) -> None:
    with pytest.raises(ConnectionError):
        await fed([data])


def test_heads() -> None:
    assert parse_head(b"HTTP/1.1 200 OK\r\nContent-Length: 7") == Head(200, 7, False, True)
    assert parse_head(b"HTTP/1.1 503 Busy\r\ncontent-length:7\r\nConnection: close") == Head(503, 7, False, False)
    assert parse_head(b"HTTP/1.0 200 OK\r\nContent-Length: 7") == Head(200, 7, False, False)
    assert parse_head(b"HTTP/1.0 200 OK\r\nContent-Length: 7\r\nConnection: Keep-Alive") == Head(200, 7, False, True)
    assert parse_head(b"HTTP/1.1 200 OK") == Head(200, None, False, False)


@asynccontextmanager
async def server(answers: Sequence[bytes], *, close_after: int = 10**9) -> AsyncIterator[tuple[Client, list[int]]]:
    """Gives `answers` in turn; each connection is closed after `close_after` of them. Also: which connection asked."""
    seen: list[int] = []
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        number, connections = connections, connections + 1
        try:
            for _ in range(close_after):
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                await reader.readexactly(length)
                seen.append(number)
                writer.write(answers[min(len(seen), len(answers)) - 1])
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = Client(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1", {"X-Key": "k"})
    yield client, seen
    client.close()
    listening.close()
    await listening.wait_closed()


async def test_a_connection_is_kept_and_used_again() -> None:
    async with server([PLAIN, CHUNKS]) as (client, seen):
        for _ in range(4):
            assert await client.ask("POST", "/x", b"body") == (200, b"hello")
    assert seen == [0, 0, 0, 0]


async def test_as_many_connections_as_requests_at_once() -> None:
    async with server([PLAIN]) as (client, seen):
        await asyncio.gather(*(client.ask("POST", "/x") for _ in range(3)))
        await client.ask("POST", "/x")
    assert sorted(seen[:3]) == [0, 1, 2]
    assert seen[3] in (0, 1, 2)


async def test_a_connection_that_the_server_closed_while_idle_is_replaced() -> None:
    async with server([PLAIN], close_after=1) as (client, seen):
        for _ in range(3):
            assert await client.ask("POST", "/x") == (200, b"hello")
    assert seen == [0, 1, 2]


async def test_a_connection_with_more_than_its_answer_is_not_used_again() -> None:
    async with server([PLAIN + PLAIN, PLAIN]) as (client, seen):
        for _ in range(2):
            assert await client.ask("POST", "/x") == (200, b"hello")
    assert seen == [0, 1]


async def test_a_cancelled_request_does_not_leave_its_answer_to_the_next() -> None:
    async with server([b"", PLAIN]) as (client, seen):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.ask("POST", "/slow"), 0.05)
        assert await client.ask("POST", "/x") == (200, b"hello")
    assert seen == [0, 1]


async def test_closing_ends_what_is_under_way() -> None:
    async with server([b""]) as (client, _):
        waiting = asyncio.ensure_future(client.ask("POST", "/x"))
        await asyncio.sleep(0.05)
        client.close()
        with pytest.raises(ConnectionError):
            await waiting


def test_headers_must_be_plain() -> None:
    for value in ("a\r\nb: c", "schlüssel"):
        with pytest.raises(ValueError, match="printable"):
            Client("http://localhost", {"Authorization": value})


def test_requests_are_what_servers_expect() -> None:
    client: Any = Client("https://user@host:8443/v1", {"X-Key": "k"})
    assert (client._host, client._port, client._path) == ("host", 8443, "/v1")
    assert client._lines == "Host: host:8443\r\nAccept: application/json\r\nX-Key: k\r\n"
