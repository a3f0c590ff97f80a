"""No verdict depends on what was asked before: real exceptions, asked about in any order."""

import errno
import json
import smtplib
import socket
import ssl
import subprocess

import httpx
import requests
from hypothesis import given
from hypothesis import strategies as st

from celery_dlq.classify.builtin.known import TABLE
from celery_dlq.classify.guarded import shape_of
from celery_dlq.classify.rules import decide


def answered(status, **headers):
    response = requests.Response()
    response.status_code = status
    response.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
    return requests.HTTPError(str(status), response=response)


def by_httpx(status):
    request = httpx.Request("GET", "http://127.0.0.1")
    response = httpx.Response(status, request=request)
    return httpx.HTTPStatusError(str(status), request=request, response=response)


def caused(outer, cause):
    outer.__cause__ = cause
    return outer


EXCEPTIONS = [
    ValueError("x"),
    json.JSONDecodeError("x", "{", 0),
    OSError(errno.ENOSPC, "x"),
    OSError(errno.EINVAL, "x"),
    OSError("text only"),
    ConnectionResetError(errno.ECONNRESET, "x"),
    socket.gaierror(socket.EAI_AGAIN, "x"),
    socket.gaierror(socket.EAI_NONAME, "x"),
    ssl.SSLCertVerificationError(1, "x"),
    subprocess.CalledProcessError(1, "x"),
    subprocess.CalledProcessError(75, "x"),
    smtplib.SMTPDataError(451, b"x"),
    smtplib.SMTPDataError(550, b"x"),
    answered(404),
    answered(429, Retry_After="7"),
    answered(503),
    by_httpx(400),
    by_httpx(502),
    requests.ConnectionError("x"),
    caused(requests.ConnectionError("x"), ssl.SSLCertVerificationError(1, "x")),
    caused(RuntimeError("x"), TimeoutError()),
    caused(RuntimeError("x"), KeyError("x")),
    RuntimeError("x"),
]

FIRST = [decide(exc) for exc in EXCEPTIONS]


@given(st.permutations(range(len(EXCEPTIONS))), st.booleans())
def test_any_order(order, forget):
    if forget:
        TABLE.look_up.clear()
        shape_of.clear()
    for position in order:
        assert decide(EXCEPTIONS[position]) == FIRST[position]


def test_they_differ():
    assert len({(decision.verdict, decision.rule) for decision in FIRST}) > 12
