"""The options of a task, and what a process remembers about it, for the modules that judge its failures. They
know this class, so that only the composition of a worker knows :class:`~celery_dlq.worker.task.DLQTask`. The
functions read the limits that open a task's circuits, and the key that divides them."""

from __future__ import annotations

import hashlib
import inspect
import logging
import string
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, ClassVar, TypeAlias

from celery import Task
from celery.utils.log import get_logger

from celery_dlq.base.redact import hide_known, safe_message, safe_text
from celery_dlq.classify import Classifier, ExceptionSpec, Rule, guarded
from celery_dlq.errors import SettingsError
from celery_dlq.model.assignment import signature_for_messages
from celery_dlq.model.handling import is_of_user
from celery_dlq.retry import BreakerLimits, RetryBudget
from celery_dlq.settings import Settings
from celery_dlq.worker.secrecy import hidden
from celery_dlq.worker.wiring import Wiring

logger: logging.Logger = get_logger(__name__)

#: The options with the two limits: transient failures in all workers, and failed runs without a success in
#: one of them.
FAILURES, STREAK = "dlq_breaker_failures", "dlq_breaker_streak"

#: The task and the key of a circuit.
CircuitName: TypeAlias = tuple[str, str]

#: Characters of a key; a longer one is cut and marked with a hash.
KEY_LIMIT = 200

_signature = lru_cache(maxsize=256)(signature_for_messages)


class FromSettings:
    """A task option whose default is a setting. Not a data descriptor: a class or instance
    attribute, an option of ``@app.task``, or ``task_annotations`` wins, as with Celery's own."""

    def __init__(self, read: Callable[[Settings], Any]) -> None:
        self._read = read

    def __get__(self, task: object, owner: type[TaskOptions]) -> Any:
        return self._read(owner._dlq_wiring.task_settings if owner._dlq_wiring else Settings())


def _from(read: Callable[[Settings], Any]) -> Any:
    # Of any type, so that a class that overrides an option is checked against the type of its values.
    return FromSettings(read)


class TaskOptions(Task):  # type: ignore[misc]
    """The base of :class:`~celery_dlq.worker.task.DLQTask`. Options are read when they are needed: a task, a
    class of the user, or ``task_annotations`` may set them at any time."""

    #: Puts an app's parts together; set by :mod:`celery_dlq.api.queue`, which this room may not import.
    wire: ClassVar[Callable[[Any], Wiring]]
    #: The wiring of the app that the task is bound to.
    _dlq_wiring: ClassVar[Wiring | None] = None

    max_retries: int | None = _from(lambda settings: settings.max_attempts - 1)
    retry_backoff: float = _from(lambda settings: settings.retry_base)
    retry_backoff_max: float = _from(lambda settings: settings.retry_cap)
    retry_jitter: bool = True
    retry_kwargs: Mapping[str, Any] = {}
    autoretry_for: Sequence[type[BaseException]] = ()
    dont_autoretry_for: Sequence[type[BaseException]] = ()

    #: Seconds after the first failure in which attempts may start.
    dlq_retry_window: float = _from(lambda settings: settings.retry_window)
    #: Exceptions that are terminal, or transient, for this task; asked before the app's rules.
    dlq_terminal: Sequence[ExceptionSpec] = ()
    dlq_transient: Sequence[ExceptionSpec] = ()
    #: Retries for each first run, 0.0 to 1.0; None for no limit.
    dlq_retry_budget: float | None = _from(lambda settings: settings.retry_budget)
    #: Retries within ten seconds that a process may make in any case.
    dlq_retry_budget_floor: int = _from(lambda settings: settings.retry_budget_floor)
    #: Transient failures after which its messages are parked instead of run; 0 for never.
    dlq_breaker_failures: int = _from(lambda settings: settings.breaker_failures)
    #: Failed runs without a success between them after which a worker holds its messages; 0 for never.
    dlq_breaker_streak: int = _from(lambda settings: settings.breaker_streak)
    #: Seconds within which these failures count.
    dlq_breaker_window: float = _from(lambda settings: settings.breaker_window)
    #: Seconds after which one message is tried.
    dlq_breaker_recovery: float = _from(lambda settings: settings.breaker_recovery)
    #: The key of a message's circuit, such as a customer: a format over the arguments, or a function that is
    #: called with them. None for one circuit for all messages.
    dlq_breaker_key: str | Callable[..., Any] | None = None
    #: Whether the flight recorder keeps its messages while they run.
    dlq_recorder: bool = _from(lambda settings: settings.recorder)
    #: Whether it may run twice without harm, so that a bulk redrive may send back letters of messages that
    #: were running when their worker was killed.
    dlq_idempotent: bool = False
    #: What its delay() does if the broker does not take the message: "raise", "store" or "commit".
    dlq_unsent: str = _from(lambda settings: settings.unsent)
    #: Whether its letters are redriven: "allow", "approve" (if a second person approves it), or "never".
    dlq_redrive: str = "allow"
    #: Rules of this task, asked before the app's.
    dlq_rules: Sequence[Rule] = ()
    #: Labels kept with this task's letters.
    dlq_tags: Sequence[str] = ()

    #: The retries that it may still make in this process, once a worker runs it; None for no limit.
    _budget: RetryBudget | None = None
    #: This task's classifier, and the options that the classifier was made of.
    _classifier_of: tuple[tuple[object, ...], Classifier] | None = None
    #: Whether a class of the user overrides ``apply_async``.
    _sends_itself: ClassVar[bool] = False

    # Other modules of the worker read these underscored names, too: a task's public names are the user's.

    @property
    def _built_in(self) -> bool:
        # Celery's own tasks steer by exceptions and retries of their own; they are never judged. Nor is the
        # one that calls repair handlers, if the app's tasks are based on this class.
        return not is_of_user(str(self.name))

    _makes_letters = property(lambda self: not self._built_in)

    @property
    def _wiring(self) -> Wiring:
        wiring = self._dlq_wiring
        assert wiring is not None, "bound tasks are wired"  # noqa: S101 - an invariant of bind()
        return wiring

    def _declares(self, option: str) -> bool:
        """Whether the user set ``option``, on the instance or on a class of theirs."""
        if option in vars(self):
            return True
        mro = type(self).__mro__
        return any(option in vars(base) for base in mro[: mro.index(TaskOptions)])


