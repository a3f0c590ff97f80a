"""HTTP: the status table, and the client libraries that carry a status or a network failure."""

from __future__ import annotations

import re

from celery_dlq.classify.evidence import STATUS_SOURCES, Source, message, status
from celery_dlq.classify.table import (
    Finding,
    Probe,
    Row,
    network,
    probed,
    terminal,
    transient,
    within,
    wrapper,
)
from celery_dlq.classify.wait import headers, retry_after
from celery_dlq.states import Verdict

# 408, 502, 503, 504: RFC 9110, 15. 423: RFC 4918, 11.3 (a lock is released). 425: RFC 8470.
# 429: RFC 6585. 509, 529, 530, 598, 599: overload and proxy timeouts as in common use.
# 520-524: Cloudflare could not get an answer from the origin.
TRANSIENT_STATUSES = frozenset(
    {408, 423, 425, 429, 502, 503, 504, 509, 520, 521, 522, 523, 524, 529, 530, 598, 599}
)

# Terminal as such, but an answer that names a time to come back has said that it will pass:
# GitHub's secondary limits are 403, RFC 9110 (15.5.14) says so of 413.
_TRANSIENT_WITH_RETRY_AFTER = frozenset({403, 413, 500, 507})

# urllib3/util/retry.py: ResponseError.SPECIFIC_ERROR and TOO_MANY_REDIRECTS, which has no number.
_TOO_MANY_ANSWERS = re.compile(r"too many ([0-9]{3}) error responses")

# httpcore/_sync/http_proxy.py: "%d %s" of the answer to CONNECT.
_PROXY_ANSWER = re.compile(r"([0-9]{3}) ")


def status_verdict(code: int) -> Verdict:
    """What an HTTP status says by itself. 500 is "don't know", and so is every unlisted one."""
    return Verdict.TRANSIENT if code in TRANSIENT_STATUSES else Verdict.TERMINAL


def http_status(*sources: Source) -> Probe:
    """A probe that reads the status from ``sources``, the headers where the status alone is unclear."""

    def probe(exc: BaseException) -> Finding | None:
        found = status(exc, sources)
        if found is None:
            return None
        code, source = found
        evidence = f"status={code} from {source}"
        if code in _TRANSIENT_WITH_RETRY_AFTER and retry_after(exc) is not None:
            return Finding(Verdict.TRANSIENT, "http.status", f"{evidence}, with Retry-After")
        if code == 403 and headers(exc).get("x-ratelimit-remaining") == "0":
            # GitHub's primary limit: docs.github.com, "Rate limits for the REST API".
            return Finding(Verdict.TRANSIENT, "http.status", f"{evidence}, rate limit used up")
        return Finding(status_verdict(code), "http.status", evidence)

    return probe


any_status = http_status(*STATUS_SOURCES)


def urllib3_response(exc: BaseException) -> Finding:
    """urllib3 gave up on the answers themselves; only the text says which status they had."""
    text = message(exc)
    match = _TOO_MANY_ANSWERS.match(text)
    verdict = status_verdict(int(match[1])) if match else Verdict.TERMINAL
    return Finding(verdict, "http.retries", f"status={match[1]}" if match else "no status")


def proxy_answer(exc: BaseException) -> Finding | None:
    """httpcore's ProxyError: the proxy's refusal, where there was an answer at all."""
    match = _PROXY_ANSWER.match(message(exc))
    if match is None:
        return None
    return Finding(status_verdict(int(match[1])), "http.proxy", f"the proxy answered {match[1]}")


_STDLIB = (
    # http/client.py; the other HTTPExceptions are misuse or an answer that is no HTTP.
    transient("http.closed", *within("http.client", "RemoteDisconnected IncompleteRead")),
    terminal("http.url", "http.client.InvalidURL"),
    terminal("http.protocol", "http.client.HTTPException"),
    probed("http.status", http_status(("code",)), "the status in code", "urllib.error.HTTPError"),
    transient("http.closed", "urllib.error.ContentTooShortError"),
    wrapper("urllib.reason", "the exception in reason", "urllib.error.URLError"),
    probed(
        "http.status",
        http_status(("errcode",)),
        "the status in errcode",
        "xmlrpc.client.ProtocolError",
    ),
    # An XML-RPC fault code is the application's own number.
    terminal("xmlrpc.fault", "xmlrpc.client.Fault"),
)

