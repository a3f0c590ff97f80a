"""The class of a task's requests: it captures failures for the consumer that makes the requests, and keeps
messages in the flight recorder that their broker may have forgotten."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ClassVar

from celery.worker.request import Request
from kombu.utils.imports import symbol_by_name

from celery_dlq.base.process import pid_of_run
from celery_dlq.recorder.flight import FlightRecorder
from celery_dlq.recorder.segment import Entry
from celery_dlq.worker.end.closing import Closing
from celery_dlq.worker.end.request import DLQRequest
from celery_dlq.worker.wiring import Captures


def _with_end_of_record(name: str) -> Callable[..., Any]:
    """The method ``name`` of Celery's request, after which the record ends, whatever the method raises."""

    def method(request: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return getattr(super(RecordedRequest, request), name)(*args, **kwargs)
        finally:
            request.end_record()

    return method


class RecordedRequest(Request):  # type: ignore[misc]
    """The base of requests that are acknowledged before they run, and of all requests if the broker forgets
    their messages earlier. It keeps a message in the flight recorder from before its acknowledgement until
    its run has ended.

    It comes after :class:`~celery_dlq.worker.end.request.DLQRequest` in the order of methods: whatever
    that class calls last, when the letter is safe, ends here.
    """

    #: The recorder of the consumer that made this request; see :mod:`celery_dlq.worker.end.classes`.
    _dlq_recorder: ClassVar[FlightRecorder]
    #: The message in the recorder, while it runs.
    _dlq_entry: Entry | None = None
    _dlq_closing: Closing | None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # Celery overrides on_success in a subclass for each task, without calling this class.
        if "on_success" in vars(cls):
            cls.on_success = _ending(cls.on_success)  # type: ignore[method-assign]

    def record_acceptance(self, pid: int | None) -> None:
        """Record the message, which ``pid`` of the pool is about to run."""
        message = self._message
        # In the protocol of Celery 3, the body has the fields, and it may be one that no one should unpickle.
        fields = None if "task" in message.headers else self._request_dict
        self._dlq_entry = self._dlq_recorder.record(message, self._type, pid_of_run(pid), fields)

    def record_success(self) -> None:
        """Record that the body has returned. The message stays in the recorder until the store knows that."""
        if self._dlq_entry is not None:
            self._dlq_recorder.succeeded(self._dlq_entry)

    def end_record(self) -> None:
        """Note that the run has ended. While a letter is not safe yet, this does nothing."""
        closing = self._dlq_closing
        has_gone_back = self.task.acks_late and self.acknowledged
        if closing is None or closing.is_safe or has_gone_back:
            # In one step, because a signal handler may end it at the same time.
            entry = self.__dict__.pop("_dlq_entry", None)
            if entry is not None:
                entry.end()

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        """Called when the pool is about to run the task; acknowledges the message."""
        self.record_acceptance(pid)
        super().on_accepted(pid, time_accepted)

    def on_success(self, failed__retval__runtime: tuple[Any, Any, Any], **kwargs: Any) -> None:
        """Called when the body has returned, unless Celery's own subclass replaces this."""
        super().on_success(failed__retval__runtime, **kwargs)
        if not failed__retval__runtime[0]:
            self.end_record()

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Called when a time limit is over; for a hard one, when the letter is safe."""
        try:
            super().on_timeout(soft, timeout)
        finally:
            if not soft:
                self.end_record()

    #: Called when the letter of a run that failed is safe, or when the run has no letter.
    on_failure = _with_end_of_record("on_failure")
    _announce_cancelled = _with_end_of_record("_announce_cancelled")
    _announce_revoked = _with_end_of_record("_announce_revoked")


def _ending(succeed: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(succeed)
    def on_success(request: Any, failed__retval__runtime: Any, **kwargs: Any) -> Any:
        # First, so that a monitor that cannot be notified does not keep the entry.
        if not failed__retval__runtime[0]:
            request.end_record()
        return succeed(request, failed__retval__runtime, **kwargs)

    return on_success


#: Strategies read the class off the task, which all consumers of a process share.
_BINDING = threading.RLock()


@contextlib.contextmanager
def bound(task: Any, capture: Captures) -> Iterator[None]:
    """Within this block, while a strategy of ``task`` is made for a consumer, bind the requests of ``task``
    to the ``capture`` of that consumer. A user's Request class stays as it is if :func:`capturing` returns
    None."""
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


def _class_for(task: Any, base: type[DLQRequest], capture: Captures) -> type[DLQRequest]:
    own: dict[str, Any] = {"_dlq_capture": capture}
    is_kept = task.acks_late and not capture.app.hold.forgets  # by the broker
    if is_kept or not task.dlq_recorder or not task._makes_letters:
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
