"""Groups as they are asked for, those that need a person, and in words: their status, and the end of an
ignored one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from celery_dlq.model.group import NOT_IGNORED, Alias, Group, GroupFilter, GroupStatus, Mark
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter
from celery_dlq.view.text import counted
from celery_dlq.view.times import iso

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Filters that the counts of groups can answer without reading letters.
GROUP_FILTERS = ("task", "exception", "group", "route", "since", "until")

#: Groups with each mark that are counted.
MOST_MARKED = 100

# Parked retries are in no group.
_STORED = frozenset(State) - {State.PARKED}

# A group that is ignored or resolved needs no person now.
_UNDECIDED = GroupFilter(statuses=frozenset({GroupStatus.OPEN}))


@dataclass(frozen=True, kw_only=True)
class Worklist:
    """The groups that need a person."""

    #: The first ones, in their order: those that came back after they were resolved, then the new ones, then
    #: the others; the largest first.
    groups: Sequence[Group]
    #: How many groups have each mark; at most :data:`MOST_MARKED` are counted.
    marked: Mapping[Mark, int]


def worklist(store: Store, now: datetime, *, limit: int) -> Worklist:
    """Read the groups that need a person, at most ``limit`` of them."""
    marked = {
        mark: store.groups.find(
            Filter(), now=now, limit=MOST_MARKED, which=replace(_UNDECIDED, marks=frozenset({mark}))
        )
        for mark in Mark
    }
    largest = store.groups.find(Filter(), now=now, limit=limit, which=_UNDECIDED)
    found = [*largest, *itertools.chain.from_iterable(marked.values())]
    distinct = {group.fingerprint: group for group in found}
    in_order = sorted(distinct.values(), key=lambda group: _need(group, now))
    return Worklist(
        groups=in_order[:limit],
        marked={mark: len(groups) for mark, groups in marked.items()},
    )


def _need(group: Group, now: datetime) -> tuple[bool, bool, int]:
    marks = group.marks(now)
    return Mark.REGRESSED not in marks, Mark.NEW not in marks, -group.open_count


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """Why letters are in a group."""

    #: The facts by which its newest letter is grouped; empty if they are unknown.
    grouped: str
    #: The groups that were merged into it, and the place whose groups were folded into it.
    merged: Sequence[Alias]

    def record(self) -> dict[str, Any]:
        """The form for programs."""
        merged = [{**vars(one), "why": one.why.value, "at": iso(one.at)} for one in self.merged]
        return {"grouped": self.grouped, "merged": merged}


def grouping_of(store: Store, fingerprint: str) -> Grouping:
    """Why letters are in a group.

    :raises StoreError: the store failed.
    """
    listed = store.letters.find(Filter(group=fingerprint, states=_STORED), limit=1).letters
    newest = store.letters.get(listed[0].task_id) if listed else None
    return Grouping(
        grouped=newest.grouped if newest else "",
        merged=store.groups.merged(fingerprint),
    )


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
        ends.append(f"at {counted(group.ignored_rate, 'failure')} within an hour")
    if group.ignored_total is not None:
        left = max(0, group.ignored_total - group.total_count)
        ends.append(f"after {counted(left, 'more failure')}")
    return ", or ".join(ends) or "when it is reopened"
