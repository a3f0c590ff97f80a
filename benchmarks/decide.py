"""The cost of a verdict: ``decide()`` on common exceptions, compared with a ladder of
``isinstance``."""

from __future__ import annotations

import errno
import json
import socket
import sqlite3
import statistics
import subprocess
import time
from collections.abc import Callable

import httpx
import pydantic
import redis
import requests
import sqlalchemy

from benchmarks.rounds import compare
from celery_dlq import decide

ROUNDS, CALLS = 40, 200
CHAIN = 5


class AppError(Exception):
    """An exception of an application, which no rule knows."""


def run() -> dict[str, float]:
    """By way, the median over a mix of exceptions, as a ratio to the ladder's."""
    mixed, chained = mix(), [chain()]
    return compare(
        f"one decision, the median over {len(mixed)} kinds of exceptions",
        {
            "isinstance": lambda: _median(_ladder, mixed),
            "decide": lambda: _median(decide, mixed),
            f"decide, {CHAIN} deep": lambda: _median(decide, chained),
        },
        rounds=ROUNDS,
        show=lambda seconds: f"{seconds * 1e6:.2f} us",
    )


def mix() -> list[BaseException]:
    """Common exceptions, raised or made as their libraries make them."""
    return [
        ValueError("invalid"),
        KeyError("missing"),
        TypeError("no number"),
        ZeroDivisionError("division by zero"),
        json.JSONDecodeError("invalid", "{", 0),
        _validation_error(),
        FileNotFoundError(errno.ENOENT, "no file"),
        OSError(errno.ENOSPC, "no space"),
        TimeoutError("timed out"),
        ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
        socket.gaierror(socket.EAI_AGAIN, "later"),
        subprocess.TimeoutExpired("sleep", 1),
        sqlite3.IntegrityError("twice"),
        sqlalchemy.exc.NoResultFound("none"),
        redis.ConnectionError("gone"),
        requests.ConnectionError("gone"),
        requests.HTTPError("404", response=_answer(requests.Response(), 404)),
        requests.HTTPError("503", response=_answer(requests.Response(), 503)),
        httpx.ConnectTimeout("timed out"),
        AppError("what"),
    ]


def chain() -> BaseException:
    """Wrappers of an application around a lost connection."""
    exc: BaseException = ConnectionResetError(errno.ECONNRESET, "reset")
    for _ in range(CHAIN - 1):
        outer = AppError("failed")
        outer.__cause__ = exc
        exc = outer
    return exc


def _validation_error() -> BaseException:
    try:
        pydantic.TypeAdapter(int).validate_python("x")
    except pydantic.ValidationError as error:
        return error
    raise AssertionError("x is no number")


def _answer(response: requests.Response, status: int) -> requests.Response:
    response.status_code = status
    response.headers.update({f"X-Header-{number}": "value" for number in range(10)})
    return response


def _ladder(exc: BaseException) -> bool:
    """What people write by hand, for the same kinds."""
    if isinstance(exc, (requests.HTTPError, httpx.HTTPStatusError)):
        return exc.response is not None and exc.response.status_code in {429, 502, 503, 504}
    if isinstance(exc, (ValueError, TypeError, LookupError, ArithmeticError)):
        return False
    if isinstance(exc, (requests.RequestException, httpx.TransportError, redis.ConnectionError)):
        return True
    if isinstance(exc, (TimeoutError, ConnectionError, subprocess.TimeoutExpired)):
        return True
    return isinstance(exc, OSError) and exc.errno in {errno.ENOSPC, socket.EAI_AGAIN}


def _median(ask: Callable[[BaseException], object], exceptions: list[BaseException]) -> float:
    """Seconds for one exception, the median over all of them."""
    return statistics.median(_seconds(ask, exc) for exc in exceptions)


def _seconds(ask: Callable[[BaseException], object], exc: BaseException) -> float:
    # The time of this thread only, without other programs.
    began = time.thread_time()
    for _ in range(CALLS):
        ask(exc)
    return (time.thread_time() - began) / CALLS
