"""Says from which server screens read, and how far a read replica is behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery_dlq.view.times import duration

if TYPE_CHECKING:
    from celery_dlq.store.database.transactions import Following


def replica_text(found: Following | None) -> str:
    """A sentence for people; empty without a read replica."""
    if found is None:
        return ""
    if found.trouble:
        return f"Read from the primary, because the read replica fails: {found.trouble}"
    if found.lag is None:
        return f"Read from the replica {found.address}, which does not say how far it is behind."
    return f"Read from the replica {found.address}, {duration(found.lag.total_seconds())} behind."


def replica_record(found: Following | None) -> dict[str, Any] | None:
    """The same for programs: ``lag_s`` is null if the replica does not say it. None without a replica."""
    if found is None:
        return None
    lag_s = None if found.lag is None else found.lag.total_seconds()
    return {"address": found.address, "lag_s": lag_s, "trouble": found.trouble}
