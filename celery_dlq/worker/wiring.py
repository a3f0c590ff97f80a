"""Protocols for the parts that the worker uses and may not import: the composition root, the metrics, and the
capture of a consumer, which its requests use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from celery_dlq.base.redact import Redactor
from celery_dlq.classify import Classifier
from celery_dlq.model.letter import DeadLetter, Outcome
from celery_dlq.settings import Settings

if TYPE_CHECKING:
    from celery_dlq.recorder.flight import FlightRecorder
    from celery_dlq.worker.broker_limits import Hold
    from celery_dlq.worker.grouping import Grouping


class Meter(Protocol):
    """The metrics of a worker. Nothing here raises: a failure to count must not stop the work."""

    def dead_lettered(self, letter: DeadLetter, safe: Callable[[], object]) -> Callable[[], object]:
        """Count ``letter``; returns the function to call instead of ``safe`` once the letter is durable."""

    def retried(self, task: str, rule: str) -> None:
        """Count an automatic retry of ``task``, for which ``rule`` decided."""


class Wiring(Protocol):
    """An app's parts, as tasks and their requests use them."""

    @property
    def settings(self) -> Settings:
        """The app's settings.

        :raises SettingsError: one of them is not valid. No worker starts with it.
        """

    @property
    def task_settings(self) -> Settings:
        """The app's settings, with the default in place of each one that is not valid."""

    def report_settings(self) -> None:
        """Log, once, which settings are not valid."""

    @property
    def classifier(self) -> Classifier:
        """The app's rules, then the built-in ones."""

    @property
    def grouping(self) -> Grouping:
        """The user's recipe for fingerprints, or the built-in one."""

    def subject_of(self, args: Any, kwargs: Any) -> str:
        """The person that a message with these arguments is about, by ``dlq_subject``; empty if none."""

    @property
    def redactor(self) -> Redactor:
        """Hides secrets in everything that is shown."""

    @property
    def hold(self) -> Hold:
        """How long the broker may hold a retry."""

    @property
    def doubts(self) -> Any:
        """The messages in doubt: see :mod:`celery_dlq.worker.admission.doubts`."""

    @property
    def meter(self) -> Meter | None:
        """The metrics of this worker; None if they are off."""

    @property
    def valves(self) -> Sequence[Any]:
        """The valves of all consumers in this process; in a process of a pool, those of its parent."""

    @property
    def capture(self) -> Captures:
        """The capture for requests that no consumer's strategy has made."""


class Captures(Protocol):
    """The capture of one consumer, as its requests use it."""

    app: Wiring

    @property
    def valve(self) -> Any:
        """The circuits: see :mod:`celery_dlq.worker.admission.valve`."""

    @property
    def copies(self) -> Any:
        """The check for copies: see :mod:`celery_dlq.worker.admission.copies`."""

    @property
    def deliveries(self) -> Any:
        """The count of deliveries: see :mod:`celery_dlq.worker.admission.deliveries`."""

    @property
    def flight_recorder(self) -> FlightRecorder:
        """Keeps the messages that were acknowledged before they ended."""

    def strategy_of(self, task: Any, consumer: Any) -> AbstractContextManager[None]:
        """Within this block, Celery makes the strategy of ``task`` for ``consumer``."""

    def write(
        self, what: DeadLetter | Outcome, then: Callable[[], object], *, urgent: bool = False
    ) -> None:
        """Make ``what`` durable, then call ``then``."""

    def write_now(self, what: DeadLetter | Outcome) -> None:
        """Make ``what`` durable before returning, also from a signal handler."""
