"""openenv-core: environments for agents over WebSocket."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))

import asyncio  # noqa: E402
import http  # noqa: E402
import json  # noqa: E402
import threading  # noqa: E402

from openenv.core.env_server.http_server import HTTPEnvServer  # noqa: E402
from openenv.core.env_server.interfaces import Environment  # noqa: E402
from openenv.core.env_server.types import Action, ConcurrencyConfig, Observation, State  # noqa: E402
from openenv.core.generic_client import GenericEnvClient  # noqa: E402
from websockets.sync.server import serve  # noqa: E402
import holda_stub as stub  # noqa: E402

LIBRARY = "openenv-core==0.3.0"


class Env(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, *a, **k):
        return Observation()

    def step(self, *a, **k):
        return Observation()

    @property
    def state(self):
        return State()


class Alone(Env):
    SUPPORTS_CONCURRENT_SESSIONS = False


def ws(talk=None, refuse=None):
    def handler(connection):
        for message in connection:
            if talk:
                connection.send(json.dumps(talk))

    def process(connection, request):
        if refuse:
            return connection.respond(http.HTTPStatus(refuse), "no\n")

    server = serve(handler, "127.0.0.1", 0, process_request=process)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.socket.getsockname()[1]}"


def reset(address, **kw):
    async def go():
        client = GenericEnvClient(base_url=address, **kw)
        await client.connect()
        return await client.reset()

    return asyncio.run(go())


def error(code, message):
    return reset(ws({"type": "error", "data": {"code": code, "message": message}}))


def unknown_host():
    with stub.no_such_host():
        return reset("http://env.nowhere.example")


def server(env, most):
    return HTTPEnvServer(
        env, Action, Observation, concurrency_config=ConcurrencyConfig(max_concurrent_envs=most)
    )


def capacity():
    async def go():
        s = server(Env, 1)
        await s._create_session()
        await s._create_session()

    asyncio.run(go())


def cases():
    yield (
        "connection refused",
        lambda: reset(stub.closed()),
        "transient",
        "firm",
        "core/env_client.py:182 ConnectionError from the error of websockets",
    )
    yield (
        "the server answers 503",
        lambda: reset(ws(refuse=503)),
        "transient",
        "firm",
        "core/env_client.py:182 ConnectionError from InvalidStatus 503 of websockets",
    )
    yield (
        "the server is full, seen by the client",
        lambda: error(
            "CAPACITY_REACHED", "Server at capacity: 1/1 sessions active. Cannot accept new connections."
        ),
        "transient",
        "firm",
        "core/env_client.py:232 RuntimeError; env_server/types.py WSErrorCode.CAPACITY_REACHED",
    )
    yield (
        "the server is full, seen by the server",
        capacity,
        "transient",
        "firm",
        "env_server/exceptions.py SessionCapacityError: cannot accept new sessions due to capacity limits",
    )
    yield (
        "the server answers 403",
        lambda: reset(ws(refuse=403)),
        "terminal",
        "firm",
        "core/env_client.py:182 ConnectionError from InvalidStatus 403 of websockets",
    )
    yield (
        "bad action",
        lambda: error("VALIDATION_ERROR", "Invalid message: field required"),
        "terminal",
        "firm",
        "core/env_client.py:232 RuntimeError; WSErrorCode.VALIDATION_ERROR",
    )
    yield (
        "too many sessions for this environment",
        lambda: server(Alone, 4),
        "terminal",
        "firm",
        "env_server/exceptions.py ConcurrencyConfigurationError: misconfigured",
    )
    yield (
        "unknown host",
        unknown_host,
        "terminal",
        "firm",
        "core/env_client.py:182; the host name does not exist",
    )
