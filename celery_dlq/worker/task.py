"""The base class of tasks: runs the body, and answers the exception that it raised."""

from __future__ import annotations

import inspect
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar

from celery import Task
from celery.app.task import Context
from celery.exceptions import Ignore

from celery_dlq.classify import Decision
from celery_dlq.errors import AsyncTaskError, SettingsError, page
from celery_dlq.model.headers import REDRIVE_HEADER, redrive_headers
from celery_dlq.model.states import Verdict
from celery_dlq.settings import check_option
from celery_dlq.worker.body.again import budget_of, counted, note_sent, retry, successor_of
from celery_dlq.worker.body.answer import answer, finish
from celery_dlq.worker.body.ending import Replaced, current_run
from celery_dlq.worker.body.judge import own_rules
from celery_dlq.worker.body.report import Tracer, awaits_bodies, reporting
from celery_dlq.worker.body.run import Run, as_run_context
from celery_dlq.worker.body.trace import mark_redriven
from celery_dlq.worker.options import FromSettings, TaskOptions, check_key

#: Options with the name and the allowed values of a setting.
_CHECKED_OPTIONS = (
    "dlq_retry_window", "dlq_retry_budget", "dlq_retry_budget_floor", "dlq_tags",
    "dlq_breaker_failures", "dlq_breaker_streak", "dlq_breaker_window", "dlq_breaker_recovery",
    "dlq_recorder", "dlq_redrive", "dlq_unsent",
)  # fmt: skip


