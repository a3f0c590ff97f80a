"""The decisions that follow the letters of groups, and those that are offered because they do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from celery_dlq.model.group import Group, GroupAct
from celery_dlq.model.handling import GroupTicket
from celery_dlq.model.regrouping import (
    Becomes,
    Decided,
    Fate,
    heirs_of,
    offered_by,
    tickets_to_take,
)

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Groups that are read together.
_AT_ONCE = 500


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A group that letters left, with the decisions about it."""

    fate: Fate
    #: None if its row was deleted.
    group: Group | None
    #: Decisions that stay with it, and that may be made about the groups in which it ended.
    offered: Sequence[GroupAct]
    #: Tickets that stay with it.
    tickets: Sequence[GroupTicket]


def foreseen(store: Store, fates: Sequence[Fate], now: datetime) -> list[Ended]:
    """The same as :func:`ended`, before a regrouping: it says which decisions will follow.

    :raises StoreError: the store failed.
    """
    groups, tickets = _groups_of(store, fates, now), _tickets_of(store, fates)
    follows: dict[str, set[Decided]] = {}
    for target, names in _sources(fates).items():
        was = [groups[name] for name in names if name in groups]
        heirs = [*heirs_of(groups.get(target), was).items()]
        its = [one for name in (target, *names) for one in tickets.get(name, ())]
        its.sort(key=lambda one: one.at, reverse=True)
        taken = tickets_to_take(target, [(one.fingerprint, one.kind.value) for one in its])
        for what, name in [*heirs, *((Decided.TICKET, name) for name, _kind in taken)]:
            follows.setdefault(name, set()).add(what)
    known = [replace(one, follows=frozenset(follows.get(one.fingerprint, ()))) for one in fates]
    return [_ended(one, groups, tickets) for one in known]


def ended(store: Store, fates: Sequence[Fate], now: datetime) -> list[Ended]:
    """Groups after a regrouping, with the decisions that are still theirs.

    :raises StoreError: the store failed.
    """
    groups, tickets = _groups_of(store, fates, now), _tickets_of(store, fates)
    return [_ended(one, groups, tickets) for one in fates]


def _ended(
    fate: Fate, groups: Mapping[str, Group], tickets: Mapping[str, Sequence[GroupTicket]]
) -> Ended:
    group = groups.get(fate.fingerprint)
    targets = [groups[name] for name in fate.to if name in groups]
    its = () if Decided.TICKET in fate.follows else tickets.get(fate.fingerprint, ())
    offered = () if group is None else offered_by(group, fate, targets)
    return Ended(fate=fate, group=group, offered=offered, tickets=its)


def _sources(fates: Sequence[Fate]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for fate in fates:
        if fate.becomes is not Becomes.SPLIT:
            (target,) = fate.to
            found.setdefault(target, []).append(fate.fingerprint)
    return found


def _groups_of(store: Store, fates: Sequence[Fate], now: datetime) -> dict[str, Group]:
    names, found = _names(fates), dict[str, Group]()
    for first in range(0, len(names), _AT_ONCE):
        found |= store.regroupings.groups(names[first : first + _AT_ONCE], now=now)
    return found


def _tickets_of(store: Store, fates: Sequence[Fate]) -> dict[str, Sequence[GroupTicket]]:
    names, found = _names(fates), dict[str, Sequence[GroupTicket]]()
    for first in range(0, len(names), _AT_ONCE):
        found |= store.tickets.of_groups(names[first : first + _AT_ONCE])
    return found


def _names(fates: Sequence[Fate]) -> list[str]:
    return sorted({name for one in fates for name in (one.fingerprint, *one.to)})
