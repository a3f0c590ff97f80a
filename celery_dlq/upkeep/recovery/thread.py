"""The worker's thread for the flight recorder."""

from __future__ import annotations

from celery.utils.log import get_logger

from celery_dlq.recorder.owner import BEAT_S
from celery_dlq.upkeep.guarded import GuardedThread

logger = get_logger(__name__)


class RecoveryThread(GuardedThread):
    """Recovers what processes that are gone have left, when the worker starts and once a minute."""

    does = "recovery"
    stopped = "messages of killed workers are not recovered"
    again = "messages of killed workers are recovered again"

    def stop(self) -> None:
        """End after the current step."""
        self.stopping.set()

    def run(self) -> None:
        """Work until stopped."""
        while True:
            self.guarded(self._dlq.show_life)
            if self.guarded(self._recover):
                self.log_once("")
            if self.stopping.wait(BEAT_S):
                return

    def _recover(self) -> bool:
        try:
            for _ in self._dlq.recover():
                if self.stopping.is_set():
                    break
        except OSError as error:
            self.log_once(str(error))
            return False
        return True
