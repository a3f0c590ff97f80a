"""Real clients against real local servers: the errors that they raise, and the verdicts."""

import asyncio
import http.client
import socket
import urllib.error
import urllib.request
import xmlrpc.client
from urllib.parse import urlsplit

import pytest
from support.servers.local_servers import (
    Answering,
    Misbehaving,
    cut_off,
    hang_up,
    reset,
    say_nothing,
    talk_nonsense,
)

from celery_dlq.classify import decide

TIMEOUT_S = 60


# -- clients: each gets a URL and raises what its library raises ----------------------------------


def by_requests(url, **options):
    requests = pytest.importorskip("requests")
    with requests.get(url, **{"timeout": TIMEOUT_S, **options}) as answer:
        answer.raise_for_status()


def by_httpx(url, **options):
    _by_httpx(pytest.importorskip("httpx"), url, options)


def by_httpx2(url, **options):
    _by_httpx(pytest.importorskip("httpx2"), url, options)


def _by_httpx(library, url, options):
    with library.Client(**{"timeout": TIMEOUT_S, **options}) as client:
        client.get(url).raise_for_status()


def by_async_httpx(url, **options):
    httpx = pytest.importorskip("httpx")

    async def get():
        async with httpx.AsyncClient(**{"timeout": TIMEOUT_S, **options}) as client:
            (await client.get(url)).raise_for_status()

    asyncio.run(get())


def by_urllib(url, timeout=TIMEOUT_S):
    with urllib.request.urlopen(url, timeout=timeout) as answer:
        answer.read()


def by_aiohttp(url, timeout=TIMEOUT_S):
    aiohttp = pytest.importorskip("aiohttp")

    async def get():
        limit = aiohttp.ClientTimeout(sock_read=timeout, sock_connect=timeout)
        async with (
            aiohttp.ClientSession(timeout=limit, raise_for_status=True) as session,
            session.get(url) as answer,
        ):
            await answer.read()

    asyncio.run(get())


def by_urllib3(url, timeout=TIMEOUT_S):
    urllib3 = pytest.importorskip("urllib3")
    retries = urllib3.Retry(1, status_forcelist=range(400, 600), backoff_factor=0)
    with urllib3.PoolManager(retries=retries.new(respect_retry_after_header=False)) as pool:
        pool.request("GET", url, timeout=timeout)


def by_http_client(url, timeout=TIMEOUT_S):
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=timeout)
    try:
        connection.request("GET", parts.path)
        connection.getresponse().read()
    finally:
        connection.close()


STATUS_CLIENTS = [by_requests, by_httpx, by_httpx2, by_async_httpx, by_urllib, by_aiohttp]
CLIENTS = [*STATUS_CLIENTS, by_urllib3, by_http_client]


def judge(client, url, **options):
    """The decision about the error that ``client`` raises."""
    with pytest.raises(Exception) as caught:
        client(url, **options)
    decision = decide(caught.value)
    if isinstance(caught.value, urllib.error.HTTPError):
        caught.value.close()
    return decision


def verdict(*args, **options):
    return judge(*args, **options).verdict.value


@pytest.fixture
def http_server(serve):
    return f"http://{serve(Answering)}"


# -- statuses -----------------------------------------------------------------------------------


@pytest.mark.parametrize("client", STATUS_CLIENTS)
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (404, "terminal"),
        (409, "terminal"),
        (429, "transient"),
        (500, "terminal"),
        (503, "transient"),
    ],
)
def test_the_status_decides(client, http_server, status, expected):
    decision = judge(client, f"{http_server}/{status}")
    assert (decision.verdict.value, decision.rule) == (expected, "http.status")
    assert f"status={status} from " in decision.evidence


@pytest.mark.parametrize("client", STATUS_CLIENTS)
def test_retry_after_is_found(client, http_server):
    assert judge(client, f"{http_server}/429?Retry-After=7").retry_after == 7.0
    refused = judge(client, f"{http_server}/403?Retry-After=0")
    assert (refused.verdict.value, refused.retry_after) == ("transient", 0.0)
    limited = judge(client, f"{http_server}/403?X-RateLimit-Remaining=0")
    assert (limited.verdict.value, limited.retry_after) == ("transient", None)


@pytest.mark.parametrize(("status", "expected"), [(503, "transient"), (404, "terminal")])
def test_urllib3_after_its_own_retries(http_server, status, expected):
    decision = judge(by_urllib3, f"{http_server}/{status}")
    assert decision.verdict.value == expected
    assert (decision.rule == "http.retries") is (expected == "terminal")


