"""A host with its server in this process, and a client for it."""

import json
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from aiohttp.test_utils import TestClient, TestServer

from envs.core import Limits
from socialrl_cli.cast import Cast
from socialrl_cli.episode_server import EpisodeServer
from socialrl_cli.hosting import Host, ServeConfig
from socialrl_cli.store import Store

OPENING = {"env": "dnd", "seats": {"a": "remote", "b": "scripted:linear"}, "seed": 3}


class Api:
    """Calls the server; `call` returns the status and the JSON, `headers` are those of the last answer."""

    opening = OPENING

    def __init__(self, client, host, store):
        self.client, self.host, self.store = client, host, store

    async def call(self, method, path, body=None, secret="", **headers):
        if secret:
            headers["Authorization"] = f"Bearer {secret}"
        if body is not None:
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
            headers = {"Content-Type": "application/json", **headers}
        async with self.client.request(method, path, data=body, headers=headers) as answer:
            self.headers = answer.headers
            return answer.status, await answer.json()

    async def open(self, **changes):
        """A new episode; its seats by name, each with path and secret."""
        status, found = await self.call("POST", "/v1/episodes", {**OPENING, **changes})
        assert status == 201, found
        path = f"/v1/episodes/{found['episode_id']}"
        seats = {
            name: SimpleNamespace(path=f"{path}/seats/{name}", secret=secret)
            for name, secret in found["secrets"].items()
        }
        return SimpleNamespace(id=found["episode_id"], path=path, secret=found["secret"], seats=seats, found=found)

    async def events(self, seat, cursor=0, wait_s=5):
        status, page = await self.call("GET", f"{seat.path}/events?cursor={cursor}&wait_s={wait_s}", secret=seat.secret)
        assert status == 200, page
        return page

    async def act(self, seat, notification_id, action):
        body = {"notification_id": notification_id, "action": action}
        status, ack = await self.call("POST", seat.path + "/actions", body, seat.secret)
        assert status == 200, ack
        return ack


@pytest.fixture
def api(tmp_path):
    """`async with api(…) as client`: ServeConfig's fields, and `token`."""

    @asynccontextmanager
    async def opened(token=None, limits=None, **config):
        config = ServeConfig(limits=limits or Limits(decide_timeout_s=30.0), **config)
        with Store(tmp_path / "run", rows=False) as store:
            host = Host(config, Cast(tmp_path / "calls"), store)
            async with TestClient(TestServer(EpisodeServer(host, token).app)) as client:
                yield Api(client, host, store)
                await host.close()

    return opened
