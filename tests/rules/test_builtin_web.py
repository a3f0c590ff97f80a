"""pycurl and websockets against real local servers."""

import asyncio
import io
import threading

import pytest
from support.errors.verdicts import decided
from support.servers.local_servers import (
    Answer,
    Answering,
    Misbehaving,
    cut_off,
    hang_up,
    reset,
    say_nothing,
    talk_nonsense,
)

TIMEOUT_S = 60


def outcome(*args, **options):
    decision = decided(*args, **options)
    return decision.verdict.value, decision.rule


# -- pycurl -------------------------------------------------------------------------------------


def by_pycurl(url, **options):
    pycurl = pytest.importorskip("pycurl")
    curl = pycurl.Curl()
    settings = {"URL": url, "WRITEDATA": io.BytesIO(), "FAILONERROR": 1, "TIMEOUT": TIMEOUT_S}
    try:
        for name, value in {**settings, **options}.items():
            curl.setopt(getattr(pycurl, name), value)
        curl.perform()
    finally:
        curl.close()


@pytest.mark.parametrize(("status", "expected"), [(503, "transient"), (404, "terminal")])
def test_pycurl_that_fails_on_errors(served, status, expected):
    assert outcome(by_pycurl, served(Answer(status))) == (expected, "http.status")


@pytest.mark.parametrize("manner", [reset, hang_up, cut_off])
def test_pycurl_and_a_broken_connection(serve, manner):
    assert outcome(by_pycurl, f"http://{serve(Misbehaving, manner)}/") == ("transient", "curl.code")


@pytest.mark.parametrize("manner", [reset, hang_up])
def test_pycurl_and_a_handshake_that_is_cut_off(serve, manner):
    url = f"https://{serve(Misbehaving, manner)}/"
    assert outcome(by_pycurl, url) == ("transient", "curl.code")


def test_pycurl_and_tls(serve, self_signed):
    url = f"https://{serve(Misbehaving, talk_nonsense)}/"
    assert outcome(by_pycurl, url) == ("terminal", "curl.code")
    url = f"https://{serve(Misbehaving, talk_nonsense, context=self_signed)}/"
    assert outcome(by_pycurl, url) == ("terminal", "curl.code")


def test_pycurl_and_silence(serve):
    url = f"http://{serve(Misbehaving, say_nothing)}/"
    assert outcome(by_pycurl, url, TIMEOUT_MS=50) == ("transient", "curl.code")


def test_pycurl_and_a_refused_connection(closed_port):
    assert outcome(by_pycurl, f"http://127.0.0.1:{closed_port}/") == ("transient", "curl.code")


@pytest.mark.parametrize("url", ["nonsense://127.0.0.1/", "http://"])
def test_pycurl_and_a_bad_url(url):
    assert outcome(by_pycurl, url) == ("terminal", "curl.code")


@pytest.mark.parametrize(("status", "expected"), [(407, "terminal"), (503, "transient")])
def test_pycurl_and_a_proxy_that_refuses(serve, status, expected):
    options = {"PROXY": f"http://{serve(Answering)}", "NOPROXY": "", "FAILONERROR": 0}
    decided = outcome(by_pycurl, f"https://{status}.invalid/", **options)
    assert decided == (expected, "http.proxy")


# -- websockets ---------------------------------------------------------------------------------


def by_websockets(url, **options):
    client = pytest.importorskip("websockets.sync.client")
    with client.connect(url, proxy=None, **options) as connection:
        connection.recv(timeout=TIMEOUT_S)


def by_async_websockets(url, **options):
    client = pytest.importorskip("websockets.asyncio.client")

    async def receive():
        async with client.connect(url, proxy=None, **options) as connection:
            await connection.recv()

    asyncio.run(receive())


WEBSOCKETS = pytest.mark.parametrize("client", [by_websockets, by_async_websockets])


