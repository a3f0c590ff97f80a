"""For tests of the built-in rules: raise a real error, and see what is made of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from celery_dlq.classify import Decision, decide


def raised(function: Callable[..., object], *args: object, **kwargs: object) -> Exception:
    """What ``function`` raises; a failed test if it raises nothing."""
    with pytest.raises(Exception) as caught:
        function(*args, **kwargs)
    return caught.value


def wait_for_first_try(client: Any) -> None:
    """Wait until a client of MongoDB has tried to connect: its error names what happened by then."""
    deadline = time.monotonic() + 60.0
    while not all(one.error for one in client.topology_description.server_descriptions().values()):
        assert time.monotonic() < deadline, "the client of MongoDB does not try to connect"
        time.sleep(0.005)


def judge(exc: BaseException) -> tuple[str, str]:
    """The verdict on ``exc``, and the rule that decides."""
    decision = decide(exc)
    return decision.verdict.value, decision.rule


def decided(call: Callable[..., object], *args: object, **options: object) -> Decision:
    """The decision about what ``call`` raises."""
    return decide(raised(call, *args, **options))


def verdict(call: Callable[..., object], *args: object, **options: object) -> str:
    """The verdict on what ``call`` raises."""
    return decided(call, *args, **options).verdict.value
