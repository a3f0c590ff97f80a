"""Those who wait themselves: retry libraries, circuit breakers, rate limits, locks, queues."""

from __future__ import annotations

from celery_dlq.classify.evidence import read
from celery_dlq.classify.table import Finding, probed, terminal, transient, within, wrapper
from celery_dlq.model.states import Verdict

_LONGEST_S = 86_400.0


def call_limit(exc: BaseException) -> Finding:
    """ratelimit's ``RateLimitException``: ``period_remaining`` are the seconds until the next call."""
    left = read(exc, "period_remaining")
    known = (type(left) is float or type(left) is int) and 0 <= left <= _LONGEST_S
    wait = float(left) if known else None
    return Finding(
        Verdict.TRANSIENT, "limit.calls", "type=RateLimitException", wait, throttled=True
    )


_CALLS = (
    # tenacity/__init__.py raises it from what the last attempt raised.
    wrapper("retry.last", "the last attempt's exception", "tenacity.RetryError"),
    transient("retry.again", "tenacity.TryAgain"),
    transient(
        "breaker.open",
        "circuitbreaker.CircuitBreakerError",
        "pybreaker.CircuitBreakerError",
        "aiobreaker.state.CircuitBreakerError",
        "purgatory.domain.model.OpenedState",
    ),
    probed(
        "limit.calls",
        call_limit,
        "always transient, period_remaining is the wait",
        "ratelimit.exception.RateLimitException",
    ),
    transient(
        "limit.calls",
        *within("pyrate_limiter.exceptions", "BucketFullException LimiterDelayException"),
    ),
    transient("limit.storage", "limits.errors.ConcurrentUpdateError"),
    wrapper("limit.storage", "the storage's exception", "limits.errors.StorageError"),
    terminal("limit.usage", "limits.errors.ConfigurationError"),
)

_LOCKS = (
    # filelock's own derives from TimeoutError. Version 4 moved it.
    transient("lock.held", "filelock._error.Timeout", "filelock._core._errors.Timeout"),
    transient(
        "lock.held",
        *within("portalocker.exceptions", "LockException AlreadyLocked"),
        *within("redlock", "CannotObtainLock MultipleRedlockException"),
        *within("lockfile", "AlreadyLocked LockTimeout LockFailed"),
        "fasteners._utils.RetryAgain",
    ),
    terminal("lock.usage", "portalocker.exceptions.FileToLarge"),
    # SQLite below it was locked for too long.
    transient("lock.held", "diskcache.core.Timeout"),
)

# What a full queue, a slow peer or a lost one raises in structured concurrency.
_STRUCTURED = (
    # gevent/timeout.py, eventlet/timeout.py: no subclass of Exception.
    transient("async.timeout", "gevent.timeout.Timeout", "eventlet.timeout.Timeout"),
    transient(
        "async.lost",
        *within("anyio", "BrokenResourceError EndOfStream IncompleteRead WouldBlock"),
        *within(
            "anyio._core._exceptions", "BrokenResourceError EndOfStream IncompleteRead WouldBlock"
        ),
        *within("trio", "BrokenResourceError TooSlowError WouldBlock"),
    ),
    terminal(
        "async.usage",
        *within("anyio", "ClosedResourceError BusyResourceError DelimiterNotFound"),
        *within(
            "anyio._core._exceptions",
            "ClosedResourceError BusyResourceError DelimiterNotFound BrokenWorkerProcess",
        ),
        *within("trio", "ClosedResourceError BusyResourceError TrioInternalError"),
    ),
)

ROWS = (*_CALLS, *_LOCKS, *_STRUCTURED)