# requests/exceptions.py. RequestException carries the response as well.
_REQUESTS = (
    probed(
        "http.status",
        http_status(("response", "status_code")),
        "response.status_code",
        *within("requests.exceptions", "HTTPError RequestException"),
    ),
    network(
        "http.network",
        *within(
            "requests.exceptions",
            "ConnectionError Timeout ChunkedEncodingError ProxyError SSLError RetryError",
        ),
    ),
    terminal(
        "http.url",
        *within("requests.exceptions", "InvalidURL InvalidSchema MissingSchema URLRequired"),
    ),
    terminal(
        "http.usage",
        *within(
            "requests.exceptions",
            "TooManyRedirects InvalidHeader StreamConsumedError UnrewindableBodyError",
        ),
    ),
    terminal(
        "http.content", *within("requests.exceptions", "InvalidJSONError ContentDecodingError")
    ),
)

# urllib3/exceptions.py, versions 1.26 and 2.
_URLLIB3 = (
    network(
        "http.network",
        *within(
            "urllib3.exceptions",
            "MaxRetryError TimeoutError NewConnectionError NameResolutionError ReadTimeoutError "
            "ProtocolError SSLError ProxyError",
        ),
    ),
    transient("http.pool", *within("urllib3.exceptions", "EmptyPoolError FullPoolError")),
    transient("http.closed", *within("urllib3.exceptions", "IncompleteRead InvalidChunkLength")),
    probed(
        "http.retries",
        urllib3_response,
        "the status in the message",
        "urllib3.exceptions.ResponseError",
    ),
    terminal(
        "http.url", *within("urllib3.exceptions", "LocationValueError ProxySchemeUnsupported")
    ),
    terminal(
        "http.usage",
        *within(
            "urllib3.exceptions",
            "InvalidHeader UnrewindableBodyError BodyNotHttplibCompatible ResponseNotChunked "
            "TimeoutStateError HostChangedError",
        ),
    ),
    terminal("http.content", *within("urllib3.exceptions", "DecodeError HeaderParsingError")),
)


def _httpx(package: str, core: str) -> tuple[Row, ...]:
    """httpx/_exceptions.py and httpcore/_exceptions.py, both of which rewrite ``__module__``."""
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


# aiohttp/client_exceptions.py. ClientPayloadError stays without a look at its cause, which has a
# code of 400 that is about the parser.
_AIOHTTP = (
    probed(
        "http.status",
        http_status(("status",)),
        "status",
        "aiohttp.client_exceptions.ClientResponseError",
    ),
    network("http.network", "aiohttp.client_exceptions.ClientConnectionError"),
    transient(
        "http.closed",
        *within(
            "aiohttp.client_exceptions",
            "ServerDisconnectedError ServerTimeoutError ClientPayloadError",
        ),
    ),
    terminal(
        "tls.certificate",
        *within(
            "aiohttp.client_exceptions",
            "ClientConnectorCertificateError ServerFingerprintMismatch",
        ),
    ),
    terminal("http.url", *within("aiohttp.client_exceptions", "InvalidURL NonHttpUrlClientError")),
    terminal("http.usage", "aiohttp.client_exceptions.TooManyRedirects"),
)

ROWS = (
    *_STDLIB,
    *_REQUESTS,
    *_URLLIB3,
    # httpx2 and httpcore2 are the same libraries under the names that openai 3 and anthropic 2 use.
    *_httpx("httpx", "httpcore"),
    *_httpx("httpx2", "httpcore2"),
    *_AIOHTTP,
)
