"""What the worker's rooms need of the composition root, which they may not import."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from celery_dlq.classify import Classifier
from celery_dlq.letter import DeadLetter, Outcome
from celery_dlq.redact import Redactor
from celery_dlq.settings import Settings

if TYPE_CHECKING:
    from celery_dlq.worker.admission.breaker import Breaker
    from celery_dlq.worker.admission.deliveries import Deliveries
    from celery_dlq.worker.body.hold import Hold
    from celery_dlq.worker.recording.meter import Meter


class Wiring(Protocol):
    """An app's parts, as tasks and their requests use them."""

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
    def hold(self) -> Hold:
        """For how long the broker may hold a retry."""

    @property
    def breaker(self) -> Breaker:
        """Parks messages whose circuit is open."""

    @property
    def deliveries(self) -> Deliveries:
        """Counts the deliveries that did not end."""

    @property
    def meter(self) -> Meter | None:
        """Who counts; None when nobody does."""

    def record(
        self, what: DeadLetter | Outcome, then: Callable[[], object], *, urgent: bool = False
    ) -> None:
        """Store ``what`` durably, then call ``then``. What is urgent waits for no others to come."""

    def record_now(self, letter: DeadLetter) -> None:
        """Store ``letter`` durably before returning; for signal handlers."""
