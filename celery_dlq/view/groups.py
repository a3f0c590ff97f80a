"""Groups as they are asked for, and in words: their status, and the end of an ignored one."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from celery_dlq.model.group import NOT_IGNORED, Group, GroupFilter, GroupStatus, Mark
from celery_dlq.view.text import counted
from celery_dlq.view.times import iso

#: Filters that the counts of groups can answer without reading letters.
GROUP_FILTERS = ("task", "exception", "group", "route", "since", "until")


def groups_with(statuses: Iterable[GroupStatus], marks: Iterable[Mark], owner: str) -> GroupFilter:
    """The groups with these statuses, marks and owner. Without a status, ignored groups and groups
    without open letters are left out."""
    chosen = frozenset(statuses)
    return GroupFilter(
        statuses=chosen or NOT_IGNORED.statuses,
        emptied=bool(chosen),
        marks=frozenset(marks),
        owner=owner,
    )


def standing(group: Group, now: datetime) -> str:
    """The status and marks of a group; empty for a group that is open and has no marks."""
    words = group.marks(now) if group.status is GroupStatus.OPEN else (group.status,)
    return " ".join(word.value for word in words)


def ends_of(group: Group) -> str:
    """When a group stops being ignored; empty for a group that is not ignored."""
    if group.status is not GroupStatus.IGNORED:
        return ""
    ends = []
    if group.ignored_until is not None:
        ends.append(f"at {iso(group.ignored_until)}")
    if group.ignored_rate is not None:
        ends.append(f"at {counted(group.ignored_rate, 'letter')} within an hour")
    if group.ignored_total is not None:
        left = max(0, group.ignored_total - group.total_count)
        ends.append(f"after {counted(left, 'more letter')}")
    return ", or ".join(ends) or "when it is reopened"
