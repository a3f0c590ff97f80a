"""uplink: a declared HTTP client on top of requests (or aiohttp, twisted)."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))

import uplink  # noqa: E402
import holda_stub as stub  # noqa: E402

LIBRARY = "uplink==0.10.0"


@uplink.response_handler
def checked(response):
    response.raise_for_status()
    return response


class Api(uplink.Consumer):
    @uplink.timeout(0.3)
    @checked
    @uplink.get("items/{item}")
    def get_item(self, item: uplink.Path):
        pass

    @uplink.retry(max_attempts=2, backoff=uplink.retry.backoff.fixed(0.01))
    @uplink.get("items")
    def get_items(self):
        pass

    @uplink.ratelimit(calls=1, period=60, raise_on_limit=True)
    @uplink.get("items")
    def get_few(self):
        pass


def wrong():
    class Wrong(uplink.Consumer):
        @uplink.get("items/{item}")
        def get_item(self):
            pass

    return Wrong(base_url=stub.closed()).get_item()


def too_often():
    api = Api(base_url=stub.answer(200, {}))
    api.get_few()
    api.get_few()


def unknown_host():
    with stub.no_such_host():
        return Api(base_url="http://api.nowhere.example").get_item("1")


def cases():
    yield (
        "the client's own rate limit",
        too_often,
        "transient",
        "firm",
        "uplink/ratelimit.py RateLimitExceeded docstring: exceeded the client-side rate limit",
    )
    yield (
        "no answer in time",
        lambda: Api(base_url=stub.silent()).get_item("1"),
        "transient",
        "firm",
        "clients/exceptions.py ServerTimeout: the server did not send any data in the allotted time",
    )
    yield (
        "connection refused after two attempts",
        lambda: Api(base_url=stub.closed()).get_items(),
        "transient",
        "firm",
        "clients/exceptions.py ConnectionError; retry.CONNECTION_ERROR",
    )
    yield (
        "503",
        lambda: Api(base_url=stub.answer(503, "busy")).get_item("1"),
        "transient",
        "firm",
        "a response handler with raise_for_status; retry.when.status_5xx",
    )
    yield (
        "no such item",
        lambda: Api(base_url=stub.answer(404, "no")).get_item("1"),
        "terminal",
        "firm",
        "a response handler with raise_for_status",
    )
    yield (
        "a wrong definition",
        wrong,
        "terminal",
        "firm",
        "exceptions.py UplinkBuilderError: something went wrong while building a service",
    )
    yield (
        "bad certificate",
        lambda: Api(base_url=stub.self_signed()).get_item("1"),
        "terminal",
        "firm",
        "clients/exceptions.py SSLError: certificate verification failed",
    )
    yield ("unknown host", unknown_host, "terminal", "firm", "the host name does not exist")
