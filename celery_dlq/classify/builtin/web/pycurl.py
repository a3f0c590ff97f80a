"""pycurl: one class for everything; the first argument is a code of curl/curl.h."""

from __future__ import annotations

import re

from celery_dlq.classify.builtin.http import status_verdict
from celery_dlq.classify.evidence import arguments, number, text_of
from celery_dlq.classify.table import Finding, probed
from celery_dlq.model.states import Verdict

# curl.se/libcurl/c/libcurl-errors.html. 7 could not connect, 12 FTP accept timeout, 16 HTTP/2
# framing, 18 partial file, 28 timeout, 45 interface, 52 empty answer, 55 and 56 send and receive,
# 81 socket not ready, 89 no connection free, 92 HTTP/2 stream, 95 HTTP/3, 96 QUIC connect.
TRANSIENT_CODES = frozenset({7, 12, 16, 18, 28, 45, 52, 55, 56, 81, 89, 92, 95, 96})

_HTTP_RETURNED_ERROR = 22
_SSL_CONNECT_ERROR = 35
# Both, by the version of curl, say that a proxy refused.
_PROXY_CODES = frozenset({7, 56})

# lib/http.c and lib/cf-h1-proxy.c: the status stands in the text only.
_STATUS = re.compile(r"The requested URL returned error: ([0-9]{3})")
_PROXY_STATUS = re.compile(
    r"CONNECT tunnel failed, response ([0-9]{3})|Received HTTP code ([0-9]{3}) from proxy"
)
# lib/vtls/openssl.c and the error strings of OpenSSL: the line was cut during the handshake.
_CUT = re.compile(
    r"(send|recv) failure|reset by peer|unexpected eof|SSL_ERROR_SYSCALL", re.IGNORECASE
)


def curl_code(exc: BaseException) -> Finding | None:
    """``args[0]``, and the text where a code has two meanings."""
    args = arguments(exc)
    code = number(args[0]) if args else None
    if code is None:
        return None
    text = (text_of(args[1]) or "") if len(args) > 1 else ""
    return _by_text(code, text) or Finding(_verdict(code), "curl.code", f"code={code}")


def _by_text(code: int, text: str) -> Finding | None:
    if code == _SSL_CONNECT_ERROR and _CUT.search(text):
        return Finding(Verdict.TRANSIENT, "curl.code", f"code={code}, connection cut")
    answer = _STATUS.match(text) if code == _HTTP_RETURNED_ERROR else None
    if answer:
        return Finding(status_verdict(int(answer[1])), "http.status", f"status={answer[1]}")
    refusal = _PROXY_STATUS.match(text) if code in _PROXY_CODES else None
    if refusal:
        status = refusal[1] or refusal[2]
        return Finding(status_verdict(int(status)), "http.proxy", f"the proxy answered {status}")
    return None


def _verdict(code: int) -> Verdict:
    return Verdict.TRANSIENT if code in TRANSIENT_CODES else Verdict.TERMINAL


ROWS = (probed("curl.code", curl_code, "the code in args[0]", "pycurl.error"),)
