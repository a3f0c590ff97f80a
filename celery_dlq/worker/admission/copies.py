"""A guard against copies: only one of several copies of a message runs, and the store decides which.

A redrive or a release that was killed after publishing a message and before marking it as sent is repeated,
because it is unknown whether the message was sent. So the store is asked about each message that may be one
of several copies. The message waits for the answer without a slot of the pool; messages that come together
share one call.

A message that the broker delivers again is the same copy, and may run again. It does not if its run in this
worker continues after a lost connection, or has ended since: that run settles the new delivery.

If the store does not answer for a minute, a message runs unchecked. Then its copy is reported as soon as the
store answers, so that no other one is sent and accepted in its place. A message that is dropped on purpose is
reported, too, so that it is not sent again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from celery.utils.log import get_logger
from celery.worker import state

from celery_dlq.model.headers import (
    COPY_HEADER,
    RELEASE_HEADER,
    SENT_HEADER,
    attempt_number,
    redrive_of,
    release_of,
    sending_of,
    sent_of,
)
from celery_dlq.store.base import Drop
from celery_dlq.worker.admission import Guard, Onward
from celery_dlq.worker.admission.doubts import Doubts
from celery_dlq.worker.end.request import DLQRequest
from celery_dlq.worker.failure import logged
from celery_dlq.worker.message import came_back, letter_id
from celery_dlq.worker.writing.loop_callbacks import LoopCallbacks

if TYPE_CHECKING:
    from celery_dlq.store import Store

logger: logging.Logger = get_logger(__name__)

#: How often the store is asked before a message runs without an answer, and the seconds between.
ACCEPT_TRIES, ACCEPT_PAUSE_S = 12, 5.0
#: Seconds between two tries to make a report.
REPORT_PAUSE_S = 5.0


@dataclass(frozen=True)
class Copy:
    """One of several messages that may stand for the same run."""

    #: Asks the store which of many copies may run.
    accept: Callable[[Store, Sequence[Any]], Sequence[bool]]
    key: tuple[Any, ...]
    #: The action that may have been repeated, for the log.
    was: str
    #: Why it is dropped if another copy runs, for the log.
    why_not: str
    #: Whether the store hears of its run later in any case.
    is_remembered: bool = False


#: A report about a copy, which is repeated until the store has taken it: the function that makes all reports
#: of its kind in one call, and the subject.
_Report: TypeAlias = "tuple[Callable[[Store, Sequence[Any]], Sequence[object]], Any]"


class Copies(Guard):
    """Lets one copy of each message pass, and drops the others."""

    def __init__(self, desk: LoopCallbacks, doubts: Doubts) -> None:
        self._desk, self._doubts = desk, doubts
        #: Reports that the store has not taken. They are few: a message takes up a place of the prefetch
        #: limit for a minute before it runs unchecked.
        self._unreported: list[_Report] = []
        self._is_timed = False
        #: The requests that ran when the last connection was lost, by id.
        self._runs: dict[str, DLQRequest] = {}

    def admits(self, request: Any) -> bool:
        """Whether ``request`` is the only copy. If that is unknown, it waits for the store's answer."""
        headers = request._message.headers
        if self._runs and came_back(request._message) and self._settles(request):
            return False
        # All other messages pay for these three lookups only.
        if RELEASE_HEADER not in headers and COPY_HEADER not in headers:
            return SENT_HEADER not in headers or not self._is_in_doubt(request)
        return not self.asks(request, self._onward)

    def start(self) -> None:
        """Called when the broker is connected. Celery has forgotten all timers of the last connection."""
        self._is_timed = False
        self._make_reports()

    def stop(self) -> None:
        """Called when the connection is lost, or the worker shuts down. Messages that wait for an answer go
        back to the broker."""
        super().stop()
        # It is not known of other requests whether they gave their messages back.
        active = [run for run in tuple(state.active_requests) if isinstance(run, DLQRequest)]
        self._runs = {run.id: run for run in active}

    def _settles(self, request: Any) -> bool:
        """Whether the run of an earlier delivery of ``request`` settles this one, too."""
        run = self._runs.get(request.id)
        if run is None or _identity(run) != _identity(request):
            return False
        is_active, closing = run in state.active_requests, run._dlq_closing
        is_settled = run.acknowledged and (closing is None or closing.is_safe)
        if run._dlq_has_gone_back or not (is_active or is_settled):
            return False
        del self._runs[request.id]
        state.task_ready(request)
        if is_active:
            state.requests[run.id] = run
        if run.acknowledged:
            request.acknowledge()
        else:
            run._message, run._on_ack, run._on_reject = (
                request._message, request._on_ack, request._on_reject,
            )  # fmt: skip
        logger.info("%s came back after a lost connection; it does not run again", request.id)
        return True

    def _is_in_doubt(self, request: Any) -> bool:
        """Whether ``request``, as its sender sent it, waits for the store because another copy may run."""
        sent = sent_of(request.message.headers)
        key = sent and self._doubts.take(sent)
        if not key:
            return False
        # Until the messages in doubt are known, few of those that ask are. Each is remembered, so it needs no
        # second answer, and no report.
        is_remembered = self._doubts.is_unknown
        copy = Copy(
            _accept_releases, key, "sent in doubt", "was sent again by a worker", is_remembered
        )
        tries = 1 if is_remembered else ACCEPT_TRIES
        self._ask(request, copy, self._onward, self._connection, tries)
        return True

    def asks(self, request: Any, run: Onward) -> bool:
        """Whether ``request`` may be one of several copies. If so, ``run`` is called with it once the store
        has said that this copy runs."""
        copy = None
        with logged(logger, "celery_dlq could not tell whether %s is a copy", request):
            copy = copy_of(request)
        if copy is None:
            return False
        self._ask(request, copy, run, self._connection, ACCEPT_TRIES)
        return True

    def dropped(self, request: Any, why: str) -> None:
        """Report that ``request`` was dropped on purpose, so that no outcome will come; nothing if it is not
        the message of a redrive."""
        with logged(logger, "celery_dlq could not report that %s was dropped", request):
            sending = sending_of(request.message.headers)
            if sending is not None:
                drop = Drop(letter_id(request.message, request.id), *sending, why)
                self._report((_note_drops, drop))

    def _ask(self, request: Any, copy: Copy, run: Onward, connection: int, tries: int) -> None:
        def answered(accepted: bool | None) -> None:
            if connection != self._connection:
                return  # the broker delivers it again
            if accepted is None and tries > 1:
                again = partial(self._ask, request, copy, run, connection, tries - 1)
                self._consumer.timer.call_after(ACCEPT_PAUSE_S, again)
            elif accepted is False:
                logger.warning(
                    "%s[%s] %s; this copy is dropped", request.name, request.id, copy.why_not
                )
                request.acknowledge()
                state.task_ready(request)
            elif accepted or copy.is_remembered:
                run(request)
            else:
                logger.warning(
                    "%s was %s, and the store does not say if it ran: it runs", request.id, copy.was
                )
                # First, because in a pool without processes the next call returns when the body has ended.
                self._report((copy.accept, copy.key))
                run(request)

        self._desk.ask_together(copy.accept, copy.key, answered)

    def _report(self, report: _Report) -> None:
        """Make ``report``, now or as soon as the store answers."""
        self._unreported.append(report)
        self._make_reports()

    def _make_reports(self) -> None:
        reports, self._unreported = self._unreported, []
        for report in reports:
            self._desk.ask_together(*report, partial(self._reported, report))

    def _reported(self, report: _Report, answer: object) -> None:
        if answer is None:
            self._unreported.append(report)
            if not self._is_timed:
                self._is_timed = True
                self._consumer.timer.call_after(REPORT_PAUSE_S, self.start)