class DLQTask(TaskOptions):
    """Base class of tasks whose failures are classified, retried with full jitter, and
    dead-lettered when they are terminal or exhausted.

    Celery's options keep their meaning: ``autoretry_for`` names transient exceptions,
    ``dont_autoretry_for`` and ``throws`` terminal ones, the latter last; ``max_retries``, ``retry_backoff``,
    ``retry_backoff_max`` (seconds, floats allowed), ``retry_jitter`` and ``retry_kwargs`` shape the
    schedule; an explicit ``self.retry()`` is respected.
    """

    Request = "celery_dlq.worker.end.request:DLQRequest"

    #: Celery's tracer of this task, once a worker has made it.
    _trace: Tracer | None = None
    #: Whether no class between this one and Task overrides ``__call__``.
    _runs_directly: ClassVar[bool] = True
    #: Whether the body is a coroutine function.
    _is_async: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        after = cls.__mro__[cls.__mro__.index(DLQTask) + 1 :]
        cls._runs_directly = next(base for base in after if "__call__" in vars(base)) is Task
        users = (base for base in cls.__mro__ if base not in (DLQTask, Task))
        cls._sends_itself = any("apply_async" in vars(base) for base in users)

    def _set_trace(self, tracer: Tracer | None) -> None:
        # After a lost connection Celery makes another tracer, but the budget stays spent.
        self._budget = self._budget or budget_of(self)
        self._trace = tracer and reporting(counted(tracer, self._budget))

    def _del_trace(self) -> None:
        del self._trace

    #: Its result carries the end of the run to the worker's parent.
    __trace__: property = property(attrgetter("_trace"), _set_trace, _del_trace)

    @classmethod
    def bind(cls, app: Any) -> Any:
        """Bind the task to ``app``, and the app to its dead-letter queue."""
        cls._is_async = inspect.iscoroutinefunction(inspect.unwrap(cls.run))
        awaits = awaits_bodies()
        if cls._is_async and not awaits:
            raise AsyncTaskError(
                f"Task {cls.name} is a coroutine function, which Celery would never run; write it as def, "
                f"and call asyncio.run() in it, or use a pool that awaits it: {page('async-tasks')}."
            )
        bound = super().bind(app)
        if awaits:
            # Such a pool runs the body in another thread than the tracer.
            cls.request_stack.__ident_func__ = current_run
        if cls.reject_on_worker_lost is None:
            # Neither the task nor the app's configuration sets it. It has an effect on acks_late tasks only,
            # and dlq_max_deliveries limits the deliveries, which have no limit in plain Celery.
            cls.reject_on_worker_lost = True
        cls._check_options()
        cls._dlq_wiring = cls.wire(app)
        return bound

    def apply_async(self, *args: Any, **kwargs: Any) -> Any:
        """Celery's ``apply_async``. Invalid ``dlq_*`` settings are logged, not raised."""
        if self._dlq_wiring is not None:  # None for an instance of a class that is not registered
            self._dlq_wiring.report_settings()
        return super().apply_async(*args, **kwargs)

    def start_strategy(self, app: Any, consumer: Any, **kwargs: Any) -> Any:
        """Called by each consumer of a worker, once per connection to the broker."""
        capture = getattr(consumer, "dlq", None) or self._wiring.capture
        with capture.strategy_of(self, consumer):
            return super().start_strategy(app, consumer, **kwargs)

    @classmethod
    def _check_options(cls) -> None:
        for option in _CHECKED_OPTIONS:
            value = inspect.getattr_static(cls, option)
            if not isinstance(value, FromSettings):
                check_option(str(cls.name), option, value)
        check_key(cls)
        try:
            own_rules(cls)
        except SettingsError as error:
            raise SettingsError(f"Task {cls.name}: {error}") from None

    @property
    def _orig_run(self) -> Any:
        # Celery wraps run() with its own autoretry (whole seconds, no window) unless it finds
        # this attribute; here autoretry_for is a rule of the classifier instead.
        return self.run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body; called by the tracer, or by the user as a plain function."""
        request = self.request_stack.top
        if request is None or request.called_directly or request._protected:
            return super().__call__(*args, **kwargs)
        try:
            if REDRIVE_HEADER in request.__dict__:
                mark_redriven(self, request)
            if self._runs_directly:
                # As Celery's own stack protection does for the outermost call in a worker.
                request._protected = 1
                result = self.run(*args, **kwargs)
            else:
                result = super().__call__(*args, **kwargs)
            if not self._is_async:
                finish(request)
        except BaseException as exc:
            instead = answer(self, exc, request)
            if instead is None:
                raise
            raise instead from exc
        return self._awaited(result, request) if self._is_async else result

    async def _awaited(self, body: Any, request: Context) -> Any:
        """The result of ``body``, a coroutine, for a pool that awaits it."""
        try:
            result = await body
            finish(request)
        except BaseException as exc:
            instead = answer(self, exc, request)
            if instead is None:
                raise
            raise instead from exc
        return result

    @property
    def dlq(self) -> Run:
        """The run of the body that asks; outside of a message's run, a first run without an id."""
        return Run.of(str(self.name), self.request)

    def _get_request(self) -> Any:
        return as_run_context(super()._get_request(), str(self.name))

    request: property = property(_get_request)

    def classify(self, exc: BaseException) -> Decision | Verdict | str | None:
        """Override to judge an exception yourself: return a verdict, or None to leave it to the rules."""
        return None

    def retry(
        self,
        args: Any = None,
        kwargs: Any = None,
        exc: Any = None,
        throw: bool = True,
        eta: Any = None,
        countdown: Any = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> Any:
        """Celery's ``retry``; without ``eta`` or ``countdown`` the wait comes from the backoff,
        unless the task sets ``default_retry_delay``. A run sends one retry: further calls return it, or raise
        it."""
        again: Any = successor_of(self.request)
        if again is None:
            celerys = partial(super().retry, args, kwargs)
            again = retry(self, celerys, exc, eta, countdown, max_retries, options, throw=throw)
            if not self.request.is_eager:
                self.request._dlq_successor = again
        if throw:
            raise again
        return again

    def on_replace(self, sig: Any) -> Any:
        """Called by Celery when the body replaces its message by ``sig``."""
        sent = successor_of(self.request)
        if sent is not None:
            raise sent
        redrive = redrive_headers(self.request.headers)
        # In a chain, the rest of the chain follows.
        members = sig.tasks if sig.task == "celery.chain" else (sig,)
        own = [
            one for one in members
            if one.task == self.name and one.options.get("task_id") == self.request.id
        ]  # fmt: skip
        if redrive:
            for one in own:
                one.set(headers={**(one.options.get("headers") or {}), **redrive})
        try:
            return super().on_replace(sig)
        except Ignore:
            self.request._dlq_successor = Replaced(continues=bool(redrive and own))
            raise self.request._dlq_successor from None

    def _get_exec_options(self) -> Any:
        # Celery's apply_async() asks for them when it is about to send.
        note_sent(str(self.name))
        return super()._get_exec_options()
