"""Protocols for the parts of the composition root, and of each other, that the rooms of the worker use. This
module imports none of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from celery_dlq.classify import Classifier, Decision, ExceptionSpec, Rule
from celery_dlq.model.delivery import Delivery
from celery_dlq.model.letter import DeadLetter, Outcome
from celery_dlq.model.states import Verdict
from celery_dlq.recorder import FlightRecorder
from celery_dlq.redact import Redactor
from celery_dlq.retry import RetryBudget
from celery_dlq.settings import Settings
from celery_dlq.worker.broker_limits import Hold

T = TypeVar("T")


class Grouping(Protocol):
    """The recipe for the groups of failures."""

    def grouped(self, letter: DeadLetter) -> DeadLetter:
        """``letter`` with its fingerprint. Raises nothing."""


class Meter(Protocol):
    """The metrics of a worker. Nothing here raises: a failure to count must not stop the work."""

    def dead_lettered(self, letter: DeadLetter, safe: Callable[[], object]) -> Callable[[], object]:
        """Count ``letter``; returns the function to call instead of ``safe`` once the letter is durable."""

    def retried(self, task: str, rule: str) -> None:
        """Count an automatic retry of ``task``, for which ``rule`` decided."""

    def recovered(self, *, letters: int, ended: int) -> None:
        """Count messages of killed workers that this worker has made letters of, or found to have ended."""

    def sent_again(self, number: int) -> None:
        """Count vanished messages of redrives that were sent again."""

    def timed(self, writes: T) -> T:
        """``writes`` (a store, or a saver process), with each write measured."""


class TaskCircuits(Protocol):
    """The circuit breaker, as runs and requests use it."""

    def opens_with(self, task: Any, args: Any, kwargs: Any) -> bool:
        """Whether the circuit of a message with these arguments is open, or would open if the message failed
        with a transient failure."""

    def ended(self, request: Any, verdict: Verdict | None) -> None:
        """Note that a run of ``request`` failed with ``verdict``; None if the failure says nothing about the
        services that the task needs."""


class DeliveryCount(Protocol):
    """The count of deliveries without an end, as requests use it."""

    def admit(self, request: Any) -> None:
        """Run ``request``, which has a slot of the pool, as soon as it may; or condemn it."""

    def count_death(
        self, request: Any, died: Delivery, then: Callable[[tuple[Delivery, ...]], object]
    ) -> None:
        """Store that ``request`` died; ``then`` gets all deliveries of its message that did not end."""

    def forget(self, known: Sequence[Delivery], then: Callable[[], object]) -> None:
        """Delete these runs, which ended without a death, from the count; call ``then`` once that is
        stored."""

    def is_spent(self, known: Sequence[Delivery], message: Any) -> bool:
        """Whether a message whose process was just seen to die must not be delivered again."""

    def give_slot_back(self) -> None:
        """Free the pool slot of a request that will not run now."""


class CopyCheck(Protocol):
    """The check for copies of a message, as batches use it."""

    def asks(self, request: Any, run: Callable[[Any], object]) -> bool:
        """Whether ``request`` may be one of several copies. If so, ``run`` is called with it once the store
        has said that this copy runs."""

    def dropped(self, request: Any, why: str) -> None:
        """Report that ``request`` was dropped on purpose, so that no outcome will come; nothing if it is not
        the message of a redrive."""


class Wiring(Protocol):
    """An app's parts, as tasks and their requests use them."""

    @property
    def settings(self) -> Settings:
        """The app's settings.

        :raises SettingsError: one of them is not valid. No worker starts with it.
        """

    @property
    def task_settings(self) -> Settings:
        """The same, with the default in place of each setting that is not valid."""

    def report_settings(self) -> None:
        """Log, once, which settings are not valid."""

    @property
    def classifier(self) -> Classifier:
        """The app's rules, then the built-in ones."""

    @property
    def grouping(self) -> Grouping:
        """The user's recipe for fingerprints, or the built-in one."""

    @property
    def redactor(self) -> Redactor:
        """Hides secrets in everything that is shown."""

    @property
    def hold(self) -> Hold:
        """How long the broker may hold a retry."""

    @property
    def meter(self) -> Meter | None:
        """The metrics of this worker; None if they are off."""

    @property
    def breakers(self) -> Sequence[TaskCircuits]:
        """The breakers of all consumers in this process; in a process of a pool, those of its parent."""

    @property
    def capture(self) -> ConsumerWiring:
        """The capture for requests that no consumer's strategy has made."""


class ConsumerWiring(Protocol):
    """The parts of one consumer, as its requests use them."""

    #: The parts that the consumers of an app share.
    app: Wiring

    @property
    def breaker(self) -> TaskCircuits:
        """The breaker, which is notified of failed runs."""

    @property
    def deliveries(self) -> DeliveryCount:
        """Counts the deliveries of messages that do not end."""

    @property
    def copies(self) -> CopyCheck:
        """Lets one copy of each message run."""

    @property
    def flight_recorder(self) -> FlightRecorder:
        """Keeps the messages that were acknowledged before they ended."""

    def write(
        self, what: DeadLetter | Outcome, then: Callable[[], object], *, urgent: bool = False
    ) -> None:
        """Make ``what`` durable, then call ``then``. An urgent record does not wait for further records."""

    def write_now(self, letter: DeadLetter) -> None:
        """Make ``letter`` durable before returning, also from a signal handler."""


class CapturedTask(Protocol):
    """A DLQTask, as the other modules of the worker use it: Celery's options, ours, and its own state."""

    app: Any
    name: Any
    run: Callable[..., Any]
    retry: Callable[..., Any]
    MaxRetriesExceededError: type[Exception]

    throws: Sequence[type[BaseException]]
    autoretry_for: Sequence[type[BaseException]]
    dont_autoretry_for: Sequence[type[BaseException]]
    max_retries: Any
    default_retry_delay: float
    retry_kwargs: Mapping[str, Any]
    retry_backoff: Any
    retry_backoff_max: Any
    retry_jitter: Any

    dlq_terminal: Sequence[ExceptionSpec]
    dlq_transient: Sequence[ExceptionSpec]
    dlq_rules: Sequence[Rule]
    dlq_retry_window: Any
    dlq_retry_budget: Any
    dlq_retry_budget_floor: Any
    dlq_breaker_failures: Any

    _wiring: Wiring
    _built_in: bool
    #: The retries that it may still make in this process; None for no limit.
    _budget: RetryBudget | None
    #: Its classifier, and the options that the classifier was made of.
    _classifier_of: tuple[tuple[object, ...], Classifier] | None

    def classify(self, exc: BaseException) -> Decision | Verdict | str | None:
        """The task's own verdict on ``exc``; None to leave that to the rules."""

    def _declares(self, option: str) -> bool: ...
