"""The request class. All failures enter the worker's parent here, and so does the success of a message that
was sent or delivered again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from typing import Any, ClassVar

from billiard.einfo import ExceptionInfo
from celery.exceptions import (
    Ignore,
    InvalidTaskError,
    Reject,
    TaskRevokedError,
    Terminated,
    TimeLimitExceeded,
    WorkerLostError,
)
from celery.utils.functional import noop
from celery.utils.log import get_logger
from celery.worker.request import Request

from celery_dlq.base.codec import raw_body
from celery_dlq.base.redact import safe_message
from celery_dlq.classify import is_a
from celery_dlq.errors import PoisonMessage, TaskCancelled
from celery_dlq.model.headers import REDRIVE_HEADER, attempt_number, redrive_of
from celery_dlq.model.letter import DeadLetter, Outcome, digest_of
from celery_dlq.model.states import Reason
from celery_dlq.model.worker import GIVEN_BACK, Delivery
from celery_dlq.recorder.bodies import has_returned
from celery_dlq.worker.body.ending import UNREPORTED, Replaced, RunEnd
from celery_dlq.worker.body.report import einfo_of, reported
from celery_dlq.worker.celery_quirks.pools import is_green
from celery_dlq.worker.end.closing import (
    REDRIVEN,
    REDRIVEN_STATE,
    Closing,
    Finish,
    Probe,
    announce,
    report_to_valve,
)
from celery_dlq.worker.end.fate import (
    Fate,
    fate_of,
    is_bystander,
    is_internal,
    is_of_run,
    stored_success,
    success_is_stored,
)
from celery_dlq.worker.end.handover import end_unrun, refusal
from celery_dlq.worker.end.letters import (
    CANCELLED,
    NOT_TAKEN,
    letter_of_end,
    letter_of_poison,
    letter_of_run,
    safely,
)
from celery_dlq.worker.end.malformed import check_request, is_plain
from celery_dlq.worker.failure import aborted, unwrap
from celery_dlq.worker.message import came_back, letter_id
from celery_dlq.worker.wiring import Captures

logger: logging.Logger = get_logger(__name__)


class DLQRequest(Request):  # type: ignore[misc]
    """A request whose end is written before it is acknowledged, stored, or announced.

    Its state is in class attributes with a default, so that a message that succeeds at once pays for none of
    it.
    """

    #: Set while it runs as the probe of an open circuit.
    dlq_probe: Probe | None = None
    #: Captures for the consumer that made this request; see :mod:`celery_dlq.worker.end.classes`.
    _dlq_capture: ClassVar[Captures | None] = None
    #: Whether its end was reported to the valve.
    _dlq_reported = False
    #: Whether its deliveries are counted, because the broker has delivered its message before.
    _dlq_count = False
    #: The earlier deliveries that did not end, then this one; empty until the store has answered.
    known_deliveries: tuple[Delivery, ...] = ()
    #: Whether the pool has the request, or the request will not run.
    _dlq_is_decided = False
    _dlq_pool: Any = None
    #: How far its end has come, if it has a letter or may get one.
    _dlq_closing: Closing | None = None
    #: Whether the success of its run is being written.
    _dlq_has_succeeded = False
    #: Whether its message went back to the broker.
    _dlq_has_gone_back = False
    #: The stored success of a run whose process is gone, False for none; None until it is looked for.
    _dlq_success: Any = None

    # Every message pays for this. The arguments of Celery's strategy are named, because packing and unpacking
    # them would cost more than everything else here.
    def __init__(
        self,
        message: Any,
        *,
        on_ack: Callable[..., object] = noop,
        on_reject: Callable[..., object] = noop,
        app: Any = None,
        hostname: str | None = None,
        eventer: Any = None,
        task: Any = None,
        connection_errors: Any = None,
        body: Any = None,
        headers: Any = None,
        decoded: bool = False,
        utc: bool = True,
        **more: Any,
    ) -> None:
        begin = super().__init__
        if more:  # a user's code may make requests with other arguments
            begin = partial(begin, **more)
        begin(
            message,
            on_ack=on_ack, on_reject=on_reject, app=app, hostname=hostname, eventer=eventer, task=task,
            connection_errors=connection_errors, body=body, headers=headers, decoded=decoded, utc=utc,
        )  # fmt: skip
        if not is_plain(self):
            check_request(self)
        again = came_back(message)
        if again:
            self._dlq_count = True
            if not is_internal(self):
                # Celery overrides the method in a subclass for each task, but not on the instance.
                self.__dict__["execute_using_pool"] = self._execute_counted
        # The message's own headers: in the protocol of Celery 3, the request's are made from the body.
        redriven, retried = REDRIVE_HEADER in message.headers, self._request_dict.get("retries")
        # Also for a retry: the message that was retried may have run again at the same time, and died.
        if redriven or retried or again:
            # Celery overrides on_success in a subclass for each task, but not on the instance. So only
            # messages that were sent or delivered before pay for it.
            self.__dict__["on_success"] = self._write_success
            if redriven and not retried:
                announce(self, REDRIVEN, REDRIVEN_STATE)

    @property
    def dlq(self) -> Captures:
        """The objects that capture the end of this request."""
        return self._dlq_capture or self.task._dlq_wiring.capture

    def on_failure(
        self, exc_info: ExceptionInfo, send_failed_event: bool = True, return_ok: bool = False
    ) -> None:
        """Called by the pool for every run that did not succeed."""
        exc, end = unwrap(exc_info), reported(exc_info)
        was_ended = is_a(exc, (Terminated, WorkerLostError)) and not self.acknowledged
        if was_ended and has_returned(self.worker_pid, self.id):
            # The result was on its way.
            self.on_success((False, None, 0.0))
            return
        if is_a(exc, MemoryError):
            # From before_start or similar: the body's own never gets here. Celery's on_failure would raise
            # it again, and end the worker.
            exc = exc_info.exception = aborted(exc)
        report_to_valve(self, end, exc)
        finish = partial(
            super().on_failure, exc_info, send_failed_event=send_failed_event, return_ok=return_ok
        )
        if is_a(exc, Replaced):
            self._end_replaced(exc, finish)
            return
        if is_a(exc, Ignore):
            self._report_dropped("its task raised Ignore")
        if is_a(exc, Reject) and end.retried:
            exc.requeue = False  # raised by on_retry; another message takes the place of this one
        if is_a(exc, Terminated) and is_bystander(self):
            self._end_bystander(finish)
        else:
            self._end_run(exc, end, str(exc_info.traceback or ""), finish)

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Called by the pool when a time limit is over; after ``on_failure`` on prefork."""
        finish, exc = partial(super().on_timeout, soft, timeout), TimeLimitExceeded(timeout)
        if soft:
            finish()
            return
        report_to_valve(self, UNREPORTED, exc)
        self._end_run(exc, UNREPORTED, "", finish)

    def _end_run(self, exc: BaseException, end: RunEnd, traceback: str, finish: Finish) -> None:
        """End a run that did not succeed; ``finish`` is Celery's part."""
        if self._dlq_closing is not None:
            self._dlq_closing.when_written(finish)
            return
        fate = fate_of(self, exc)
        if fate is Fate.GOES_BACK:
            self._dlq_closing = Closing(self)
            counted = partial(self._end_counted, exc, end, finish)
            self.dlq.deliveries.count_death(self, self._death_of(exc), counted)
            return
        if end.retried and self.dlq.app.meter is not None:
            self.dlq.app.meter.retried(self.type, end.rule)
        self._close(self._letter(letter_of_run, exc, fate, traceback, end), finish)

    def _close(self, letter: DeadLetter | None, finish: Finish) -> None:
        """Write ``letter``, then call ``finish``. There is no letter if another message takes the place of
        this one, if it was dropped on purpose, or if its success is stored."""
        if self._dlq_closing is not None:
            self._dlq_closing.when_written(finish)
        elif letter is not None:
            self._dlq_closing = Closing(self)
            self._dlq_closing.write(letter, finish)
        elif self.known_deliveries:
            # First, because the next delivery must not find the record of this one.
            self.dlq.deliveries.forget(self.known_deliveries, finish)
        else:
            finish()

    def _end_counted(
        self, exc: BaseException, end: RunEnd, give_back: Finish, known: tuple[Delivery, ...]
    ) -> None:
        """Return the message to its queue by ``give_back``; after too many deliveries, write a letter
        instead.

        :param known: its deliveries that did not end; the last one died of ``exc``.
        """
        closing, letter = self._dlq_closing, None
        assert closing is not None, "made before the delivery was counted"  # noqa: S101
        if self.dlq.deliveries.is_spent(known, self.message):
            letter = self._letter(letter_of_poison, exc, known, seen=True, reported=end.failure)
        if letter is None:
            closing.run_waiting_steps(give_back)
        elif is_a(exc, TimeLimitExceeded):

            def end_late() -> None:
                # Celery would give it back, but cannot once it is acknowledged.
                self.acknowledge()
                give_back()

            closing.write(letter, end_late)
        else:
            last = Reject(exc.reason, requeue=False) if is_a(exc, Reject) else PoisonMessage()
            closing.write(letter, partial(super().on_failure, einfo_of(last)))

    def _letter(
        self, make: Callable[..., DeadLetter | None], *args: Any, **how: Any
    ) -> DeadLetter | None:
        return safely(self.message, partial(make, self, *args, **how))

    def _letter_of_cancelled(self) -> DeadLetter | None:
        return self._letter(letter_of_end, TaskCancelled(), Reason.CANCELLED, CANCELLED)

    def _death_of(self, exc: BaseException) -> Delivery:
        """This delivery, which died of ``exc``."""
        death = f"{type(exc).__name__}: {safe_message(exc)}"
        if is_a(exc, Reject):
            death = f"{GIVEN_BACK}: {death}"
        if self.known_deliveries:
            return replace(self.known_deliveries[-1], death=death)
        return self.as_delivery("", death=death)

    def _end_replaced(self, exc: Replaced, finish: Finish) -> None:
        """The rest of the work is another message, which becomes a letter of its own if it fails. It may have
        failed already, under the same id, so only the number of a redrive distinguishes them."""
        if redrive_of(self._message.headers) and not exc.continues:
            self._write_outcome(finish)
        else:
            self._close(None, finish)

    def _end_bystander(self, finish: Finish) -> None:
        """Celery would announce the run as revoked, and acknowledge its message."""
        if self.acknowledged:
            self._close(self._letter_of_cancelled(), finish)
        else:
            self._close(None, partial(self._give_back, finish))

    def _give_back(self, finish: Finish) -> None:
        logger.warning("%s[%s] was ended in another's place; it goes back", self.name, self.id)
        self._already_cancelled = True
        finish()
        self.reject(requeue=True)

    def reject(self, requeue: bool = False) -> None:
        """Called to end the message, or to give it back."""
        self._dlq_has_gone_back = requeue and not self.acknowledged
        super().reject(requeue)

    def cancel(self, pool: Any, *args: Any, **kwargs: Any) -> None:
        """Called to end the run, at a shutdown or after a lost connection."""
        if is_green(pool) and self.time_start and not self.acknowledged:
            # A greenlet that was killed comes back as a success, which Celery acknowledges.
            self.__dict__["acknowledge"] = lambda: None
        try:
            super().cancel(pool, *args, **kwargs)
        except NotImplementedError:
            # It would be raised from a signal handler: on solo into the body, on threads into the consumer.
            logger.warning(
                "%s[%s] cannot be cancelled in this pool; it goes on", self.name, self.id
            )

    def _announce_cancelled(self, *args: Any, **kwargs: Any) -> None:
        """Called, from a signal handler, when a shutdown ends the running task; and after a lost
        connection for a message that the broker delivers again."""
        is_open = self._dlq_closing is None and not self._dlq_has_succeeded
        if self.acknowledged and is_open:
            # The result of a body may be on its way; if so, it will not come any more.
            has_ended = has_returned(self.worker_pid, self.id) or success_is_stored(self)
            if has_ended and self.__dict__.get("on_success") is not None:
                self._dlq_has_succeeded = True
                self.dlq.write_now(self._outcome())
            elif not has_ended:
                self._write_now(self._letter_of_cancelled())
        try:
            super()._announce_cancelled(*args, **kwargs)
        except Exception:
            # The result backend is down. Raised from here, it would keep other tasks from being cancelled.
            logger.exception("Celery failed to end %s[%s], which was cancelled", self.name, self.id)
            self._already_cancelled = True

    def _retry_worker_lost(self, exc: BaseException, *args: Any) -> Any:
        """Called since Celery 5.7 to send the retry of a run whose process was lost. If this fails, Celery
        only stores the failure, unless the message goes back."""
        sent = super()._retry_worker_lost(exc, *args)
        goes_back = self.task.acks_late and self.task.reject_on_worker_lost
        if not sent and not goes_back and self._dlq_closing is None:
            self._write_now(self._letter(letter_of_end, exc, Reason.POISON))
        return sent

    def _write_now(self, letter: DeadLetter | None) -> None:
        """Write ``letter``, and wait until it is safe."""
        if letter is not None:
            self._dlq_closing = Closing(self)
            self._dlq_closing.write_now(letter)

    def _announce_revoked(self, reason: str, *args: Any) -> None:
        """Called for a message that expired or was revoked, and is dropped. With the result backend down,
        Celery raises before it acknowledges; that would end the consumer, and with it the worker."""
        self._report_dropped(f"its task was {reason}")
        try:
            super()._announce_revoked(reason, *args)
        except Exception:
            logger.exception("Celery failed to end %s[%s], which was revoked", self.name, self.id)
            self._already_revoked = True
            if not self.acknowledged:
                self.acknowledge()

    def _report_dropped(self, why: str) -> None:
        if REDRIVE_HEADER in self.message.headers:
            self.dlq.copies.dropped(self, why)

    def as_delivery(self, process: str, *, alone: bool = False, death: str = "") -> Delivery:
        """This delivery, starting now. The store numbers it unless it is the first; until then it is 0."""
        return Delivery(
            task_id=letter_id(self.message, self.id),
            task=self.type,
            redrive=redrive_of(self.message.headers),
            attempt=attempt_number(self.request_dict),
            number=0 if self._dlq_count else 1,
            started_at=datetime.now(timezone.utc),
            worker=self.hostname or "",
            process=process,
            alone=alone,
            death=death,
        )

    def run_counted(self, known: tuple[Delivery, ...]) -> None:
        """Run in the slot that it has; does nothing if the pool has it already.

        :param known: the earlier deliveries and this one.
        """
        if self._dlq_is_decided:
            return
        self._dlq_is_decided, self.known_deliveries = True, known
        deliveries = self.dlq.deliveries
        try:
            type(self).execute_using_pool(self, self._dlq_pool)
        except TaskRevokedError:
            # Revoked while it waited; only the worker's own call would have freed the slot.
            deliveries.give_slot_back()
            deliveries.forget(known[-1:], lambda: None)
        except Exception as exc:
            error = refusal(self, self._dlq_pool, exc)
            if error is None:
                raise
            deliveries.give_slot_back()
            self.refuse(error)

    def _execute_counted(self, pool: Any, **_: Any) -> None:
        """Called by the worker once there is a slot for the request in ``pool``: asks for the count first."""
        if self.revoked():
            # As Celery's own method does: the worker frees the slot.
            raise TaskRevokedError(self.id)
        self._dlq_pool = pool
        self.dlq.deliveries.admit(self)

    def condemn(self, known: tuple[Delivery, ...]) -> None:
        """Called instead of running it, if its message has killed its worker too often."""
        exc = PoisonMessage()
        self._end_unrun(exc, self._letter(letter_of_poison, exc, known, seen=False))

    def refuse(self, error: InvalidTaskError) -> None:
        """Called instead of running it, if the pool cannot take it. Its message becomes a letter."""
        self._end_unrun(error, self._letter(letter_of_end, error, Reason.MALFORMED, NOT_TAKEN))

    def _end_unrun(self, exc: Exception, letter: DeadLetter | None) -> None:
        self._dlq_is_decided = True
        report_to_valve(self, UNREPORTED, exc)
        self._close(letter, partial(end_unrun, self, exc, super().on_failure))

    def _success_was_stored(self) -> Any:
        # Celery's own question since 5.7, asked once: with the backend down, each answer takes seconds.
        if self._dlq_success is None:
            # Earlier releases do not ask it.
            instead = partial(stored_success, self.task.backend, self.id)
            ask = getattr(super(), "_success_was_stored", instead)
            self._dlq_success = self._of_this_run(ask())
        return self._dlq_success

    def _of_this_run(self, success: Any) -> Any:
        """``success``, a result as its backend holds it; False if an earlier message with the same id left it
        there."""
        if not success:
            return False
        if not self.time_start:
            return success
        began_at = datetime.fromtimestamp(self.time_start, timezone.utc)
        return success if is_of_run(success, began_at, self._app) else False

    def _write_success(self, failed__retval__runtime: tuple[Any, Any, Any], **kwargs: Any) -> None:
        """Stands in for ``on_success`` of a message that was sent or delivered again."""
        succeed = type(self).on_success.__get__(self)
        finish = partial(succeed, failed__retval__runtime, **kwargs)
        if failed__retval__runtime[0]:
            finish()
            return
        self._write_outcome(finish)

    def _write_outcome(self, finish: Finish) -> None:
        # While the store does not answer, the outcome waits in memory.
        self._dlq_has_succeeded = True
        getattr(super(), "record_success", noop)()
        # Urgent, because a success that the flight recorder does not have would be lost with the worker.
        self.dlq.write(self._outcome(), finish, urgent=True)

    def _outcome(self) -> Outcome:
        return Outcome(
            task_id=letter_id(self._message, self.id),
            redrive=redrive_of(self._message.headers),
            succeeded_at=datetime.now(timezone.utc),
            worker=self.hostname or "",
            task=self.type,
            release=self.dlq.app.settings.release,
            digest=digest_of(raw_body(self._message.body, self._message.content_encoding)),
            namespace=self.dlq.app.settings.own_namespace,
        )
