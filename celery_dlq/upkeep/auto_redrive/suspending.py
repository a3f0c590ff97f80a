"""Decides when an automatic redrive stops by itself."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING

from celery_dlq.model.auto_redrive import AutoStatus
from celery_dlq.model.operation import SendingState
from celery_dlq.upkeep.auto_redrive.definition import AutoRedrive, Suspension

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Arrivals are counted by the hour of the clock. Two of them include the last hour.
_HOURS = 2


def why_suspend(store: Store, auto: AutoRedrive, status: AutoStatus) -> str:
    """Why ``auto`` has to stop because of its own redrives; empty if it may go on. Outcomes from before the
    state was last set do not count.

    :raises StoreError: the store failed.
    """
    aborted = store.auto_redrives.aborted(auto.name, since=status.at)
    if aborted is not None:
        operation_id, cause = aborted
        return f"operation {operation_id} was aborted: {cause}"
    outcomes = store.auto_redrives.outcomes(auto.name, since=status.at, limit=auto.suspend.of_last)
    succeeded = sum(outcome is SendingState.SUCCEEDED for outcome in outcomes)
    if _too_few(auto.suspend, succeeded, len(outcomes)):
        return (
            f"{succeeded} of its last {len(outcomes)} redrives succeeded, fewer than "
            f"{auto.suspend.success_below:.0%}"
        )
    return ""


def why_too_many(
    store: Store, auto: AutoRedrive, fingerprints: Collection[str], now: datetime
) -> str:
    """Why ``auto`` has to stop because its letters arrive faster than allowed; empty if they do not.

    :raises StoreError: the store failed.
    """
    most = auto.suspend.arrivals_above
    if most is None or not fingerprints:
        return ""
    trends = store.groups.trends(sorted(fingerprints), now=now, hours=_HOURS)
    for fingerprint, hours in trends.items():
        if max(hours) > most:
            return f"{max(hours)} letters of group {fingerprint} arrived within an hour, more than {most}"
    return ""


def _too_few(suspend: Suspension, succeeded: int, ended: int) -> bool:
    return ended >= suspend.of_last and succeeded < suspend.success_below * ended