def _identity(request: Any) -> tuple[object, ...]:
    """What two deliveries of one message have in common. A retry and a redrive have the same id."""
    message = request._message
    return (
        request.type,
        redrive_of(message.headers),
        attempt_number(request._request_dict),
        message.body,
    )


def copy_of(request: Any) -> Copy | None:
    """The copy that ``request``, a worker's, stands for, if it may be one of several; otherwise None. The
    store is not asked about a retry of a redriven message, because the message that it retries was
    admitted."""
    headers = request.message.headers
    release = release_of(headers)
    if release is not None:
        return Copy(_accept_releases, release, was="parked", why_not="was released twice")
    sending = sending_of(headers)
    if sending is None or attempt_number(headers) > 1:
        return None
    why_not = f"was sent twice by its redrive {sending[0]}, or redriven again"
    key = (letter_id(request.message, request.id), *sending)
    return Copy(_accept_sendings, key, was="redriven", why_not=why_not)


def _accept_releases(store: Store, keys: Sequence[tuple[str, int]]) -> Sequence[bool]:
    return store.parked.accept(keys)


def _accept_sendings(store: Store, keys: Sequence[tuple[str, int, str]]) -> Sequence[bool]:
    return store.sendings.accept(keys)


def _note_drops(store: Store, drops: Sequence[Drop]) -> Sequence[bool]:
    return store.sendings.drop(drops, now=store.now())
