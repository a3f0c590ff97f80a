"""Probes of clients of HTTP and WebSocket, and of limits that say when they end."""

from __future__ import annotations

import re

from celery_dlq.classify.builtin.codes import numbers
from celery_dlq.classify.builtin.http import (
    status_in_text,
    status_verdict,
)
from celery_dlq.classify.evidence import arguments, number, read, text_of
from celery_dlq.classify.table import Finding, Probe, transient_if
from celery_dlq.model.states import Verdict

# urllib3/util/retry.py: ResponseError.SPECIFIC_ERROR and TOO_MANY_REDIRECTS, which has no number.
# urllib3 gave up on the answers themselves; only the text has their status.
urllib3_response: Probe = status_in_text(r"too many ([0-9]{3}) error responses", "http.retries")

# httpcore/_sync/http_proxy.py: "%d %s" of the answer to CONNECT, if there was one.
httpcore_proxy: Probe = status_in_text(r"([0-9]{3}) ", "http.proxy", "the proxy answered {}")

CURL_CODES = numbers("curl.codes")

_HTTP_RETURNED_ERROR = 22
_SSL_CONNECT_ERROR = 35
# Depending on the version of curl, either code means that the proxy refused.
_PROXY_CODES = frozenset({7, 56})

# lib/http.c and lib/cf-h1-proxy.c: the status stands in the text only.
_CURL_STATUS = re.compile(r"The requested URL returned error: ([0-9]{3})")
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
    return _by_text(code, text) or transient_if(code in CURL_CODES, "curl.code", f"code={code}")


def _by_text(code: int, text: str) -> Finding | None:
    if code == _SSL_CONNECT_ERROR and _CUT.search(text):
        return Finding(Verdict.TRANSIENT, "curl.code", f"code={code}, connection cut")
    answer = _CURL_STATUS.match(text) if code == _HTTP_RETURNED_ERROR else None
    if answer:
        return Finding(status_verdict(int(answer[1])), "http.status", f"status={answer[1]}")
    refusal = _PROXY_STATUS.match(text) if code in _PROXY_CODES else None
    if refusal:
        status = refusal[1] or refusal[2]
        return Finding(status_verdict(int(status)), "http.proxy", f"the proxy answered {status}")
    return None


# RFC 6455, 7.4.1, and IANA's registry. 1001 going away, 1005 and 1006 closed without a reason,
# 1011 internal error, 1012 restart, 1013 try again later, 1014 bad gateway. Never on the wire, and
# so only from websockets itself, is 1015, a failed TLS handshake.
CLOSE_CODES = frozenset({1001, 1005, 1006, 1011, 1012, 1013, 1014})

_ABNORMAL = 1006


def close_code(exc: BaseException) -> Finding:
    """The code of the other side's close frame, or of our own; 1006 if there was neither."""
    # Not `.code`, which warns since version 13.1.
    codes = (number(read(exc, frame, "code")) for frame in ("rcvd", "sent"))
    return by_close_code(next((code for code in codes if code is not None), _ABNORMAL))


def lost(exc: BaseException) -> Finding:
    """websocket-client: ``status_code`` is the code of the close frame, if there was one."""
    code = number(read(exc, "status_code"))
    return by_close_code(_ABNORMAL if code is None else code)


def by_close_code(code: int) -> Finding:
    """The finding about the code of a WebSocket's close frame."""
    return transient_if(code in CLOSE_CODES, "websocket.close", f"close code={code}")


def no_answer(exc: BaseException) -> Finding:
    """InvalidMessage: the connection ended before an answer, or the answer is not HTTP."""
    cause = type(read(exc, "__cause__"))
    cut = issubclass(cause, (EOFError, ConnectionError))
    return transient_if(cut, "websocket.handshake", "closed early" if cut else "no HTTP answer")


# websocket/_http.py, _tunnel(): the answer of the proxy, if there was one.
websocket_proxy: Probe = status_in_text(
    r"failed CONNECT via proxy status: ([0-9]{3})", "http.proxy", "the proxy answered {}"
)


# -- ratelimit and Django REST framework ------------------------------------------------------------

_LONGEST_S = 86_400.0


def call_limit(exc: BaseException) -> Finding:
    """ratelimit's ``RateLimitException``: ``period_remaining`` are the seconds until the next call."""
    left = read(exc, "period_remaining")
    known = (type(left) is float or type(left) is int) and 0 <= left <= _LONGEST_S
    wait = float(left) if known else None
    return Finding(
        Verdict.TRANSIENT, "limit.calls", "type=RateLimitException", wait, throttled=True
    )


def throttled(exc: BaseException) -> Finding:
    """rest_framework/exceptions.py: ``wait`` is a number of seconds, or None."""
    wait = number(read(exc, "wait"))
    seconds = float(wait) if wait is not None and wait >= 0 else None
    return Finding(Verdict.TRANSIENT, "drf.throttled", f"wait={wait}", seconds, throttled=True)
