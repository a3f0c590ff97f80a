"""``Transient`` and ``Terminal``: a task raises them to decide about its own failure."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from celery_dlq.classify.evidence import arguments, shown_name
from celery_dlq.classify.table import Finding
from celery_dlq.model.states import Verdict

#: How many times one of these may wrap another.
_NESTED = 8


class _Said(Exception):
    """A raised verdict. Its first argument is the exception or text that it is about, since pickling
    keeps arguments."""

    # The name under which people import them, and which letters show.
    __module__ = "celery_dlq"

    def __init__(self, about: BaseException | str = "") -> None:
        super().__init__(about)
        if isinstance(about, BaseException):
            self.__cause__: BaseException = about


class Transient(_Said):
    """Raised by a task to say: this will pass, try again.

    It comes before all rules except the task's own ``classify()``. If it wraps an exception, the letter
    is about that exception: it shows its type, message and place, and is grouped by them.

    :param about: the exception that was caught, or a text.
    :param retry_after: the wait before the next attempt, in seconds, or the time of that attempt
        (without a zone: UTC). Such a wait does not use up an attempt. A time in the past means no wait.
        The default is the wait that the wrapped exception carries.
    :raises TypeError: ``retry_after`` has another type.
    :raises ValueError: ``retry_after`` is infinite, or not a number.
    """

    __module__ = "celery_dlq"

    def __init__(
        self,
        about: BaseException | str = "",
        *,
        retry_after: float | timedelta | datetime | None = None,
    ) -> None:
        super().__init__(about)
        self.retry_after: float | timedelta | datetime | None = _wait(retry_after)


class Terminal(_Said):
    """Raised by a task to say: another attempt would fail the same way. The message becomes a letter at once.

    It comes before all rules except the task's own ``classify()``, so ``autoretry_for=(Exception,)`` does not
    retry it.

    :param about: the reason; or the exception that was caught, and that the letter is about.
    """

    __module__ = "celery_dlq"


def said(exc: BaseException) -> Finding | None:
    """The verdict of ``exc`` if it is a raised verdict; otherwise None."""
    # Not isinstance(): a __class__ property may raise.
    if not issubclass(type(exc), _Said):
        return None
    about = subject(exc)
    evidence = "raised by the task"
    if about is not exc:
        evidence = f"{evidence} for {shown_name(type(about))}"
    if issubclass(type(exc), Transient):
        return Finding(Verdict.TRANSIENT, "raised.transient", evidence)
    return Finding(Verdict.TERMINAL, "raised.terminal", evidence)


def subject(exc: BaseException) -> BaseException:
    """The exception that a failure is about: the one that a :class:`Transient` or :class:`Terminal`
    wraps; every other exception is about itself."""
    for _ in range(_NESTED):
        about = arguments(exc)[:1] if issubclass(type(exc), _Said) else ()
        if not about or not issubclass(type(about[0]), BaseException):
            break
        exc = about[0]  # type: ignore[assignment]
    return exc


def _wait(given: object) -> float | timedelta | datetime | None:
    if isinstance(given, timedelta):
        return max(given, timedelta())
    if given is None or isinstance(given, datetime):
        return given
    if not isinstance(given, (int, float)) or isinstance(given, bool):
        raise TypeError(
            f"retry_after={given!r} is not a wait; give seconds, a timedelta or a datetime."
        )
    if not math.isfinite(given):
        raise ValueError(f"retry_after={given!r} is not a wait; give a finite number of seconds.")
    return max(0.0, float(given))
