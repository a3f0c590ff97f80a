"""Reports about copies of messages that the store must not miss: each is repeated until the store has taken
it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from celery_dlq.worker.writing.desk import Desk

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Seconds between two tries.
REPORT_PAUSE_S = 5.0


@dataclass(frozen=True)
class Report:
    """One report. Those with the same function are made in one call."""

    make: Callable[[Store, Sequence[Any]], Sequence[object]]
    about: Any


class Reports:
    """The reports of one consumer."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        #: Those that the store has not taken. They are few: a message takes up a place of the prefetch limit
        #: for a minute before it runs unchecked.
        self._left: list[Report] = []
        self._consumer: Any = None
        self._is_timed = False

    def join(self, consumer: Any) -> None:
        """Repeat reports by the timer of ``consumer``."""
        self._consumer = consumer

    def start(self) -> None:
        """Called when the broker is connected. Celery has forgotten all timers of the last connection."""
        self._is_timed = False
        self._make()

    def add(self, report: Report) -> None:
        """Make ``report``, now or as soon as the store answers."""
        self._left.append(report)
        self._make()

    def _make(self) -> None:
        reports, self._left = self._left, []
        for report in reports:
            self._desk.ask_together(report.make, report.about, partial(self._answered, report))

    def _answered(self, report: Report, answer: object) -> None:
        if answer is None:
            self._left.append(report)
            if not self._is_timed:
                self._is_timed = True
                self._consumer.timer.call_after(REPORT_PAUSE_S, self.start)
