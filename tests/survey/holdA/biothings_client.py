"""biothings-client: MyGene, MyVariant, …"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))

import biothings_client  # noqa: E402
import holda_stub as stub  # noqa: E402

LIBRARY = "biothings-client==0.5.1"


def gene(address):
    client = biothings_client.get_client("gene", url=address)
    client.delay = 0
    return client


def get(status, body=None):
    return gene(stub.answer(status, body or {"code": status, "success": False, "error": "x"})).query(
        "symbol:CDK2"
    )


def unknown_host():
    with stub.no_such_host():
        return gene("http://mygene.nowhere.example/v3").query("symbol:CDK2")


def cases():
    yield (
        "too many requests",
        lambda: get(429, {"code": 429, "error": "Too Many Requests"}),
        "transient",
        "firm",
        "client/base.py _get: response.raise_for_status, httpx.HTTPStatusError",
    )
    yield (
        "the service is unavailable",
        lambda: get(503),
        "transient",
        "firm",
        "client/base.py _get: raise_for_status",
    )
    yield (
        "connection refused",
        lambda: gene(stub.closed()).query("x"),
        "transient",
        "firm",
        "httpx.ConnectError as it is",
    )
    yield (
        "the server hangs up",
        lambda: gene(stub.hangs_up()).querymany(["1", "2"]),
        "transient",
        "firm",
        "httpx.RemoteProtocolError as it is",
    )
    yield (
        "the metadata address refuses the connection",
        lambda: biothings_client.get_client(url=stub.closed()),
        "transient",
        "soft",
        "client/base.py:965: RuntimeError 'Cannot access metadata url' from httpx.RequestError",
    )
    yield (
        "bad query",
        lambda: get(400, {"code": 400, "success": False, "error": "Bad Request"}),
        "terminal",
        "firm",
        "client/base.py _get: raise_for_status",
    )
    yield (
        "ids are not a list",
        lambda: gene(stub.closed()).getgenes(7),
        "terminal",
        "firm",
        "client/base.py: ValueError: ids must be a list, tuple or iterable",
    )
    yield ("unknown host", unknown_host, "terminal", "firm", "the host name does not exist")
