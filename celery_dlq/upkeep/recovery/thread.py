"""The worker's thread for the flight recorder."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from celery.utils.log import get_logger

from celery_dlq.recorder.owner import BEAT_S
from celery_dlq.store.lost import RecorderReport
from celery_dlq.upkeep.guarded import GuardedThread
from celery_dlq.upkeep.recovery.engine import Recovered
from celery_dlq.upkeep.recovery.reporting import Reporter

logger = get_logger(__name__)


class RecoveryThread(GuardedThread):
    """Recovers what processes that are gone have left, when the worker starts and once a minute; and reports
    what it cannot recover."""

    does = "recovery"
    stopped = "messages of killed workers are not recovered"
    again = "messages of killed workers are recovered again"

    def __init__(self, dlq: Any) -> None:
        super().__init__(dlq)
        self._reporter = Reporter(lambda: dlq.store)
        self._began_at = datetime.now(timezone.utc)

    def stop(self) -> None:
        """End after the current step."""
        self.stopping.set()

    def run(self) -> None:
        """Work until stopped."""
        while True:
            self.guarded(self._round)
            if self.stopping.wait(BEAT_S):
                break
        self.guarded(self._reporter.end)

    def _round(self) -> None:
        left = self._recover()
        if not self.stopping.is_set():
            self._reporter.report([*left, *self._dlq.uncovered()])

    def _recover(self) -> list[RecorderReport]:
        """Recover; returns what is left."""
        left: list[RecorderReport] = []
        try:
            for done in self._dlq.recover(began_at=self._began_at):
                self._count(done)
                left += done.reports
                if self.stopping.is_set():
                    return left
        except OSError as error:
            self.log_once(str(error))
        else:
            self.log_once("")
        return left

    def _count(self, done: Recovered) -> None:
        if self._dlq.meter is not None:
            self._dlq.meter.recovered(letters=done.letters, ended=done.ended)
