"""Groups as rows of a table: what fails, how much, and the acts on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from celery_dlq.flower.html import charts
from celery_dlq.model.group import Group
from celery_dlq.model.handling import GroupTicket
from celery_dlq.view.groups import ends_of, standing
from celery_dlq.view.text import counted, short_ids

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: The acts that a row offers, each by one click or two.
ROW_ACTS = ("ignore", "resolve")

#: How long a row offers to ignore a group, as the form of its page reads it.
IGNORING = (("1d", "for a day"), ("7d", "for a week"), ("", "until it is reopened"))


@dataclass(frozen=True, kw_only=True)
class KnownGroups:
    """The store's data about groups."""

    groups: Sequence[Group]
    #: The arrivals of each in the last day.
    trends: Mapping[str, Sequence[int]]
    #: The tickets and escalations of those that have some.
    tickets: Mapping[str, Sequence[GroupTicket]]


@dataclass(frozen=True, kw_only=True)
class GroupRow:
    """A group in a list."""

    group: Group
    short_id: str
    trend: Sequence[int]
    tickets: Sequence[GroupTicket]
    now: datetime
    #: The person or team that it is assigned to, else the owner of its route.
    owner: str
    #: The marks of the forms in the row, by act.
    marks: Mapping[str, str]

    #: The choices of the form that ignores the group: value and label.
    ignoring: Sequence[tuple[str, str]] = IGNORING

    @property
    def standing(self) -> str:
        """Its status or mark; empty if it is just open."""
        return standing(self.group, self.now)

    @property
    def ends(self) -> str:
        """When it stops being ignored."""
        return ends_of(self.group)

    @property
    def arrived(self) -> int:
        """The letters that arrived in the last day."""
        return sum(self.trend)

    @property
    def chart(self) -> str:
        """Its arrivals in the last day, as a chart."""
        total = counted(self.arrived, "letter")
        return charts.sparkline(self.trend, f"{total} in the last 24 hours")


def known_groups(store: Store, groups: Sequence[Group], now: datetime) -> KnownGroups:
    """Read everything about ``groups`` that their rows show."""
    names = [group.fingerprint for group in groups]
    return KnownGroups(
        groups=groups,
        trends=store.groups.trends(names, now=now),
        tickets=store.tickets.of_groups(names),
    )


def group_rows(
    known: KnownGroups,
    now: datetime,
    *,
    owner_of: Callable[[str], str],
    mark: Callable[[str], str],
) -> list[GroupRow]:
    """The rows of groups.

    :param owner_of: gives the owner of a route.
    :param mark: makes the mark of a form.
    """
    ids = short_ids([group.fingerprint for group in known.groups])
    return [
        GroupRow(
            group=group,
            short_id=short,
            trend=known.trends[group.fingerprint],
            tickets=known.tickets.get(group.fingerprint, ()),
            now=now,
            owner=group.owner or owner_of(group.route),
            marks={act: mark(f"{act} {group.fingerprint}") for act in ROW_ACTS},
        )
        for short, group in zip(ids, known.groups, strict=True)
    ]
