"""What a worker tells whoever counts; nobody does unless ``dlq_worker_metrics`` says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from celery_dlq.letter import DeadLetter

T = TypeVar("T")


class Meter(Protocol):
    """Counts. Nothing here raises: what is counted goes on whatever becomes of the count."""

    def dead_lettered(self, letter: DeadLetter, safe: Callable[[], object]) -> Callable[[], object]:
        """Count ``letter``; returns what is to be called in the place of ``safe``, once it is durable."""

    def retried(self, task: str, rule: str) -> None:
        """Count an automatic retry of ``task``, for which ``rule`` decided."""

    def timed(self, writes: T) -> T:
        """``writes`` (a store, or a scribe), with each write measured."""
