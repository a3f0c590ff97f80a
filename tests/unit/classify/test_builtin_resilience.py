"""Retry libraries, breakers, limits and locks, as the real ones refuse."""

import asyncio

import pytest
from support.errors.libraries import library
from support.errors.verdicts import judge, raised

from celery_dlq.classify import decide


def failing():
    raise KeyError("x")


def refused():
    raise ConnectionRefusedError(111, "refused")


@pytest.mark.parametrize(
    ("function", "expected"),
    [(failing, ("terminal", "python.error")), (refused, ("transient", "os.network"))],
)
def test_a_retry_that_gave_up_stands_for_the_last_attempt(function, expected):
    tenacity = library("tenacity")
    once = tenacity.retry(stop=tenacity.stop_after_attempt(1))
    assert judge(raised(once(function))) == expected


def test_a_retry_of_results_that_gave_up():
    tenacity = library("tenacity")
    poll = tenacity.retry(
        stop=tenacity.stop_after_attempt(1), retry=tenacity.retry_if_result(lambda result: True)
    )
    assert judge(raised(poll(int))) == ("terminal", "default")


@pytest.mark.parametrize("function", [failing, refused])
def test_stamina_and_backoff_raise_what_they_got(function):
    stamina, backoff = library("stamina"), library("backoff")
    expected = judge(raised(function))
    assert judge(raised(stamina.retry(on=Exception, attempts=1)(function))) == expected
    assert judge(raised(backoff.on_exception(backoff.expo, Exception, max_tries=1)(function))) == (
        expected
    )


def twice(guarded):
    raised(guarded)
    return raised(guarded)


def test_open_breakers():
    open_ = ("transient", "breaker.open")
    circuit = library("circuitbreaker").circuit(failure_threshold=1)
    assert judge(twice(circuit(failing))) == open_
    breaker = library("pybreaker").CircuitBreaker(fail_max=1)
    assert judge(twice(lambda: breaker.call(failing))) == open_
    aiobreaker = library("aiobreaker").CircuitBreaker(fail_max=1)
    assert judge(twice(lambda: aiobreaker.call(failing))) == open_


def test_a_rate_limit_says_how_long():
    limits = library("ratelimit").limits(calls=1, period=100)
    limited = limits(int)
    limited()
    decision = decide(raised(limited))
    assert decision.rule == "limit.calls"
    assert 0 < decision.retry_after <= 100
    assert decision.throttled


def test_a_rate_limit_without_a_sensible_time():
    kind = library("ratelimit").RateLimitException
    for left in (-1, float("nan"), "3", None, 10**9):
        decision = decide(kind("too many calls", left))
        assert (decision.verdict.value, decision.retry_after) == ("transient", None)


def test_the_storage_of_a_limit():
    errors = library("limits.errors")
    assert judge(errors.StorageError(ConnectionResetError())) == ("transient", "os.network")
    assert judge(errors.StorageError(KeyError())) == ("terminal", "python.error")


def test_locks(tmp_path):
    filelock = library("filelock")
    with filelock.FileLock(tmp_path / "lock", is_singleton=False):
        other = filelock.FileLock(tmp_path / "lock", timeout=0, is_singleton=False)
        assert judge(raised(other.acquire)) == ("transient", "lock.held")
    portalocker = library("portalocker")
    with portalocker.Lock(tmp_path / "other"):
        again = portalocker.Lock(tmp_path / "other", timeout=0, fail_when_locked=True)
        assert judge(raised(again.acquire)) == ("transient", "lock.held")


def test_anyio():
    anyio = library("anyio")

    async def full():
        send, receive = anyio.create_memory_object_stream(0)
        async with send, receive:
            send.send_nowait(1)

    async def lost():
        send, receive = anyio.create_memory_object_stream(1)
        receive.close()
        async with send:
            send.send_nowait(1)

    async def closed():
        send, receive = anyio.create_memory_object_stream(1)
        send.close()
        receive.close()
        await send.send(1)

    async def late():
        with anyio.fail_after(0):
            await anyio.sleep_forever()

    assert judge(raised(lambda: asyncio.run(full()))) == ("transient", "async.lost")
    assert judge(raised(lambda: asyncio.run(lost()))) == ("transient", "async.lost")
    assert judge(raised(lambda: asyncio.run(closed()))) == ("terminal", "async.usage")
    assert judge(raised(lambda: asyncio.run(late()))) == ("transient", "os.network")


def test_trio():
    trio = library("trio")

    async def late():
        with trio.fail_after(0):
            await trio.sleep_forever()

    async def full():
        trio.open_memory_channel(0)[0].send_nowait(1)

    assert judge(raised(trio.run, late)) == ("transient", "async.lost")
    assert judge(raised(trio.run, full)) == ("transient", "async.lost")
