"""urllib3: urllib3/exceptions.py of 1.26 and 2, and the copy within old versions of requests."""

from __future__ import annotations

import re

from celery_dlq.classify.builtin.behind import lasting_copy
from celery_dlq.classify.builtin.http import status_verdict
from celery_dlq.classify.evidence import message
from celery_dlq.classify.table import Finding, Row, network, probed, terminal, transient, within
from celery_dlq.model.states import Verdict

# urllib3/util/retry.py: ResponseError.SPECIFIC_ERROR and TOO_MANY_REDIRECTS, which has no number.
_TOO_MANY_ANSWERS = re.compile(r"too many ([0-9]{3}) error responses")


def urllib3_response(exc: BaseException) -> Finding:
    """urllib3 gave up on the answers themselves; only the text says which status they had."""
    match = _TOO_MANY_ANSWERS.match(message(exc))
    verdict = status_verdict(int(match[1])) if match else Verdict.TERMINAL
    return Finding(verdict, "http.retries", f"status={match[1]}" if match else "no status")


def _urllib3(module: str) -> tuple[Row, ...]:
    return (
        network(
            "http.network",
            *within(
                module,
                "MaxRetryError TimeoutError ProtocolError SSLError ProxyError",
            ),
        ),
        # Both are a TimeoutError; before 2 they were other things as well, in other orders.
        network("http.network", *within(module, "ConnectTimeoutError ReadTimeoutError")),
        transient("http.pool", f"{module}.EmptyPoolError"),
        probed(
            "http.retries",
            urllib3_response,
            "the status in the message",
            f"{module}.ResponseError",
        ),
        terminal("http.url", f"{module}.LocationValueError"),
        terminal(
            "http.usage",
            *within(
                module, "ClosedPoolError ResponseNotChunked TimeoutStateError HostChangedError"
            ),
        ),
        terminal("http.content", f"{module}.DecodeError"),
    )


ROWS = (
    *_urllib3("urllib3.exceptions"),
    network("http.network", "urllib3.exceptions.NewConnectionError"),
    network("http.network", "urllib3.exceptions.NameResolutionError", probe=lasting_copy),
    transient("http.pool", "urllib3.exceptions.FullPoolError"),
    transient("http.closed", *within("urllib3.exceptions", "IncompleteRead InvalidChunkLength")),
    terminal(
        "http.url", *within("urllib3.exceptions", "ProxySchemeUnknown ProxySchemeUnsupported")
    ),
    terminal(
        "http.usage",
        *within(
            "urllib3.exceptions", "InvalidHeader UnrewindableBodyError BodyNotHttplibCompatible"
        ),
    ),
    terminal("http.content", "urllib3.exceptions.HeaderParsingError"),
    # A ValueError, not ssl.CertificateError: the host name is not that of the certificate.
    terminal(
        "tls.certificate",
        "urllib3.util.ssl_match_hostname.CertificateError",
        "urllib3.packages.ssl_match_hostname._implementation.CertificateError",
    ),
    *_urllib3("botocore.vendored.requests.packages.urllib3.exceptions"),
    *_urllib3("requests.packages.urllib3.exceptions"),
)
