"""HTTP answers: the meaning of a status, and the ways in which services say more than their status. Then
probes of clients of HTTP and WebSocket, and of limits that say when they end.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from celery_dlq.classify.builtin.codes import numbers
from celery_dlq.classify.evidence import Source, arguments, message, number, read, text_of
from celery_dlq.classify.evidence import status as find_status
from celery_dlq.classify.table import Finding, Probe, transient_if
from celery_dlq.classify.wait import headers, retry_after
from celery_dlq.model.states import Verdict

TRANSIENT_STATUSES = numbers("http.transient")

# Terminal as such, but an answer that names a time to come back has said that it will pass:
# GitHub's secondary limits are 403, RFC 9110 (15.5.14) says so of 413.
_TRANSIENT_WITH_RETRY_AFTER = frozenset({403, 413, 500, 507})


def status_verdict(code: int) -> Verdict:
    """The verdict of an HTTP status alone. 500 means "unknown", and so does every unlisted status: RFC
    9110 says of 503 that the service will likely be back after some delay (15.6.4), of 500 only that
    the server met an unexpected condition (15.6.1)."""
    return Verdict.TRANSIENT if code in TRANSIENT_STATUSES else Verdict.TERMINAL


def http_status(*sources: Source, passing: Collection[int] = ()) -> Probe:
    """A probe that reads the status from ``sources``, the headers where the status alone is unclear.

    :param passing: further statuses that the service documents as worth another attempt.
    """

    def probe(exc: BaseException) -> Finding | None:
        found = find_status(exc, sources)
        if found is None:
            return None
        code, source = found
        evidence = f"status={code} from {source}"
        if code in _TRANSIENT_WITH_RETRY_AFTER and retry_after(exc) is not None:
            return Finding(Verdict.TRANSIENT, "http.status", f"{evidence}, with Retry-After")
        if code == 403 and headers(exc).get("x-ratelimit-remaining") == "0":
            # GitHub's primary limit: docs.github.com, "Rate limits for the REST API".
            return Finding(Verdict.TRANSIENT, "http.status", f"{evidence}, rate limit used up")
        passes = code in passing or status_verdict(code) is Verdict.TRANSIENT
        return transient_if(passes, "http.status", evidence)

    return probe


def status_in_text(
    pattern: str,
    rule: str = "http.status",
    evidence: str = "status={}",
    passing: Collection[int] = (),
) -> Probe:
    """A probe for a library that keeps the status in the message only.

    :param pattern: matches the beginning of the message; its group is the status.
    :param evidence: the text to show, with ``{}`` for the status.
    :param passing: further statuses that the service documents as worth another attempt.
    """
    compiled = re.compile(pattern)

    def probe(exc: BaseException) -> Finding | None:
        match = compiled.match(message(exc))
        if match is None:
            return None
        code = int(match[1])
        return transient_if(
            code in passing or code in TRANSIENT_STATUSES, rule, evidence.format(code)
        )

    return probe


def header_says(name: str, rule: str) -> Probe:
    """A probe for the header in which a service says outright whether to try again."""
    verdicts = {"true": Verdict.TRANSIENT, "false": Verdict.TERMINAL}

    def probe(exc: BaseException) -> Finding | None:
        said = headers(exc).get(name, "").strip().lower()
        return Finding(verdicts[said], rule, f"{name}: {said}") if said in verdicts else None

    return probe


def word(
    rule: str, *sources: Source, passing: Collection[str] = (), lasting: Collection[str] = ()
) -> Probe:
    """A probe for a service's own error code: the first of ``sources`` that holds a listed word."""

    def probe(exc: BaseException) -> Finding | None:
        for source in sources:
            found = text_of(read(exc, *source))
            if found in passing or found in lasting:
                return transient_if(found in passing, rule, f"{'.'.join(source)}={found}")
        return None

    return probe


def status(_rule: str, *words: str) -> Probe:
    """A probe for a row: :func:`http_status` of these paths. ``+500`` is a further passing status."""
    sources = [tuple(word.split(".")) for word in words if not word.startswith("+")]
    return http_status(*sources, passing={int(word) for word in words if word.startswith("+")})


def listed(rule: str, path: str, *passing: str) -> Probe:
    """A probe for a row: transient if the number at ``path`` is one of ``passing``, otherwise terminal."""

    def probe(exc: BaseException) -> Finding:
        code = number(read(exc, *path.split(".")))
        return transient_if(str(code) in passing, rule, f"{path}={code}")

    return probe


def flag(rule: str, name: str) -> Probe:
    """A probe for a row: transient if the flag is True. False is its default, and so means nothing."""

    def probe(exc: BaseException) -> Finding | None:
        is_set = read(exc, name) is True
        return Finding(Verdict.TRANSIENT, rule, f"{name}=True") if is_set else None

    return probe


def in_turn(*probes: Probe) -> Probe:
    """One probe out of several: the first that finds something."""

    def probe(exc: BaseException) -> Finding | None:
        return next((found for ask in probes if (found := ask(exc)) is not None), None)

    return probe


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
