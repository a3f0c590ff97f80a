"""The message's side, in the worker's parent: every way to die ends here, and so does success of a
message that was sent again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.exceptions import Terminated, TimeLimitExceeded
from celery.utils.functional import noop
from celery.utils.log import get_logger
from celery.worker.state import revoked as revoked_tasks

from celery_dlq.classify import Decision
from celery_dlq.delivery import Delivery
from celery_dlq.errors import PoisonMessage, TaskCancelled
from celery_dlq.headers import REDRIVE_HEADER, redrive_of
from celery_dlq.letter import DeadLetter, Failure, Outcome
from celery_dlq.redact import safe_message
from celery_dlq.states import Reason, State, Verdict
from celery_dlq.worker.admission.deliveries import came_back
from celery_dlq.worker.body.ending import aborted
from celery_dlq.worker.body.failure import unwrap
from celery_dlq.worker.body.parking import parked_letter
from celery_dlq.worker.events import tell_dead, tell_redriven
from celery_dlq.worker.foreign.malformed import check_request, is_plain
from celery_dlq.worker.green import is_green
from celery_dlq.worker.identity import letter_id
from celery_dlq.worker.reasoned import ReasonedRequest
from celery_dlq.worker.snapshot import failure_of, poisoned, snapshot

logger = get_logger(__name__)


_CANCELLED = Decision(
    Verdict.TRANSIENT, rule="task.cancelled", evidence="a shutdown of the worker cut it off"
)


class DLQRequest(ReasonedRequest):
    """A request whose end is recorded before it is acknowledged, stored, or announced."""

    #: Whether this request's letter is with the recorder already.
    _dlq_dead = False
    #: Whether it is safe.
    _dlq_safe = False
    #: Whether it is a dead letter, and no retry that waits in the store: monitors are told.
    _dlq_announced = False
    #: What must wait for that letter: later calls of the same end, in order.
    _dlq_after: list[Callable[[], object]] | None = None

    # The one such method of the classes on the way to Celery's, since each costs every message something.
    # What Celery's strategy passes is named: packed and unpacked, that costs more than all else done here.
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
        if more:  # as from who makes requests by hand
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
            self._count_deliveries()
        # The headers that were sent: in the protocol of Celery 3 the request's are made of the body.
        redriven, retried = REDRIVE_HEADER in message.headers, self._request_dict.get("retries")
        # A retry is among them: the message that was retried may have run once more, beside it, and died.
        if redriven or retried or again:
            # Celery shadows on_success with a subclass made per task; only an instance attribute
            # is seen, and so only messages that came back pay for it.
            self.__dict__["on_success"] = self._record_success
            if redriven and not retried:
                tell_redriven(self)

    def on_failure(
        self, exc_info: ExceptionInfo, send_failed_event: bool = True, return_ok: bool = False
    ) -> None:
        """Called by the pool for every run that did not succeed."""
        exc = unwrap(exc_info)
        if isinstance(exc, MemoryError):
            # Out of before_start or the like, since the body's own never gets here. Celery's
            # on_failure raises it again, and the worker exits.
            exc = exc_info.exception = aborted(exc)
        finish = partial(
            super().on_failure, exc_info, send_failed_event=send_failed_event, return_ok=return_ok
        )
        if isinstance(exc, Terminated) and self._is_bystander():
            self._end_bystander(finish)
        elif self._returns_after(exc):
            end = partial(super().on_failure, _einfo(PoisonMessage()))
            if isinstance(exc, TimeLimitExceeded):
                end = partial(self._end_late, finish)
            self._count_death(exc, finish, end)
        else:
            self._record_death(partial(self._letter_of, exc_info), finish)

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Called by the pool when a time limit is over; after ``on_failure`` on prefork."""
        finish, exc = partial(super().on_timeout, soft, timeout), TimeLimitExceeded(timeout)
        if soft:
            finish()
        elif self._returns_after(exc):
            self._count_death(exc, finish, partial(self._end_late, finish))
        else:
            self._record_death(partial(self._letter, exc), finish)

    def _is_bystander(self) -> bool:
        """Whether the signal that ended its process was meant for the request before it, whose result
        was still on its way when a shutdown cancelled it, or somebody revoked it."""
        meant = (
            self._already_cancelled or self._already_revoked or self._terminate_on_ack is not None
        )
        return not meant and self.id not in revoked_tasks

    def _end_bystander(self, finish: Callable[[], object]) -> None:
        """Celery would announce it as revoked, and acknowledge it."""
        if self.acknowledged:
            self._record_death(self._letter_of_cancelled, finish)
        else:
            self._record_death(lambda: None, partial(self._give_back, finish))

    def _give_back(self, finish: Callable[[], object]) -> None:
        logger.warning("%s[%s] was ended in another's place; it goes back", self.name, self.id)
        self._already_cancelled = True
        finish()
        self.reject(requeue=True)

    def cancel(self, pool: Any, *args: Any, **kwargs: Any) -> None:
        """Called when a shutdown, or a lost connection, is to end the run."""
        if is_green(pool) and self.time_start and not self.acknowledged:
            # A greenlet that was killed comes back as a success, which Celery acknowledges.
            self.__dict__["acknowledge"] = lambda: None
        try:
            super().cancel(pool, *args, **kwargs)
        except NotImplementedError:
            # Out of a signal handler: on solo into the body, on threads into the consumer.
            logger.warning(
                "%s[%s] cannot be cancelled in this pool; it goes on", self.name, self.id
            )

    def _announce_cancelled(self, *args: Any, **kwargs: Any) -> None:
        """Called, from a signal handler, when a shutdown ends the running task; and after a lost
        connection for a message that the broker delivers again."""
        if self.acknowledged and not self._dlq_dead and not self._success_is_stored():
            letter = self._guarded(self._letter_of_cancelled)
            if letter is not None:
                self._dlq_dead = True
                self.task.dlq.record_now(letter)
                self._dlq_safe = True
        try:
            super()._announce_cancelled(*args, **kwargs)
        except Exception:
            # With the result backend down; and the other tasks would not be cancelled.
            logger.exception("Celery failed to end %s[%s], which was cancelled", self.name, self.id)
            self._already_cancelled = True

    def _announce_revoked(self, *args: Any) -> None:
        """Called for a message that expired or was revoked, which is dropped. With the result backend
        down Celery raises before it acknowledges: out of the consumer, and the worker ends."""
        try:
            super()._announce_revoked(*args)
        except Exception:
            logger.exception("Celery failed to end %s[%s], which was revoked", self.name, self.id)
            self._already_revoked = True
            if not self.acknowledged:
                self.acknowledge()

    def condemn(self, known: tuple[Delivery, ...]) -> None:
        """Its message has killed its worker too often; called instead of running it."""
        self._dlq_decided = True
        exc = PoisonMessage()
        self._record_death(
            partial(self._letter_of_poison, exc, Reason.POISON, known),
            partial(super().on_failure, _einfo(exc)),
        )

    def _count_death(
        self, exc: BaseException, give_back: Callable[[], object], end: Callable[[], object]
    ) -> None:
        """Its process died, and the message goes back to its queue: ``give_back`` does that. When it
        was delivered often enough, it becomes a letter, and ``end`` finishes it."""
        if self._dlq_dead:
            self._after_letter(give_back)
            return
        self._dlq_dead, self._dlq_after = True, []
        death = f"{type(exc).__name__}: {safe_message(exc)}"
        died = replace(self._dlq_known[-1], death=death) if self._dlq_known else None
        deliveries = self.task.dlq.deliveries
        deliveries.count_death(
            self,
            died or self.as_delivery("", death=death),
            partial(self._death_counted, exc, give_back, end),
        )

    def _death_counted(
        self,
        exc: BaseException,
        give_back: Callable[[], object],
        end: Callable[[], object],
        known: tuple[Delivery, ...],
    ) -> None:
        letter, waiting = None, self._dlq_after or []
        if self.task.dlq.deliveries.is_spent(known, self.message):
            late = isinstance(exc, TimeLimitExceeded)
            reason = Reason.TIMEOUT if late else Reason.POISON
            letter = self._guarded(partial(self._letter_of_poison, exc, reason, known, seen=True))
        self._dlq_after = [give_back if letter is None else end, *waiting]
        if letter is None:
            self._go_on()
        else:
            self._record(letter, partial(self._letter_is_safe, letter))

    def _end_late(self, finish: Callable[[], object]) -> None:
        # Celery would give it back; what is acknowledged it cannot.
        self.acknowledge()
        finish()

    def _record_death(
        self, make: Callable[[], DeadLetter | None], finish: Callable[[], object]
    ) -> None:
        if self._dlq_dead:
            self._after_letter(finish)
            return
        letter = self._guarded(make)
        if letter is None:
            self._finish_alive(finish)
            return
        self._dlq_dead, self._dlq_after = True, [finish]
        self._record(letter, partial(self._letter_is_safe, letter))

    def _record(self, what: DeadLetter | Outcome, then: Callable[[], object]) -> None:
        # Until then a message that is not acknowledged keeps another one from being delivered.
        self.task.dlq.record(what, then, urgent=not self.acknowledged)

    def _finish_alive(self, finish: Callable[[], object]) -> None:
        """The run is over, and the message lives on or was dropped on purpose."""
        if self._dlq_known:
            # First, since its next delivery must not find this one.
            self.task.dlq.deliveries.forget(self._dlq_known, finish)
        else:
            finish()

    def _letter_is_safe(self, letter: DeadLetter) -> None:
        self._dlq_safe, self._dlq_announced = True, letter.state is not State.PARKED
        self._go_on()

    def _go_on(self) -> None:
        waiting, self._dlq_after = self._dlq_after or [], None
        for finish in waiting:
            self._finish(finish)
        self._announce_dead()

    def _after_letter(self, finish: Callable[[], object]) -> None:
        if self._dlq_after is None:
            self._finish(finish)
            # Once more, since what was finished may have sent another task-failed.
            self._announce_dead()
        else:
            self._dlq_after.append(finish)

    def _announce_dead(self) -> None:
        if self._dlq_announced:
            tell_dead(self)

    def _finish(self, finish: Callable[[], object]) -> None:
        """What Celery does after a failure. It may raise on the way, with the result backend down,
        and leave the message unsettled, or the worker dead."""
        try:
            finish()
        except Exception:
            logger.exception("Celery failed to end %s[%s]", self.name, self.id)
            if self._dlq_safe and not self.acknowledged:
                self.acknowledge()

    def _record_success(self, failed__retval__runtime: tuple[Any, Any, Any], **kwargs: Any) -> None:
        succeed = type(self).on_success.__get__(self)
        finish = partial(succeed, failed__retval__runtime, **kwargs)
        if failed__retval__runtime[0]:
            finish()
            return
        outcome = Outcome(
            task_id=letter_id(self._message, self.id),
            redrive=redrive_of(self._message.headers),
            succeeded_at=datetime.now(timezone.utc),
            worker=self.hostname or "",
        )
        self._record(outcome, finish)

    def _letter_of(self, einfo: ExceptionInfo) -> DeadLetter | None:
        if getattr(einfo, "dlq_retried", False):
            # Also when the result backend is down and einfo tells its error instead of the retry.
            if self.task.dlq.meter is not None:
                self.task.dlq.meter.retried(self.type, getattr(einfo, "dlq_rule", ""))
            parking = getattr(einfo, "dlq_parking", None)
            return parking and parked_letter(self, parking, self.task.dlq)
        noted = getattr(einfo, "dlq_failure", None)
        return self._letter(unwrap(einfo), str(einfo.traceback or ""), noted)

    def _letter(
        self, exc: BaseException, traceback: str = "", noted: Failure | None = None
    ) -> DeadLetter | None:
        reason = self._reason_of_death(exc)
        if reason is None or str(self.type).startswith("celery."):
            return None
        failure = noted or failure_of(self, exc, traceback, reason, self.task.dlq)
        return snapshot(self, failure, self.task.dlq)

    def _letter_of_poison(
        self,
        exc: BaseException,
        reason: Reason,
        known: tuple[Delivery, ...],
        *,
        seen: bool = False,
    ) -> DeadLetter | None:
        failure = failure_of(self, exc, "", reason, self.task.dlq)
        return snapshot(self, poisoned(failure, known, seen=seen), self.task.dlq)

    def _letter_of_cancelled(self) -> DeadLetter | None:
        if str(self.type).startswith("celery."):
            return None
        failure = failure_of(self, TaskCancelled(), "", Reason.CANCELLED, self.task.dlq, _CANCELLED)
        return snapshot(self, failure, self.task.dlq)

    def _guarded(self, make: Callable[[], DeadLetter | None]) -> DeadLetter | None:
        try:
            return make()
        except Exception:
            # A hook that raises here would keep Celery from acknowledging and storing the result.
            logger.critical(
                "celery_dlq could not make a dead letter of %s[%s]; its message: body=%r headers=%r",
                self.name, self.id, self._message.body, self._message.headers, exc_info=True,
            )  # fmt: skip
            return None


def _einfo(exc: Exception) -> ExceptionInfo:
    try:
        raise exc
    except type(exc):
        return ExceptionInfo()
