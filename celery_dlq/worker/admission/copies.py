"""Of several copies of one message, one runs: the store says which.

A redrive or a release that was killed between publication and mark is repeated, since nobody knows
whether its message is out. So a message that may be one of several is asked about when it comes. It
waits for the answer without a slot of the pool: what comes with it is asked about in the same call.

What the broker delivers again is no other copy, and may run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from celery.utils.log import get_logger
from celery.worker import state

from celery_dlq.headers import COPY_HEADER, RELEASE_HEADER, release_of, sending_of
from celery_dlq.store.base import Store
from celery_dlq.worker.identity import letter_id

logger = get_logger(__name__)

K = TypeVar("K")
T = TypeVar("T")

#: How often the store is asked before a message runs without an answer, and the seconds between.
ACCEPT_TRIES, ACCEPT_PAUSE_S = 12, 5.0


class Asks(Protocol):
    """What puts a question to the store, and calls back where requests live."""

    def ask_together(
        self,
        question: Callable[[Store, Sequence[K]], Sequence[T]],
        about: K,
        then: Callable[[T | None], object],
    ) -> None:
        """``then`` gets the answer; None when the store gave none in time."""


@dataclass(frozen=True)
class Copy:
    """One of the messages that may stand for the same run."""

    #: Asks the store which of many may run.
    accept: Callable[[Store, Sequence[Any]], Sequence[bool]]
    key: tuple[Any, ...]
    #: What was done with it that may have been done twice.
    was: str
    #: Why it is dropped when it may not run.
    why_not: str


@dataclass(frozen=True)
class _Arrival:
    request: Any
    copy: Copy
    #: The connection that the message came by.
    connection: int


class Copies:
    """Stands between a worker's consumer and its pool, and lets one copy of each message in."""

    def __init__(self, recorder: Asks) -> None:
        self._recorder = recorder
        #: Goes up with every lost connection: what came before must not run any more.
        self._connection = 0
        self._consumer: Any = None
        self._run: Callable[[Any], object]

    def join(self, consumer: Any) -> None:
        """Stand before the pool of ``consumer``; once, before it starts."""
        self._consumer, self._run = consumer, consumer.on_task_request
        consumer.on_task_request = self._take

    def stop(self) -> None:
        """The connection is lost, or the worker shuts down: what is asked about goes back to the
        broker."""
        self._connection += 1

    def _take(self, request: Any) -> None:
        """Stands in for the consumer's ``on_task_request``."""
        headers = request._message.headers
        # Any other message pays for these two looks.
        if RELEASE_HEADER not in headers and COPY_HEADER not in headers:
            self._run(request)
            return
        copy = _copy_of(request)
        if copy is None:
            self._run(request)
        else:
            self._ask(_Arrival(request, copy, self._connection), ACCEPT_TRIES)

    def _ask(self, arrival: _Arrival, tries: int) -> None:
        def answered(accepted: bool | None) -> None:
            if arrival.connection != self._connection:
                return  # the broker delivers it again
            if accepted is None and tries > 1:
                again = partial(self._ask, arrival, tries - 1)
                self._consumer.timer.call_after(ACCEPT_PAUSE_S, again)
            elif accepted is False:
                _drop(arrival)
            else:
                self._let_in(arrival, sure=bool(accepted))

        self._recorder.ask_together(arrival.copy.accept, arrival.copy.key, answered)

    def _let_in(self, arrival: _Arrival, *, sure: bool) -> None:
        request, copy = arrival.request, arrival.copy
        if not sure:
            logger.warning(
                "%s was %s, and the store does not say if it ran: it runs", request.id, copy.was
            )
        self._run(request)


def _drop(arrival: _Arrival) -> None:
    request = arrival.request
    logger.warning(
        "%s[%s] %s; this copy is dropped", request.name, request.id, arrival.copy.why_not
    )
    request.acknowledge()
    state.task_ready(request)


def _copy_of(request: Any) -> Copy | None:
    try:
        return copy_of(request)
    except Exception:
        logger.exception("celery_dlq could not tell what %s is a copy of", request)
        return None


def copy_of(request: Any) -> Copy | None:
    """What a worker's ``request`` may be one of several copies of; None when it is not. A retry of a
    redriven message is not: the message that it retries was let in."""
    headers = request.message.headers
    release = release_of(headers)
    if release is not None:
        return Copy(_accept_releases, release, was="parked", why_not="was released twice")
    sending = sending_of(headers)
    if sending is None or headers.get("retries"):
        return None
    why_not = f"was sent twice by its redrive {sending[0]}, or redriven anew"
    key = (letter_id(request.message, request.id), *sending)
    return Copy(_accept_sendings, key, was="redriven", why_not=why_not)


def _accept_releases(store: Store, keys: Sequence[tuple[str, int]]) -> Sequence[bool]:
    return store.accept_releases(keys)


def _accept_sendings(store: Store, keys: Sequence[tuple[str, int, str]]) -> Sequence[bool]:
    return store.accept_sendings(keys)
