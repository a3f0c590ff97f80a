"""websockets: websockets/exceptions.py, websockets/legacy/exceptions.py; and websocket-client."""

from __future__ import annotations

import re

from celery_dlq.classify.builtin.http import http_status, in_turn, otherwise, status_verdict
from celery_dlq.classify.evidence import message, number, read
from celery_dlq.classify.table import Finding, probed, terminal, transient, within, wrapper
from celery_dlq.model.states import Verdict

# RFC 6455, 7.4.1, and IANA's registry. 1001 going away, 1005 and 1006 closed without a reason,
# 1011 internal error, 1012 restart, 1013 try again later, 1014 bad gateway. Never on the wire, and
# so only from websockets itself, is 1015, a failed TLS handshake.
TRANSIENT_CLOSE_CODES = frozenset({1001, 1005, 1006, 1011, 1012, 1013, 1014})

_ABNORMAL = 1006

# websocket/_http.py, _tunnel().
_PROXY_ANSWER = re.compile(r"failed CONNECT via proxy status: ([0-9]{3})")


def close_code(exc: BaseException) -> Finding:
    """The code of the other side's close frame, else of our own; 1006 when there was neither."""
    # Not `.code`, which warns since version 13.1.
    codes = (number(read(exc, frame, "code")) for frame in ("rcvd", "sent"))
    return _by_close_code(next((code for code in codes if code is not None), _ABNORMAL))


def lost(exc: BaseException) -> Finding:
    """websocket-client: ``status_code`` is that of a close frame, where there was one."""
    code = number(read(exc, "status_code"))
    return _by_close_code(_ABNORMAL if code is None else code)


def _by_close_code(code: int) -> Finding:
    verdict = Verdict.TRANSIENT if code in TRANSIENT_CLOSE_CODES else Verdict.TERMINAL
    return Finding(verdict, "websocket.close", f"close code={code}")


def proxy_answer(exc: BaseException) -> Finding | None:
    """websocket-client: the proxy's refusal, where there was an answer at all."""
    match = _PROXY_ANSWER.match(message(exc))
    if match is None:
        return None
    return Finding(status_verdict(int(match[1])), "http.proxy", f"the proxy answered {match[1]}")


def no_answer(exc: BaseException) -> Finding:
    """InvalidMessage: the connection ended before an answer, or the answer is none."""
    cause = type(read(exc, "__cause__"))
    cut = issubclass(cause, (EOFError, ConnectionError))
    verdict = Verdict.TRANSIENT if cut else Verdict.TERMINAL
    return Finding(verdict, "websocket.handshake", "closed early" if cut else "no HTTP answer")


_WEBSOCKET_CLIENT = (
    # websocket/_exceptions.py. The base class is raised over errors of sockets and TLS.
    probed(
        "websocket.close",
        lost,
        "the code of the close frame in status_code",
        "websocket._exceptions.WebSocketConnectionClosedException",
    ),
    transient("websocket.timeout", "websocket._exceptions.WebSocketTimeoutException"),
    probed(
        "http.status",
        in_turn(http_status(("status_code",)), otherwise(Verdict.TERMINAL, "websocket.handshake")),
        "status_code",
        "websocket._exceptions.WebSocketBadStatusException",
    ),
    probed(
        "http.proxy",
        proxy_answer,
        "the proxy's answer in the message, else its cause",
        "websocket._exceptions.WebSocketProxyException",
    ),
    terminal(
        "websocket.protocol",
        *within("websocket._exceptions", "WebSocketProtocolException WebSocketPayloadException"),
    ),
    wrapper(
        "websocket.wrapped",
        "the error in args[0], or its cause",
        *within("websocket._exceptions", "WebSocketAddressException WebSocketException"),
    ),
)

_WEBSOCKETS = (
    probed(
        "websocket.close",
        close_code,
        "the code of the close frame",
        "websockets.exceptions.ConnectionClosed",
    ),
    probed(
        "http.status",
        in_turn(
            http_status(("response", "status_code"), ("status_code",), ("status",)),
            otherwise(Verdict.TERMINAL, "websocket.handshake"),
        ),
        "response.status_code, status_code or status",
        *within("websockets.exceptions", "InvalidStatus InvalidProxyStatus InvalidStatusCode"),
        *within("websockets.exceptions", "AbortHandshake"),
        *within("websockets.legacy.exceptions", "InvalidStatusCode AbortHandshake"),
    ),
    # websockets/client.py, process_exception(): "InvalidMessage when it stems from an EOFError".
    probed(
        "websocket.handshake",
        no_answer,
        "whether the connection was cut",
        *within("websockets.exceptions", "InvalidMessage InvalidProxyMessage"),
    ),
    terminal("http.url", *within("websockets.exceptions", "InvalidURI InvalidProxy")),
    terminal("websocket.handshake", "websockets.exceptions.InvalidHandshake"),
    terminal(
        "websocket.protocol",
        *within(
            "websockets.exceptions",
            "ProtocolError WebSocketProtocolError PayloadTooBig InvalidState ConcurrencyError "
            "TooManyFragments",
        ),
    ),
)

ROWS = (*_WEBSOCKETS, *_WEBSOCKET_CLIENT)
