"""The last step before the pool. A request that the pool cannot take becomes a letter, however it came here:
from the broker, from the timer of an ETA, from a rate limit, or from a guard of this package.

Prefork pickles a request on its way to a child, which fails if the message nests too deeply. In Celery that
error ends the worker, and then the next one that gets the message. The other pools run a request in this
process, and an error outside the task's body is lost in their threads: the message is never settled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.exceptions import InvalidTaskError, TaskRevokedError
from celery.utils.log import get_logger
from celery.worker.request import Request

from celery_dlq.base.redact import safe_message
from celery_dlq.errors import PoolFailed
from celery_dlq.worker.body.report import einfo_of, failed_outside
from celery_dlq.worker.celery_quirks.pools import forget_job, free_slots_in_turn

logger: logging.Logger = get_logger(__name__)

#: The rule of such a letter: no rule of the classifier has judged it.
RULE = "message.pool_refused"

#: Called with a request and the reason why its pool does not take it; makes a letter, and ends the request.
Refuse = Callable[[Any, InvalidTaskError], object]


class HandOver:
    """Stands between a worker and its pool.

    :param refuse_other: ends requests that are not on :class:`~celery_dlq.worker.end.request.DLQRequest`.
    """

    def __init__(self, consumer: Any, refuse_other: Refuse) -> None:
        self._consumer, self._refuse_other = consumer, refuse_other
        self._process: Callable[[Any], object]

    def join(self) -> Callable[[Any], object]:
        """Step between the worker and its pool; called once, before the worker starts. Returns the function
        that gives a request to the pool."""
        consumer, controller = self._consumer, self._consumer.controller
        self._process = controller._process_task
        controller._process_task = self._give
        free_slots_in_turn(controller)
        if not getattr(consumer.pool, "uses_semaphore", False):
            consumer.pool.on_apply = partial(self._apply_here, consumer.pool.on_apply)
        # Otherwise, a request waits for a slot of the pool first.
        is_direct = consumer.on_task_request == self._process
        return self._give if is_direct else consumer.on_task_request

    def _give(self, request: Any) -> None:
        """Replaces the worker's ``_process_task``, which frees the slot of a revoked request."""
        try:
            self._process(request)
        except Exception as exc:
            error = refusal(request, self._consumer.pool, exc)
            if error is None:
                raise
            free_slot(self._consumer.controller)
            self._refuse(request, error)

    def _refuse(self, request: Any, error: InvalidTaskError) -> None:
        if hasattr(request, "refuse"):
            request.refuse(error)
        else:
            self._refuse_other(request, error)

    def _apply_here(
        self,
        apply: Callable[..., object],
        target: Callable[..., Any],
        args: Any,
        kwargs: Any,
        **options: Any,
    ) -> object:
        """``apply`` (a pool's, which runs ``target`` in this process), with every error reported to the
        request, as in prefork. The pools themselves lose such errors. What others give to the pool, such as
        the batches of celery-batches, is run as it is."""
        owner = getattr(options.get("accept_callback"), "__self__", None)
        if isinstance(owner, Request) or hasattr(owner, "refuse"):
            run, reporting = self._reporting_to(owner, target, **options)
            return apply(run, args, kwargs, **{**options, **reporting})
        return apply(target, args, kwargs, **options)

    def _reporting_to(
        self,
        owner: Any,
        target: Callable[..., Any],
        *,
        callback: Callable[[Any], object],
        error_callback: Callable[[ExceptionInfo], object],
        accept_callback: Callable[..., object],
        **_options: Any,
    ) -> tuple[Callable[..., Any], dict[str, Callable[..., object]]]:
        """``target`` and callbacks that report each error to ``owner``, a request or a batch."""
        refused: list[InvalidTaskError] = []

        def accept(*args: Any) -> None:
            try:
                accept_callback(*args)
            except Exception as exc:  # noqa: BLE001 - reported to the request
                refused.append(_error_of(exc))

        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                return None if refused else target(*args, **kwargs)
            except Exception as exc:  # noqa: BLE001 - reported to the request
                return failed_outside(exc)

        def call_back(result: Any) -> None:
            if refused:
                self._refuse(owner, refused[0])
            elif isinstance(result, ExceptionInfo):  # also if Celery reports a SystemExit
                try:
                    error_callback(result)
                except Exception:
                    # As in prefork, where billiard logs it. From here, it would end a solo worker.
                    logger.exception("Celery failed to end a task that failed outside its body")
            else:
                callback(result)

        return run, {"callback": call_back, "accept_callback": accept}


def refusal(request: Any, pool: Any, exc: Exception) -> InvalidTaskError | None:
    """Why ``pool`` did not take ``request``, according to ``exc``; None if the request runs or has run.

    :raises PoolFailed: the pool takes no request at all, which says nothing about this one.
    """
    if isinstance(exc, (TaskRevokedError, PoolFailed)) or request.time_start is not None:
        return None
    # It comes from the pool if that shuts down, or cannot start a thread.
    is_of_an_executor = isinstance(exc, RuntimeError) and not isinstance(exc, RecursionError)
    if not getattr(pool, "active", True) or (
        is_of_an_executor and not getattr(pool, "uses_semaphore", False)
    ):
        raise PoolFailed(
            f"The pool takes no tasks: {safe_message(exc)}; restart the worker."
        ) from exc
    forget_job(pool, request)
    return _error_of(exc)


def free_slot(controller: Any) -> None:
    """Free the pool's slot of a request that will not run now. Only prefork counts slots here;
    elsewhere this does nothing."""
    release = getattr(controller, "_quick_release", None)
    if release is not None:
        release()


def end_unrun(request: Any, error: Exception, on_failure: Callable[..., object]) -> None:
    """Let Celery end ``request`` as failed. Its message is settled in any case: a task that
    acknowledges early would have done so at its start."""
    on_failure(einfo_of(error))
    if not request.acknowledged:
        request.acknowledge()


def _error_of(exc: Exception) -> InvalidTaskError:
    error = InvalidTaskError(f"the pool cannot take it: {type(exc).__name__}: {safe_message(exc)}")
    error.__cause__ = exc
    return error
