"""The document and the server say the same: the routes, and whatever is sent, what is answered."""

import asyncio
import re
import threading
from types import SimpleNamespace

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from envs.core import Limits
from socialrl_cli.cast import Cast
from socialrl_cli.episode_server import EpisodeServer
from socialrl_cli.hosting import Host, ServeConfig
from socialrl_cli.openapi import document
from socialrl_cli.serving import Listener
from socialrl_cli.store import Store

load_all_checks()
HELD = CHECKS.get_by_names(
    [
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
    ]
)
API = schemathesis.openapi.from_dict(document())
OPERATIONS = [(method, path) for path, methods in document()["paths"].items() for method in methods]
SEAT = "/v1/episodes/{episode}/seats/{seat}"
GOOD, BAD = GenerationMode.POSITIVE, GenerationMode.NEGATIVE  # as described, and not
QUICK = Limits(decide_timeout_s=0.2, moves_per_seat=3)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server in a thread of its own; `open()` gives path parameters and secrets of a new episode."""
    folder = tmp_path_factory.mktemp("served")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def call(coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(30)

    with Store(folder / "run", rows=False) as store:

        async def start():
            host, listener = (
                Host(ServeConfig(limits=QUICK, max_open=10_000), Cast(folder), store),
                Listener("127.0.0.1", 0),
            )
            await listener.start(EpisodeServer(host).app)
            return host, listener

        async def stop():
            await host.close()
            await listener.stop()

        async def opened():
            return host.create({"env": "dnd", "seats": {"a": "remote", "b": "remote"}})

        host, listener = call(start())
        yield SimpleNamespace(url=listener.url, open=lambda: call(opened()))
        call(stop())
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_the_document_describes_every_route_and_no_other(tmp_path):
    with Store(tmp_path, rows=False) as store:
        app = EpisodeServer(Host(ServeConfig(), Cast(tmp_path), store)).app
    routes = {(route.method.lower(), route.resource.canonical) for route in app.router.routes()}
    assert routes == set(OPERATIONS)


def test_every_path_parameter_is_declared_and_every_schema_is_used():
    text = str(document())
    for path, methods in document()["paths"].items():
        for operation in methods.values():
            declared = {item["name"] for item in operation.get("parameters", ()) if item["in"] == "path"}
            assert declared == set(re.findall(r"{(\w+)}", path))
    for name in document()["components"]["schemas"]:
        assert f"#/components/schemas/{name}" in text


@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [
        (*item, mode)
        for item in OPERATIONS
        for mode in (GOOD, BAD)
        if mode is GOOD or "{" in item[1] or item[0] == "post"
    ],
)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whatever_is_sent_the_answer_is_one_that_is_described(served, method, path, mode, data):
    case = data.draw(API[path][method.upper()].as_strategy(generation_mode=mode))
    hosted, seat = served.open(), data.draw(st.sampled_from("ab"))
    known = data.draw(st.booleans())
    if known and "{episode}" in path:
        case.path_parameters = {"episode": hosted.id, "seat": seat} if path.startswith(SEAT) else {"episode": hosted.id}
        secret = hosted.secrets[seat] if path.startswith(SEAT) else hosted.secret
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {secret}"}
    if case.query and isinstance(case.query.get("wait_s"), (int, float)):
        case.query["wait_s"] = min(case.query["wait_s"], 0.01)
    if known and path.endswith("/actions") and isinstance(case.body, dict) and data.draw(st.booleans()):
        case.body["notification_id"] = f"{seat}1"
    answer = case.call(base_url=served.url)
    case.validate_response(answer, checks=HELD)
