"""For tests of the built-in rules: raise a real error, and see what is made of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celery_dlq.classify import Decision, decide


def raised(function: Callable[..., object], *args: object, **kwargs: object) -> Exception:
    """What ``function`` raises; a failed test if it raises nothing."""
    with pytest.raises(Exception) as caught:
        function(*args, **kwargs)
    return caught.value


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
