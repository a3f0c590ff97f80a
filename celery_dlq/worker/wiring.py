"""Protocols for the parts of an app that the worker uses and may not import: the composition root, and the
metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from celery_dlq.classify import Classifier
from celery_dlq.model.letter import DeadLetter
from celery_dlq.redact import Redactor
from celery_dlq.settings import Settings

if TYPE_CHECKING:
    from celery_dlq.worker.admission.breaker import Breaker
    from celery_dlq.worker.broker_limits import Hold
    from celery_dlq.worker.capture import Capture
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
    def breakers(self) -> Sequence[Breaker]:
        """The breakers of all consumers in this process; in a process of a pool, those of its parent."""

    @property
    def capture(self) -> Capture:
        """The capture for requests that no consumer's strategy has made."""
