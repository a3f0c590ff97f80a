"""What the worker's rooms need of the composition root, which they may not import."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from celery_dlq.classify import Classifier
from celery_dlq.letter import DeadLetter, Outcome
from celery_dlq.redact import Redactor
from celery_dlq.settings import Settings

if TYPE_CHECKING:
    from celery_dlq.worker.deliveries import Deliveries


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
    def deliveries(self) -> Deliveries:
        """Counts the deliveries that did not end."""

    def record(
        self, what: DeadLetter | Outcome, then: Callable[[], object], *, urgent: bool = False
    ) -> None:
        """Store ``what`` durably, then call ``then``. What is urgent waits for no others to come."""

    def record_now(self, letter: DeadLetter) -> None:
        """Store ``letter`` durably before returning; for signal handlers."""
