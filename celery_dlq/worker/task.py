"""The task's side: classify what the body raised, retry it or let it die with its reason."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from billiard.common import terminate_handler_fired
from celery import Task
from celery.app.task import Context
from celery.exceptions import Ignore, Reject, Retry
from celery.utils.log import get_logger
from celery.utils.quorum_queues import detect_quorum_queues

from celery_dlq.classify import Classifier, Decision, Rule, rules_for
from celery_dlq.errors import AsyncTaskError, TaskAborted
from celery_dlq.headers import ATTEMPTS_HEADER, DELIVERY_HEADERS, redrive_of
from celery_dlq.letter import Attempt, DeadLetter, Explanation, Failure, Outcome
from celery_dlq.redact import Redactor, safe_message
from celery_dlq.retry import Exhausted, RetryPolicy, Wait
from celery_dlq.settings import Settings
from celery_dlq.states import Reason, Verdict
from celery_dlq.worker.failure import (
    app_frames,
    bounded_traceback,
    read_attempts,
    shed_positions,
    traceback_text,
    type_name,
    write_attempts,
)

if TYPE_CHECKING:
    from celery_dlq.worker.deliveries import Deliveries

logger = get_logger(__name__)


class Wiring(Protocol):
    """What a task and its requests need of the composition root."""

    @property
    def settings(self) -> Settings:
        """The app's settings."""

    @property
    def classifier(self) -> Classifier:
        """The app's rules before the built-in ones."""

    @property
    def redactor(self) -> Redactor:
        """Makes display copies of arguments."""

    @property
    def deliveries(self) -> Deliveries:
        """Counts the deliveries that did not end."""

    def record(self, what: DeadLetter | Outcome, then: Callable[[], object]) -> None:
        """Store ``what`` durably, then call ``then``."""


class _FromSettings:
    """A task option whose default is a setting. Not a data descriptor: a class or instance
    attribute, an option of ``@app.task``, or ``task_annotations`` wins, as with Celery's own."""

    def __init__(self, read: Callable[[Settings], Any]) -> None:
        self._read = read

    def __get__(self, task: object, owner: type[DLQTask]) -> Any:
        return self._read(owner.dlq.settings if owner.dlq else Settings())


