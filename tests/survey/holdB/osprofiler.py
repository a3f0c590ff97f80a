"""osprofiler: the driver of VMware Log Insight, which has the exceptions of the library."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))
import holdb_stub as stub  # noqa: E402

LIBRARY = "osprofiler==4.4.0"


def call(base, method="query_events", argument=None, timeout=None):
    from osprofiler.drivers.loginsight import LogInsightClient

    with stub.requests_to(base, timeout):
        getattr(LogInsightClient("host", "user", "password"), method)(
            *([argument or {}] if method != "login" else [])
        )


def query_after_relogin():
    def answer(method, path):
        if "sessions" in path:
            return 200, '{"sessionId": "1234567890"}', {}, 0
        return 440, '{"errorMessage": "Login timeout"}', {}, 0

    call(stub.serve(answer))


def backend(*args):
    from osprofiler.drivers import base

    base.get_driver(*args)


def cases():
    yield (
        "session timed out (440)",
        query_after_relogin,
        "transient",
        "soft",
        (
            "osprofiler/exc.py LogInsightLoginTimeout; drivers/loginsight.py: the client logs in again and"
            " retries once"
        ),
    )
    yield (
        "503 without a body",
        lambda: call(stub.answer(503)),
        "transient",
        "firm",
        "drivers/loginsight.py:199 LogInsightAPIError with the reason 'Service Unavailable'",
    )
    yield (
        "503 with a message",
        lambda: call(
            stub.answer(503, '{"errorMessage": "Log Insight is temporarily unavailable, try again later"}')
        ),
        "transient",
        "firm",
        "drivers/loginsight.py:199 LogInsightAPIError with the errorMessage of the server",
    )
    yield (
        "connection refused",
        lambda: call(stub.refused(), "send_event"),
        "transient",
        "firm",
        "drivers/loginsight.py _send_request: requests' ConnectionError passes through",
    )
    yield (
        "wrong password (401)",
        lambda: call(stub.answer(401, '{"errorMessage": "Invalid username or password."}'), "login"),
        "terminal",
        "firm",
        "drivers/loginsight.py:199 LogInsightAPIError",
    )
    yield (
        "query is malformed (400)",
        lambda: call(stub.answer(400, '{"errorMessage": "Invalid constraint operator."}')),
        "terminal",
        "firm",
        "drivers/loginsight.py:199 LogInsightAPIError",
    )
    yield (
        "backend does not exist",
        lambda: backend("nosuch://localhost"),
        "terminal",
        "firm",
        "drivers/base.py:56 ValueError: driver not found",
    )
    yield (
        "backend is no longer supported",
        lambda: backend("jaeger://localhost"),
        "terminal",
        "firm",
        "drivers/jaeger.py:37 CommandError",
    )