@pytest.fixture
def socket_server():
    """Starts a WebSocket server that runs ``handler`` for each connection; returns its URL."""
    library = pytest.importorskip("websockets.sync.server")
    servers = []

    def start(handler):
        server = library.serve(handler, "127.0.0.1", 0)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"ws://127.0.0.1:{server.socket.getsockname()[1]}"

    yield start
    for server in servers:
        server.shutdown()


@WEBSOCKETS
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (1000, "terminal"),
        (1001, "transient"),
        (1008, "terminal"),
        (1011, "transient"),
        (1012, "transient"),
        (1013, "transient"),
        (4000, "terminal"),
    ],
)
def test_websockets_by_close_code(socket_server, client, code, expected):
    url = socket_server(lambda connection: connection.close(code))
    assert outcome(client, url) == (expected, "websocket.close")


@WEBSOCKETS
def test_websockets_cut_off(socket_server, client):
    url = socket_server(lambda connection: connection.socket.shutdown(2))
    assert outcome(client, url) == ("transient", "websocket.close")


@WEBSOCKETS
def test_websockets_with_too_long_a_message(socket_server, client):
    url = socket_server(lambda connection: connection.send("x" * 1_000))
    assert outcome(client, url, max_size=10) == ("terminal", "websocket.close")


@pytest.mark.parametrize(
    ("status", "expected"), [(429, "transient"), (503, "transient"), (401, "terminal")]
)
def test_websockets_refused_with_a_status(served, status, expected):
    url = served(Answer(status, Retry_After="5")).replace("http", "ws")
    decision = decided(by_websockets, url)
    assert (decision.verdict.value, decision.rule) == (expected, "http.status")
    assert decision.retry_after == (5.0 if expected == "transient" else None)


@pytest.mark.parametrize(
    ("manner", "expected"),
    [(reset, "transient"), (hang_up, "transient"), (talk_nonsense, "terminal")],
)
def test_websockets_without_an_answer(serve, manner, expected):
    url = f"ws://{serve(Misbehaving, manner)}/"
    assert outcome(by_websockets, url) == (expected, "websocket.handshake")


@WEBSOCKETS
def test_websockets_and_a_bad_url(client):
    assert outcome(client, "http://127.0.0.1/") == ("terminal", "http.url")


@WEBSOCKETS
def test_websockets_and_a_refused_connection(client, closed_port):
    assert outcome(client, f"ws://127.0.0.1:{closed_port}/") == ("transient", "os.network")


# -- websocket-client ---------------------------------------------------------------------------


def by_websocket_client(url, **options):
    library = pytest.importorskip("websocket")
    connection = library.create_connection(url, timeout=TIMEOUT_S, **options)
    try:
        connection.recv_frame()
    finally:
        connection.shutdown()


def test_websocket_client_cut_off(socket_server):
    url = socket_server(lambda connection: connection.socket.shutdown(2))
    assert outcome(by_websocket_client, url) == ("transient", "websocket.close")


@pytest.mark.parametrize(
    ("status", "expected"), [(429, "transient"), (503, "transient"), (401, "terminal")]
)
def test_websocket_client_refused_with_a_status(served, status, expected):
    url = served(Answer(status, Retry_After="5")).replace("http", "ws")
    decision = decided(by_websocket_client, url)
    assert (decision.verdict.value, decision.rule) == (expected, "http.status")
    assert decision.retry_after == (5.0 if expected == "transient" else None)


@pytest.mark.parametrize(("status", "expected"), [(503, "transient"), (407, "terminal")])
def test_websocket_client_and_a_proxy_that_refuses(serve, status, expected):
    port = serve(Answering).rpartition(":")[2]
    proxy = {"http_proxy_host": "127.0.0.1", "http_proxy_port": int(port), "proxy_type": "http"}
    url = f"ws://{status}.invalid/"
    assert outcome(by_websocket_client, url, **proxy) == (expected, "http.proxy")


def test_websocket_client_and_no_server(closed_port):
    url = f"ws://127.0.0.1:{closed_port}/"
    assert outcome(by_websocket_client, url) == ("transient", "os.network")
    assert outcome(by_websocket_client, "ws://nowhere.invalid/") == ("terminal", "dns.lookup")
