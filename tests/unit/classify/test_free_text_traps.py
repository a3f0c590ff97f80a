"""Messages that hold 503, 429, "timeout" or "connection" by chance, and errors that hold none of it.

A rule that looks for such words in ``str(exc)`` gets every line of this table wrong.
"""

import errno
from types import SimpleNamespace

import pytest

from celery_dlq.classify import decide


def http_error(status, text):
    kind = type("HTTPError", (OSError,), {"__module__": "requests.exceptions"})
    exc = kind(text)
    exc.response = SimpleNamespace(status_code=status, headers={})
    return exc


def named(module, name, *args, **attributes):
    exc = type(name, (Exception,), {"__module__": module})(*args)
    exc.__dict__.update(attributes)
    return exc


@pytest.mark.parametrize(
    "exc",
    [
        KeyError("pin 503001 not in tax table"),
        ValueError("invoice 14290 already settled"),
        TypeError("quantity 1503 exceeds stock"),
        FileNotFoundError(errno.ENOENT, "No such file", "/data/batch-503.csv"),
        http_error(404, "404 Client Error: Not Found for url: http://x/orders/15037"),
        http_error(400, "400 Client Error: Bad Request for url: http://x/pins/429001"),
        http_error(500, "500 Server Error: timeout while connecting"),
        RuntimeError("connection timeout, try again, 503 Service Unavailable"),
        named("shop.errors", "ServiceUnavailable", "503"),
        ValueError("rate limit must be positive"),
        named("amqp.exceptions", "AMQPError", "503 COMMAND_INVALID", code=503),
        named("xmlrpc.client", "Fault", "<Fault 503: 'no'>", faultCode=503),
    ],
    ids=repr,
)
def test_words_make_nothing_transient(exc):
    assert decide(exc).verdict.value == "terminal"


@pytest.mark.parametrize(
    "exc",
    [
        ConnectionRefusedError(),
        BrokenPipeError(),
        OSError(errno.EHOSTUNREACH, "No route to host"),
        named("requests.exceptions", "ConnectionError", "Max retries exceeded"),
        http_error(502, "Bad Gateway"),
        http_error(504, "Gateway Time-out"),
        named("psycopg", "Error", "could not serialize access", sqlstate="40001"),
        named("psycopg", "Error", "canceling statement", sqlstate="55P03"),
        named("redis.exceptions", "BusyLoadingError", "Redis is loading the dataset"),
    ],
    ids=repr,
)
def test_transient_errors_need_no_words(exc):
    assert decide(exc).verdict.value == "transient"