class DLQTask(Task):  # type: ignore[misc]
    """Base class of tasks whose failures are classified, retried with full jitter, and
    dead-lettered when they are terminal or exhausted.

    Celery's options keep their meaning: ``autoretry_for`` names transient exceptions,
    ``dont_autoretry_for`` and ``throws`` terminal ones; ``max_retries``, ``retry_backoff``,
    ``retry_backoff_max`` (seconds, floats allowed), ``retry_jitter`` and ``retry_kwargs`` shape the
    schedule; an explicit ``self.retry()`` is respected.
    """

    #: Puts an app's parts together; set by :mod:`celery_dlq.queue`, which this room may not import.
    wire: ClassVar[Callable[[Any], Wiring]]
    #: The wiring of the app that the task is bound to.
    dlq: ClassVar[Wiring | None] = None

    Request = "celery_dlq.worker.request:DLQRequest"

    max_retries = _FromSettings(lambda settings: settings.max_attempts - 1)
    retry_backoff = _FromSettings(lambda settings: settings.retry_base)
    retry_backoff_max = _FromSettings(lambda settings: settings.retry_cap)
    retry_jitter = True
    retry_kwargs: Mapping[str, Any] = {}
    autoretry_for: Sequence[type[BaseException]] = ()
    dont_autoretry_for: Sequence[type[BaseException]] = ()

    #: Seconds after the first failure in which attempts may start.
    dlq_retry_window = _FromSettings(lambda settings: settings.retry_window)
    #: Rules of this task, asked before the app's.
    dlq_rules: Sequence[Rule] = ()
    #: Labels kept with this task's letters.
    dlq_tags: Sequence[str] = ()

    #: Whether no class between this one and Task overrides ``__call__``.
    _runs_directly: ClassVar[bool] = True
    #: This task's classifier, and the options that it was made of.
    _classifier_of: tuple[tuple[object, ...], Classifier] | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        after = cls.__mro__[cls.__mro__.index(DLQTask) + 1 :]
        cls._runs_directly = next(base for base in after if "__call__" in vars(base)) is Task

    @classmethod
    def bind(cls, app: Any) -> Any:
        """Bind the task to ``app``, and the app to its dead-letter queue."""
        if inspect.iscoroutinefunction(inspect.unwrap(cls.run)):
            raise AsyncTaskError(
                f"Task {cls.name} is a coroutine function, which Celery would never run; "
                "write it as def, and call asyncio.run() in it."
            )
        bound = super().bind(app)
        if cls.reject_on_worker_lost is None:
            # Neither the task nor the app's configuration says. It bears on acks_late tasks only, and
            # dlq_max_deliveries bounds what plain Celery would deliver without end.
            cls.reject_on_worker_lost = True
        cls.dlq = cls.wire(app)
        return bound

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
            if self._runs_directly:
                # As Celery's own stack protection does for the outermost call in a worker.
                request._protected = 1
                return self.run(*args, **kwargs)
            return super().__call__(*args, **kwargs)
        except BaseException as exc:
            instead = self._answer(exc, request)
            if instead is None:
                raise
            raise instead from exc

    def classify(self, exc: BaseException) -> Decision | Verdict | str | None:
        """Override to judge an exception yourself: return a verdict, or None to let the rules."""
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
        unless the task sets ``default_retry_delay``."""
        request = self.request
        if not request.called_directly and not request.is_eager and not self._built_in:
            if not eta and countdown is None and not self._declares("default_retry_delay"):
                countdown = self._sendable(self._policy().backoff(request.retries + 1))
            options["headers"] = self._headers_of_retry(request, exc, countdown, options)
        try:
            return super().retry(args, kwargs, exc, throw, eta, countdown, max_retries, **options)
        except (Retry, Ignore, Reject):
            raise
        except Exception as exhausted:
            request._dlq_exhausted = exhausted
            raise

    def _answer(self, exc: BaseException, request: Context) -> Exception | None:
        """What goes to Celery instead of ``exc``, if anything does."""
        if isinstance(exc, (Retry, Ignore, Reject)):
            return None
        if isinstance(exc, MemoryError):
            # The worker's parent re-raises a MemoryError that reaches it, and exits.
            return None if request.is_eager else self._aborted(exc, request)
        if isinstance(exc, Exception):
            return self._judge(exc, request)
        if request.is_eager or terminate_handler_fired():
            return None
        aborts = isinstance(exc, (SystemExit, KeyboardInterrupt))
        return self._aborted(exc, request) if aborts else None

    def _judge(self, exc: Exception, request: Context) -> Retry | None:
        """The retry that answers ``exc``, already sent; or None, with the reason of death noted."""
        if self._built_in:
            return None
        try:
            decision = self._decide(exc)
            if request.is_eager:
                return self._retry_eagerly(exc, request, decision)
            return self._retry_or_note(exc, request, decision)
        except Exception as error:
            if error is exc:
                return None
            # The task's own error must reach Celery whatever happens here.
            logger.exception("celery_dlq could not judge the failure of %s", self.name)
            return None

    def _retry_or_note(self, exc: Exception, request: Context, decision: Decision) -> Retry | None:
        if exc is vars(request).pop("_dlq_exhausted", None):
            self._note(exc, request, decision, Reason.EXHAUSTED)
            return None
        if decision.verdict is Verdict.TERMINAL:
            self._note(exc, request, decision, Reason.TERMINAL)
            return None
        earlier, now = read_attempts(request.headers), _now()
        step = self._policy().after(
            request.retries + 1,
            failed_at=now,
            first_failed_at=earlier[0].failed_at if earlier else now,
            retry_after=decision.retry_after,
        )
        if isinstance(step, Exhausted):
            self._note(exc, request, decision, Reason.EXHAUSTED, step.why)
            return None
        return self._send_retry(exc, request, decision, step)

    def _send_retry(
        self, exc: Exception, request: Context, decision: Decision, step: Wait
    ) -> Retry | None:
        request._dlq_decision = decision
        try:
            own = {"exc": exc, "throw": False, "countdown": self._sendable(step.delay_s)}
            # retry_kwargs may name any option of retry(): a queue, a priority, a limit.
            again: Retry = self.retry(**{**self.retry_kwargs, **own})
        except Reject as rejected:
            # Celery turns a retry that cannot be published into a rejected message.
            why = f"the retry could not be published: {safe_message(rejected)}"
            self._note(exc, request, decision, Reason.REJECTED, why)
            return None
        except Exception:  # noqa: BLE001 - a retry() of the user's, with a lower limit, raises its choice
            self._note(exc, request, decision, Reason.EXHAUSTED)
            return None
        finally:
            # Celery leaves a passed max_retries on the task instance, which all requests share.
            self.__dict__.pop("override_max_retries", None)
        return again

    def _retry_eagerly(self, exc: Exception, request: Context, decision: Decision) -> Retry | None:
        # An eager call behaves as on the plain base class, where only autoretry_for retries.
        exhausted = exc is vars(request).get("_dlq_exhausted")
        if exhausted or decision.rule != "task.autoretry_for":
            return None
        options = dict(self.retry_kwargs)
        if self.retry_backoff:
            options["countdown"] = self._policy().backoff(request.retries + 1)
        again: Retry = self.retry(**{**options, "exc": exc, "throw": False})
        return again

    def _decide(self, exc: BaseException) -> Decision:
        try:
            own = self.classify(exc)
        except Exception:
            logger.exception("%s.classify() raised; the rules decide instead", self.name)
            own = None
        if isinstance(own, Decision):
            return own
        if own is not None:
            return Decision(Verdict(own), rule="task.classify")
        return self._classifier().decide(exc)

    def _classifier(self) -> Classifier:
        apps = self._wiring().classifier
        options = (apps, self.dont_autoretry_for, self.throws, self.autoretry_for, self.dlq_rules)
        # Made once, and again when somebody has set one of the options anew.
        if self._classifier_of is None or self._classifier_of[0] != options:
            self._classifier_of = options, self._own_rules_before(apps)
        return self._classifier_of[1]

    def _own_rules_before(self, apps: Classifier) -> Classifier:
        return apps.with_rules(
            *rules_for(self.dont_autoretry_for, Verdict.TERMINAL, "task.dont_autoretry_for"),
            *rules_for(self.throws, Verdict.TERMINAL, "task.throws"),
            *rules_for(self.autoretry_for, Verdict.TRANSIENT, "task.autoretry_for"),
            *self.dlq_rules,
        )

    def _policy(self) -> RetryPolicy:
        most = self.retry_kwargs.get("max_retries")
        most = self.max_retries if most is None else most
        fixed, base = self._fixed_delay(), float(self.retry_backoff or 0.0)
        return RetryPolicy(
            max_attempts=None if most is None else most + 1,
            # Below zero Celery takes one second.
            base=base if base >= 0.0 else 1.0,
            cap=float(self.retry_backoff_max),
            jitter=bool(self.retry_jitter),
            window=float(self.dlq_retry_window),
            retry_after_max=self._wiring().settings.retry_after_max,
            fixed_delay=None if fixed is None else float(fixed),
        )

    def _fixed_delay(self) -> float | None:
        """The constant wait that the task asks for, as Celery reads its options; None for backoff."""
        countdown: float | None = self.retry_kwargs.get("countdown")
        if self._declares("retry_backoff") and self.retry_backoff:
            return None
        if countdown is not None:
            return countdown
        if self._declares("retry_backoff") or self._declares("default_retry_delay"):
            return float(self.default_retry_delay)
        return None

    def _sendable(self, delay_s: float) -> float:
        """A wait that the broker can carry. On quorum queues Celery delays in the broker, in whole
        seconds, and refuses (with the message lost) what is above zero and below one."""
        if not 0.0 < delay_s < 1.0:
            return delay_s
        driver = self.app.connection_for_write().transport.driver_type
        if not detect_quorum_queues(self.app, driver)[0]:
            return delay_s
        return float(round(delay_s))

    def _headers_of_retry(
        self, request: Context, exc: Any, countdown: Any, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        decision = vars(request).pop("_dlq_decision", None)
        if decision is None:
            decision = Decision(Verdict.TRANSIENT, rule="task.retry")
        cause = exc if isinstance(exc, BaseException) else sys.exc_info()[1] or Retry("retried")
        delay = float(countdown) if isinstance(countdown, (int, float)) else None
        attempt = self._attempt(cause, request, decision.explanation(), delay)
        attempts = (*read_attempts(request.headers), attempt)
        kept = {
            name: value
            for name, value in {**(request.headers or {}), **(options.get("headers") or {})}.items()
            if not name.startswith(DELIVERY_HEADERS)
        }
        return {**kept, ATTEMPTS_HEADER: write_attempts(attempts)}

    def _note(
        self,
        exc: BaseException,
        request: Context,
        decision: Decision,
        reason: Reason,
        why: str = "",
    ) -> None:
        """Leave on the request what only this process knows, for :func:`attach_failure`."""
        explanation = decision.explanation()
        if why:
            evidence = "; ".join(filter(None, (explanation.evidence, why)))
            explanation = replace(explanation, evidence=evidence)
        last = self._attempt(exc, request, explanation, None)
        request._dlq_died_of = exc
        request._dlq_failure = Failure(
            reason=reason,
            explanation=explanation,
            exception_type=last.exception_type,
            message=last.message,
            traceback="",
            frames=app_frames(exc),
            failed_at=last.failed_at,
            attempts=(*read_attempts(request.headers), last),
            pid=last.pid,
        )

    def _aborted(self, exc: BaseException, request: Context) -> TaskAborted:
        decision = Decision(
            Verdict.TERMINAL,
            rule="task.aborted",
            evidence=f"the task raised {type_name(type(exc))}",
        )
        self._note(exc, request, decision, Reason.TERMINAL)
        return TaskAborted(f"{type_name(type(exc))}: {safe_message(exc)}")

    def _attempt(
        self,
        exc: BaseException,
        request: Context,
        explanation: Explanation,
        delay_s: float | None,
    ) -> Attempt:
        return Attempt(
            number=(request.retries or 0) + 1,
            redrive=redrive_of(request.headers),
            failed_at=_now(),
            exception_type=type_name(type(exc)),
            message=safe_message(exc),
            verdict=explanation.verdict,
            rule=explanation.rule,
            delay_s=delay_s,
            worker=request.hostname or "",
            pid=os.getpid(),
        )

    @property
    def _built_in(self) -> bool:
        # Celery's own tasks steer by exceptions and retries of their own; they are never judged.
        return str(self.name).startswith("celery.")

    def _declares(self, option: str) -> bool:
        """Whether the user set ``option``, on the instance or on a class of theirs."""
        if option in vars(self):
            return True
        mro = type(self).__mro__
        return any(option in vars(base) for base in mro[: mro.index(DLQTask)])

    def _wiring(self) -> Wiring:
        wiring = self.dlq
        assert wiring is not None, "bound tasks are wired"  # noqa: S101 - an invariant of bind()
        return wiring


def attach_failure(sender: Any = None, exception: Any = None, einfo: Any = None, **_: Any) -> None:
    """Receiver of ``task_failure`` in the process that ran the task: let the noted failure travel
    on ``einfo``, the one object that reaches the worker's parent whatever the user's hooks do."""
    request: Any = getattr(sender, "request", None)
    failure = getattr(request, "_dlq_failure", None)
    if failure is None or einfo is None:
        return
    died_of = request._dlq_died_of
    # Celery has formatted the same exception already, unless another one went out in its place.
    same = exception is died_of
    text = bounded_traceback(einfo.traceback) if same else traceback_text(died_of)
    einfo.dlq_failure = replace(failure, traceback=text)
    shed_positions(einfo.tb)


def lighten_retry(sender: Any = None, einfo: Any = None, **_: Any) -> None:
    """Receiver of ``task_retry``: a retry reaches the worker's parent as a failure does."""
    if isinstance(sender, DLQTask) and einfo is not None:
        shed_positions(einfo.tb)


def _now() -> datetime:
    return datetime.now(timezone.utc)
