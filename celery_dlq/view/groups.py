"""Groups in words: where they stand, and what ends that."""

from __future__ import annotations

from datetime import datetime

from celery_dlq.group import Group, GroupStatus
from celery_dlq.view.text import counted
from celery_dlq.view.times import iso


def standing(group: Group, now: datetime) -> str:
    """Status and marks in one word; nothing for a group that is merely open."""
    words = group.marks(now) if group.status is GroupStatus.OPEN else (group.status,)
    return " ".join(word.value for word in words)


def ends_of(group: Group) -> str:
    """What ends the ignoring of a group."""
    if group.status is not GroupStatus.IGNORED:
        return ""
    ends = []
    if group.ignored_until is not None:
        ends.append(f"at {iso(group.ignored_until)}")
    if group.ignored_rate is not None:
        ends.append(f"at {counted(group.ignored_rate, 'letter')} within an hour")
    if group.ignored_total is not None:
        left = max(0, group.ignored_total - group.total_count)
        ends.append(f"after {counted(left, 'letter')} more")
    return ", or ".join(ends) or "when somebody acts"
