"""Reads from the request and the exception what Celery does with a message after its run has died."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from celery.backends.base import DisabledBackend
from celery.exceptions import Ignore, Reject, Retry, Terminated, TimeLimitExceeded, WorkerLostError
from celery.states import SUCCESS
from celery.utils.log import get_logger
from celery.worker.request import Request
from celery.worker.state import revoked as revoked_tasks

from celery_dlq.classify import is_a
from celery_dlq.model.states import Reason

logger: logging.Logger = get_logger(__name__)

#: Since 5.7, Celery acknowledges a message whose process died after its success was stored. Earlier releases
#: return the message to its queue.
_SUCCESS_IS_KEPT = hasattr(Request, "_success_was_stored")
#: Since 5.7, the message of a process that exits by itself goes back, too. Earlier releases acknowledge it.
_ALSO_GO_BACK = (SystemExit, KeyboardInterrupt) if hasattr(Request, "_worker_lost_info") else ()

#: Some databases keep the whole seconds of a time only.
_FRACTION = timedelta(seconds=1)


class Fate(Enum):
    """What Celery does with a message that does not become a letter, although its run did not succeed."""

    #: It is settled: another message takes its place, it was dropped on purpose, or its success is stored.
    SETTLED = "settled"
    #: It goes back to its queue, because its run died or gave it back.
    GOES_BACK = "goes back"


def fate_of(request: Any, exc: BaseException) -> Reason | Fate:
    """Why the message of ``request`` (a worker's Request) does not run again after ``exc``; otherwise, what
    Celery does with it."""
    if is_a(exc, (Retry, Ignore, Terminated)):
        return Fate.SETTLED
    may_go_back = not (request.acknowledged or _was_ended(request))
    if is_a(exc, Reject):
        if exc.requeue and not request.acknowledged:
            return Fate.GOES_BACK if may_go_back else Fate.SETTLED
        return Reason.REJECTED
    if is_a(exc, (WorkerLostError, SystemExit, KeyboardInterrupt)):
        return _fate_of_lost_worker(request, exc, may_go_back=may_go_back)
    if is_a(exc, TimeLimitExceeded):
        if _requeued_on_timeout(request):
            return Fate.GOES_BACK if may_go_back else Fate.SETTLED
        return Reason.TIMEOUT
    return Reason.TERMINAL


def is_bystander(request: Any) -> bool:
    """Whether the signal that ended the process of ``request`` was meant for the request before it, whose
    result was still on its way when a shutdown cancelled it or a user revoked it."""
    meant = _was_ended(request) or request._terminate_on_ack is not None
    return not meant and request.id not in revoked_tasks


def is_internal(request: Any) -> bool:
    """Whether its task is one of Celery's own, and carries none of the user's; or the one that calls repair
    handlers, whose failures the store records."""
    return not request.task._makes_letters


def success_is_stored(request: Any) -> bool:
    """Whether the run had stored its success before its process ended."""
    try:
        return bool(not request.ignore_result and request._success_was_stored())
    except Exception:
        logger.exception("cannot tell whether %s[%s] had succeeded", request.name, request.id)
        return False


def stored_success(backend: Any, task_id: str) -> Mapping[str, Any] | None:
    """The result that ``backend`` holds of a success of the task with this id; None if there is none.

    :raises Exception: backends raise anything.
    """
    # The results of rpc:// are in the caller's queue, and looking there would declare a queue.
    if isinstance(backend, DisabledBackend) or backend.as_uri() == "rpc://":
        return None
    result: Mapping[str, Any] = backend.get_task_meta(task_id, cache=False)
    return result if result.get("status") == SUCCESS else None


def is_of_run(result: Mapping[str, Any], began_at: datetime, app: Any) -> bool:
    """Whether ``result``, as a result backend holds it, is of a run that began at ``began_at``, or of a later
    one. An earlier result is of an earlier message with the same id. A result without a time counts as one of
    the run."""
    ended_at = result.get("date_done")
    if isinstance(ended_at, str):
        try:
            ended_at = datetime.fromisoformat(ended_at)
        except ValueError:
            return True
    if not isinstance(ended_at, datetime):
        return True
    if ended_at.tzinfo is None:  # databases drop it from the app's local time
        ended_at = ended_at.replace(tzinfo=app.timezone)
    return ended_at + _FRACTION >= began_at


def _fate_of_lost_worker(request: Any, exc: BaseException, *, may_go_back: bool) -> Reason | Fate:
    retries = bool(getattr(request.task, "retry_on_worker_lost", None))  # since 5.7
    most = request.task.max_retries
    is_spent = most is not None and (request.request_dict.get("retries") or 0) >= most
    if _was_ended(request) or (retries and not is_spent):
        return Fate.SETTLED
    goes_back = (
        may_go_back
        and not retries
        and bool(request.task.acks_late and request.task.reject_on_worker_lost)
        and is_a(exc, (WorkerLostError, *_ALSO_GO_BACK))
    )
    if goes_back and not _SUCCESS_IS_KEPT:
        return Fate.GOES_BACK
    if success_is_stored(request):
        return Fate.SETTLED
    return Fate.GOES_BACK if goes_back else Reason.POISON


def _was_ended(request: Any) -> bool:
    """Whether the run was cancelled or revoked."""
    return bool(request._already_cancelled or request._already_revoked)


def _requeued_on_timeout(request: Any) -> bool:
    acks = getattr(request.task, "acks_on_timeout", None)  # since 5.7
    if acks is None:
        acks = request.task.acks_on_failure_or_timeout
    return bool(request.task.acks_late and not acks)