def limits_of(task: Any, option: str) -> BreakerLimits | None:
    """The limits at which ``option`` opens the circuits of ``task``; None if it never does, as for a task
    that is not a DLQTask."""
    failures = getattr(task, option, 0)
    if not failures:
        return None
    return BreakerLimits(failures, task.dlq_breaker_window, task.dlq_breaker_recovery)


def check_key(task: TaskOptions | type[TaskOptions]) -> None:
    """Check the option ``dlq_breaker_key`` of ``task``.

    :raises SettingsError: it is neither a format nor callable.
    """
    key, why = _key_option(task), ""
    if key is None or callable(key):
        return
    try:
        if not isinstance(key, str) or not key:
            why = "it must be None, a format such as '{customer}', or a callable"
        elif not [field for _, field, _, _ in string.Formatter().parse(key) if field is not None]:
            why = "it names no argument, so that all messages would have the same key"
    except ValueError as error:
        why = str(error)
    if why:
        raise SettingsError(f"Task {task.name}: dlq_breaker_key = {key!r}: {why}.")


def circuit_of(
    task: TaskOptions, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> CircuitName | None:
    """The circuit of a message with these arguments. Its key is empty if the task has one circuit for all.
    None if this message belongs to no circuit, because the option says so or fails."""
    find = _key_option(task)
    if find is None:
        return str(task.name), ""
    if isinstance(find, str):
        key, error = _key(partial(_formatted, task, find), args, kwargs)
    else:
        guarded.begin()
        late = None, TimeoutError("it took too long")
        asked = guarded.bounded(partial(_key, find, args, kwargs), task, "dlq_breaker_key")
        key, error = asked or late
    if error is not None:
        why = hidden(hide_known(safe_message(error)))
        logger.error("dlq_breaker_key of %s failed: %s", task.name, why)
    return None if key is None else (str(task.name), key)


def _key_option(task: Any) -> Any:
    # A function in a class would become a method of the task.
    key = inspect.getattr_static(task, "dlq_breaker_key")
    return key.__func__ if isinstance(key, staticmethod) else key


def _key(
    find: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[str | None, BaseException | None]:
    try:
        found = find(*args, **kwargs)
        text = "" if found is None else safe_text(str(found)).strip()
    except Exception as error:  # noqa: BLE001 - the user's, on arguments from anywhere
        return None, error
    if len(text) > KEY_LIMIT:
        digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        text = f"{text[: KEY_LIMIT - 17]}~{digest}"
    return text or None, None


def _formatted(task: TaskOptions, form: str, /, *args: Any, **kwargs: Any) -> str:
    bound = _signature(task).bind(*args, **kwargs)
    bound.apply_defaults()
    return form.format(*bound.args, **{**bound.arguments, **kwargs})
