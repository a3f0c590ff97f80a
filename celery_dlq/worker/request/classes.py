"""Makes the class of a task's requests, which captures failures for the consumer that makes the requests."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from celery.worker.request import Request
from kombu.utils.imports import symbol_by_name

from celery_dlq.worker.request.recorded import RecordedRequest
from celery_dlq.worker.request.request import DLQRequest
from celery_dlq.worker.wiring import ConsumerWiring

#: Strategies read the class off the task, which all consumers of a process share.
_BINDING = threading.RLock()


@contextlib.contextmanager
def bound(task: Any, consumer: Any) -> Iterator[None]:
    """Within this block, while a strategy of ``task`` is made for ``consumer``, bind the requests of ``task``
    to that consumer, which captures them. A user's Request class stays as it is if :func:`capturing` returns
    None."""
    capture: ConsumerWiring = getattr(consumer, "dlq", None) or task.dlq.capture
    base = capturing(task)
    if base is None:
        yield
        return
    with _BINDING:
        before = {name: value for name, value in vars(task).items() if name == "Request"}
        task.Request = _class_for(task, base, capture)
        try:
            yield
        finally:
            del task.Request
            vars(task).update(before)


def _class_for(task: Any, base: type[DLQRequest], capture: ConsumerWiring) -> type[DLQRequest]:
    own: dict[str, Any] = {"_dlq_capture": capture}
    if task.acks_late or not task.dlq_recorder or not task._makes_letters:
        return type(base.__name__, (base,), own)
    own["_dlq_recorder"] = capture.flight_recorder
    return type(base.__name__, (base, RecordedRequest), own)


def capturing(task: Any) -> type[DLQRequest] | None:
    """The class of the requests of ``task``: its own, combined with :class:`DLQRequest` if necessary; None if
    the two cannot be combined.

    DLQRequest comes first, so that a letter is written before the user's class handles it.
    """
    own = symbol_by_name(task.Request)
    if not isinstance(own, type) or not issubclass(own, Request):
        return None
    if issubclass(own, DLQRequest):
        return own
    try:
        return type(own.__name__, (DLQRequest, own), {"__module__": own.__module__})
    except TypeError:
        return None
