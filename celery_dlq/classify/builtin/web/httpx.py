"""httpx and httpcore, and the same libraries under the names that openai 3 and anthropic 2 use.

httpx/_exceptions.py, httpcore/_exceptions.py; both rewrite ``__module__``.
"""

from __future__ import annotations

import re

from celery_dlq.classify.builtin.behind import lasting_copy
from celery_dlq.classify.builtin.http import http_status, status_verdict
from celery_dlq.classify.evidence import message
from celery_dlq.classify.table import Finding, Row, network, probed, terminal, within

# httpcore/_sync/http_proxy.py: "%d %s" of the answer to CONNECT.
_PROXY_ANSWER = re.compile(r"([0-9]{3}) ")


def proxy_answer(exc: BaseException) -> Finding | None:
    """httpcore's ProxyError: the proxy's refusal, where there was an answer at all."""
    match = _PROXY_ANSWER.match(message(exc))
    if match is None:
        return None
    return Finding(status_verdict(int(match[1])), "http.proxy", f"the proxy answered {match[1]}")


def _httpx(package: str, core: str) -> tuple[Row, ...]:
    return (
        probed(
            "http.status",
            http_status(("response", "status_code")),
            "response.status_code",
            f"{package}.HTTPStatusError",
        ),
        network(
            "http.network",
            *within(package, "TimeoutException NetworkError ProxyError RemoteProtocolError"),
            *within(
                core, "TimeoutException NetworkError RemoteProtocolError ConnectionNotAvailable"
            ),
        ),
        network(
            "http.network", f"{package}.ConnectError", f"{core}.ConnectError", probe=lasting_copy
        ),
        network("http.proxy", f"{core}.ProxyError", probe=proxy_answer),
        terminal(
            "http.url",
            *within(package, "InvalidURL UnsupportedProtocol"),
            f"{core}.UnsupportedProtocol",
        ),
        terminal(
            "http.usage",
            *within(package, "LocalProtocolError TooManyRedirects StreamError CookieConflict"),
            f"{core}.LocalProtocolError",
        ),
        terminal("http.content", f"{package}.DecodingError"),
    )


ROWS = (
    *_httpx("httpx", "httpcore"),
    *_httpx("httpx2", "httpcore2"),
    # An answer that is no event stream.
    terminal(
        "http.content",
        "httpx2.SSEError",
        "httpx_sse._exceptions.SSEError",
        "cohere.core.http_sse._exceptions.SSEError",
    ),
    # h11/_util.py. httpcore translates them; other users of h11 do not.
    network("http.network", "h11._util.RemoteProtocolError"),
    terminal("http.usage", "h11._util.LocalProtocolError"),
)