def test_requests_with_an_adapter_that_retries(http_server):
    requests = pytest.importorskip("requests")
    urllib3 = pytest.importorskip("urllib3")

    def get(url):
        retry = urllib3.Retry(1, status_forcelist=(503, 404), backoff_factor=0)
        with requests.Session() as session:
            session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retry))
            session.get(url, timeout=TIMEOUT_S)

    assert verdict(get, f"{http_server}/503") == "transient"
    assert verdict(get, f"{http_server}/404") == "terminal"


@pytest.mark.parametrize(("status", "expected"), [(503, "transient"), (401, "terminal")])
def test_xmlrpc(http_server, status, expected):
    def call(url):
        with xmlrpc.client.ServerProxy(url) as server:
            server.anything()

    assert verdict(call, f"{http_server}/{status}") == expected


# -- the network --------------------------------------------------------------------------------


@pytest.mark.parametrize("client", CLIENTS)
def test_a_refused_connection(client, closed_port):
    assert verdict(client, f"http://127.0.0.1:{closed_port}/") == "transient"


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("manner", [reset, hang_up, cut_off])
def test_a_broken_connection(client, serve, manner):
    assert verdict(client, f"http://{serve(Misbehaving, manner)}/") == "transient"


@pytest.mark.parametrize("client", CLIENTS)
def test_a_server_that_does_not_answer(client, serve):
    url = f"http://{serve(Misbehaving, say_nothing)}/"
    assert verdict(client, url, timeout=0.05) == "transient"


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("code", "expected"),
    [(socket.EAI_NONAME, "terminal"), (socket.EAI_AGAIN, "transient")],
    ids=["unknown", "later"],
)
def test_a_name_that_does_not_resolve(client, monkeypatch, code, expected):
    def fail(*args, **kwargs):
        raise socket.gaierror(code, "says the resolver")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    if client is by_aiohttp:
        # It prefers aiodns, which does not ask the system.
        aiohttp = pytest.importorskip("aiohttp")
        monkeypatch.setattr(aiohttp.connector, "DefaultResolver", aiohttp.ThreadedResolver)
    decision = judge(client, "http://nowhere.invalid/")
    assert decision.verdict.value == expected
    assert (decision.rule == "dns.lookup") or expected == "transient"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ARES_ENOTFOUND", "terminal"), ("ARES_ENODATA", "terminal"), ("ARES_ESERVFAIL", "transient"),
        ("ARES_ETIMEOUT", "transient"), ("ARES_ECONNREFUSED", "transient"),
    ],
)  # fmt: skip
def test_a_name_that_aiodns_does_not_resolve(monkeypatch, name, expected):
    aiodns = pytest.importorskip("aiodns")
    code = getattr(pytest.importorskip("pycares").errno, name)

    def fail(*args, **kwargs):
        raise aiodns.error.DNSError(code, "says c-ares")

    monkeypatch.setattr(aiodns.DNSResolver, "getaddrinfo", fail)
    decision = judge(by_aiohttp, "http://nowhere.invalid/")
    assert decision.verdict.value == expected
    assert (decision.rule == "dns.lookup") or expected == "transient"


@pytest.mark.parametrize(
    "client", [by_requests, by_httpx, by_httpx2, by_async_httpx, by_urllib3, by_aiohttp]
)
@pytest.mark.parametrize("url", ["nonsense://127.0.0.1/", "http://", "no url at all"])
def test_a_bad_url(client, url):
    assert verdict(client, url) == "terminal"


@pytest.mark.parametrize("client", [by_requests, by_httpx, by_httpx2, by_async_httpx])
@pytest.mark.parametrize(("status", "expected"), [(407, "terminal"), (503, "transient")])
def test_a_proxy_that_refuses(client, serve, status, expected):
    proxy = f"http://{serve(Answering)}"
    options = {"proxies": {"https": proxy}} if client is by_requests else {"proxy": proxy}
    assert verdict(client, f"https://{status}.invalid/", **options) == expected


def test_an_answer_that_is_not_json(http_server):
    requests = pytest.importorskip("requests")
    decision = judge(lambda url: requests.get(url, timeout=TIMEOUT_S).json(), f"{http_server}/200")
    assert (decision.verdict.value, decision.rule) == ("terminal", "http.content")


# -- TLS ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", CLIENTS)
def test_an_untrusted_certificate(client, serve, self_signed):
    decision = judge(client, f"https://{serve(Answering, context=self_signed)}/200")
    assert (decision.verdict.value, decision.rule) == ("terminal", "tls.certificate")


@pytest.mark.parametrize("client", CLIENTS)
def test_tls_spoken_to_a_server_without_it(client, serve):
    decision = judge(client, f"https://{serve(Misbehaving, talk_nonsense)}/")
    assert (decision.verdict.value, decision.rule) == ("terminal", "tls.protocol")


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("manner", [reset, hang_up])
def test_a_handshake_that_is_cut_off(client, serve, manner):
    assert verdict(client, f"https://{serve(Misbehaving, manner)}/") == "transient"
