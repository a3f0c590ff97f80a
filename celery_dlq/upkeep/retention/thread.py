"""The worker's thread for retention."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from celery_dlq.redrive.lease import Tenure, kept
from celery_dlq.retry.backoff import Uniform, uniform
from celery_dlq.upkeep.guarded import GuardedThread
from celery_dlq.upkeep.retention.engine import Round

#: Seconds between two rounds of all workers together.
ROUND_S = 3_600.0

#: Seconds until a worker asks whether a round is due, at most. Few questions are asked, because no letter is
#: urgent to delete.
ASK_S = 600.0

#: The lease of the process that runs a round, and the one that no process gets within an hour of the last
#: round. All apps that share a store have the same ones.
LEASE, TURN = "retention", "retention.turn"


class RetentionThread(GuardedThread):
    """Runs a round of retention whenever no worker has run one within an hour.

    :param holder: identifies this worker among all.
    :param draw: random waits, so that workers do not ask at the same moment.
    """

    does = "retention"
    stopped = "expired letters are not removed"
    again = "expired letters are removed again"

    def __init__(self, dlq: Any, holder: str, *, draw: Uniform = uniform) -> None:
        super().__init__(dlq)
        self._draw, self._tenure = draw, Tenure(lambda: dlq.store, LEASE, holder)

    def stop(self) -> None:
        """End after the current transaction."""
        self.stopping.set()

    def run(self) -> None:
        """Work until stopped."""
        while not self.stopping.wait(self._draw(0.0, ASK_S)):
            self.guarded(self._turn)

    def _turn(self) -> None:
        """Run a round if one is due."""
        leases = self._dlq.store.leases
        # A new holder each time, because this worker waits for the next turn like all others.
        turn = leases.take(TURN, holder=uuid.uuid4().hex, seconds=ROUND_S)
        if turn is None:
            return
        is_over = False
        try:
            is_over = self._round()
        finally:
            if not is_over:
                leases.give_up(turn)
        if is_over:
            self.log_once("")

    def _round(self) -> bool:
        """Whether a round came to its end."""
        lease = self._tenure.prolong()
        if lease is None:
            return False
        try:
            with kept(self._tenure, lease) as is_held:
                ended: Round = self._dlq.retention.run(lease, lambda s: self._pause(s, is_held))
        finally:
            self._tenure.end()
        return ended.is_over

    def _pause(self, seconds: float, is_held: Callable[[], bool]) -> bool:
        return self.stopping.wait(seconds) or not is_held()
