"""requests: requests/exceptions.py. botocore still carries version 2.7 for its bases."""

from __future__ import annotations

from celery_dlq.classify.builtin.http import http_status
from celery_dlq.classify.table import Row, network, probed, terminal, within


def _requests(module: str) -> tuple[Row, ...]:
    return (
        # RequestException carries the response as well.
        probed(
            "http.status",
            http_status(("response", "status_code")),
            "response.status_code",
            *within(module, "HTTPError RequestException"),
        ),
        network(
            "http.network",
            *within(
                module,
                "ConnectionError Timeout ChunkedEncodingError ProxyError SSLError RetryError",
            ),
        ),
        terminal("http.url", *within(module, "InvalidURL InvalidSchema MissingSchema URLRequired")),
        terminal("http.usage", *within(module, "TooManyRedirects StreamConsumedError")),
        terminal("http.content", f"{module}.ContentDecodingError"),
    )


ROWS = (
    *_requests("requests.exceptions"),
    terminal("http.usage", *within("requests.exceptions", "InvalidHeader UnrewindableBodyError")),
    terminal("http.usage", "requests.cookies.CookieConflictError"),
    terminal("http.content", "requests.exceptions.InvalidJSONError"),
    *_requests("botocore.vendored.requests.exceptions"),
)
