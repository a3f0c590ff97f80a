"""Whether a message runs again after its run has died, and if not, why."""

from __future__ import annotations

from typing import Any

from celery.exceptions import Ignore, Reject, Retry, Terminated, TimeLimitExceeded, WorkerLostError
from celery.states import SUCCESS
from celery.utils.log import get_logger
from celery.worker.request import Request

from celery_dlq.states import Reason
from celery_dlq.worker.admission.counted import CountedRequest

logger = get_logger(__name__)

#: Since 5.7, Celery acknowledges a message whose process died after its success was stored; before, it
#: gives it back like any other.
_SUCCESS_IS_KEPT = hasattr(Request, "_success_was_stored")


class ReasonedRequest(CountedRequest):
    """A request that knows what Celery does with its message after each kind of death."""

    #: The stored success of a run whose process is gone, False for none; None until it is looked for.
    _dlq_success: Any = None

    def _reason_of_death(self, exc: BaseException) -> Reason | None:
        """Why the message will not run again; None when it will, or was dropped on purpose."""
        if isinstance(exc, (Retry, Ignore, Terminated)):
            return None
        if isinstance(exc, Reject):
            goes_back = exc.requeue and not self.acknowledged
            return None if goes_back else Reason.REJECTED
        if isinstance(exc, (WorkerLostError, SystemExit, KeyboardInterrupt)):
            return self._reason_of_lost_worker(exc)
        if isinstance(exc, TimeLimitExceeded):
            return None if self._requeued_on_timeout() else Reason.TIMEOUT
        return Reason.TERMINAL

    def _returns_after(self, exc: BaseException) -> bool:
        """Whether the run died under ``exc``, and the message goes back to its queue all the same."""
        if self.acknowledged or self._already_cancelled or self._already_revoked:
            return False
        if isinstance(exc, TimeLimitExceeded):
            return self._requeued_on_timeout()
        # Before 5.7 Celery acknowledges a process that said why it exits.
        also_exits = (SystemExit, KeyboardInterrupt) if hasattr(self, "_worker_lost_info") else ()
        return (
            isinstance(exc, (WorkerLostError, *also_exits))
            and bool(self.task.acks_late and self.task.reject_on_worker_lost)
            and not getattr(self.task, "retry_on_worker_lost", None)
            and not (_SUCCESS_IS_KEPT and self._success_is_stored())
        )

    def _reason_of_lost_worker(self, exc: BaseException) -> Reason | None:
        if self._already_cancelled or self._already_revoked:
            return None
        if getattr(self.task, "retry_on_worker_lost", None) and not self._retries_spent():
            return None
        return None if self._success_is_stored() else Reason.POISON

    def _success_is_stored(self) -> bool:
        """Whether the run had stored its success before its process ended."""
        try:
            return bool(not self.ignore_result and self._success_was_stored())
        except Exception:
            logger.exception("cannot tell whether %s[%s] had succeeded", self.name, self.id)
            return False

    def _success_was_stored(self) -> Any:
        # Celery's own question since 5.7, here asked once: with the backend down, each answer takes seconds.
        if self._dlq_success is None:
            ask = getattr(super(), "_success_was_stored", self._is_success)
            self._dlq_success = ask()
        return self._dlq_success

    def _is_success(self) -> bool:
        backend = self.task.backend
        # Its results are on the caller's queue; a look would declare one.
        return backend.as_uri() != "rpc://" and bool(backend.get_state(self.id) == SUCCESS)

    def _retries_spent(self) -> bool:
        if not getattr(self.task, "retry_on_worker_lost", None):
            return False
        most = self.task.max_retries
        return most is not None and (self._request_dict.get("retries") or 0) >= most

    def _requeued_on_timeout(self) -> bool:
        acks = getattr(self.task, "acks_on_timeout", None)
        if acks is None:
            acks = self.task.acks_on_failure_or_timeout
        return bool(self.task.acks_late and not acks)
