"""A regrouping: fingerprints of stored letters by today's recipe, and the groups that become others by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum

from celery_dlq.model.group import (
    Annotate,
    Assign,
    Group,
    GroupAct,
    GroupStatus,
    Ignore,
    Resolve,
)


class Kept(str, Enum):
    """Why a letter keeps its group although the recipe was not applied."""

    #: Its app frames are needed, and are unknown.
    FRAMES = "frames"
    #: The recipe failed.
    RECIPE = "recipe"


class Becomes(str, Enum):
    """The end of a group that had letters to move."""

    #: All its letters went to one new group, and no others did.
    RENAMED = "renamed"
    #: All its letters went to one group, and so did others.
    MERGED = "merged"
    #: Its letters went to several groups, or some stayed.
    SPLIT = "split"


class Decided(str, Enum):
    """What may follow the letters of a group."""

    STATUS = "status"
    OWNER = "owner"
    NOTE = "note"
    TICKET = "ticket"


@dataclass(frozen=True, kw_only=True)
class Ungrouped:
    """A stored letter, as far as a fingerprint is made of it."""

    id: int
    task_id: str
    task: str
    exception_type: str
    message: str
    traceback: str
    fingerprint: str
    last_failed_at: datetime


@dataclass(frozen=True, kw_only=True)
class Move:
    """A letter that is to have another fingerprint."""

    task_id: str
    #: The last failure and the fingerprint that it had. A letter with others is left alone.
    failed_at: datetime
    before: str
    after: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The result for some letters, in the order of their numbers."""

    #: The number of the last of them.
    last: int
    looked: int
    moves: tuple[Move, ...]
    kept: Mapping[Kept, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Regrouping:
    """A regrouping, and how far it has come."""

    #: The name of the recipe; empty for the built-in one.
    recipe: str
    who: str
    why: str
    began_at: datetime
    #: Whether workers do it; otherwise they take it over if the process that did it was killed.
    is_detached: bool
    #: The letters up to this number have been looked at, and those up to ``until`` are to be.
    above: int
    until: int
    looked: int
    moved: int
    kept: Mapping[Kept, int]
    is_over: bool
    #: How long ago that was written.
    idle: timedelta = timedelta()


@dataclass(frozen=True, kw_only=True)
class Fate:
    """The groups to which the letters of one group went, with their numbers."""

    fingerprint: str
    to: Mapping[str, int]
    #: Letters that it still has.
    left: int
    becomes: Becomes
    #: The decisions about it that the other group took over.
    follows: frozenset[Decided] = frozenset()


def fates_of(to: Mapping[str, Mapping[str, int]], letters: Mapping[str, int]) -> Mapping[str, Fate]:
    """The fate of each group in ``to``.

    :param to: for each group, the letters that went to each other one.
    :param letters: the letters of each group afterwards.
    """
    came, sources = Counter[str](), Counter[str]()
    for targets in to.values():
        came.update(targets)
        sources.update(targets.keys())
    shared = {one for one in came if sources[one] > 1 or letters.get(one, 0) > came[one]}
    return {
        one: Fate(
            fingerprint=one,
            to=targets,
            left=letters.get(one, 0),
            becomes=_becomes(targets, letters.get(one, 0), shared),
        )
        for one, targets in to.items()
    }


def _becomes(targets: Mapping[str, int], left: int, shared: Set[str]) -> Becomes:
    if left or len(targets) > 1:
        return Becomes.SPLIT
    return Becomes.RENAMED if shared.isdisjoint(targets) else Becomes.MERGED


def heirs_of(target: Group | None, sources: Sequence[Group]) -> Mapping[Decided, str]:
    """The groups whose decisions ``target`` takes over when ``sources`` become it: the newest status; and the
    owner and the note that it has itself, otherwise those of the group that was decided about last.

    :param target: with the letters of all; None if it does not exist yet.
    """
    order = sorted(sources, key=_newest_first)
    members = ([] if target is None else [target]) + order
    decided = [
        one for one in members if _decided_at(one) is not None and _still_holds(one, members)
    ]
    found = {
        Decided.STATUS: max(decided, key=_when, default=None),
        Decided.OWNER: next((one for one in members if one.owner), None),
        Decided.NOTE: next((one for one in members if one.note), None),
    }
    return {
        what: one.fingerprint
        for what, one in found.items()
        if one is not None and one is not target
    }


def tickets_to_take(
    target: str, newest_first: Sequence[tuple[str, str]]
) -> Sequence[tuple[str, str]]:
    """The tickets that ``target`` takes over: of each kind that it has none of, the newest.

    :param newest_first: the group and the kind of each ticket.
    """
    has = {kind for group, kind in newest_first if group == target}
    newest: dict[str, tuple[str, str]] = {}
    for group, kind in newest_first:
        if kind not in has:
            newest.setdefault(kind, (group, kind))
    return tuple(newest.values())


def offered_by(group: Group, fate: Fate, targets: Sequence[Group]) -> Sequence[GroupAct]:
    """The acts that would decide about the groups in which ``group`` ended as people have decided about it;
    without decisions that have followed, or that these groups have already."""
    return tuple(
        act
        for act in acts_of(group)
        if _KIND[type(act)] not in fate.follows
        and not (targets and all(act in acts_of(one) for one in targets))
    )


def acts_of(group: Group) -> tuple[GroupAct, ...]:
    """The acts that would decide about another group as people have decided about ``group``."""
    acts: list[GroupAct] = []
    if group.status is GroupStatus.IGNORED:
        left = None if group.ignored_total is None else group.ignored_total - group.total_count
        count = None if left is None else max(1, left)
        acts.append(Ignore(until=group.ignored_until, rate=group.ignored_rate, count=count))
    if group.status is GroupStatus.RESOLVED:
        acts.append(Resolve(release=group.resolved_in))
    if group.owner:
        acts.append(Assign(owner=group.owner))
    if group.note:
        acts.append(Annotate(note=group.note))
    return tuple(acts)


_KIND: Mapping[type[GroupAct], Decided] = {
    Ignore: Decided.STATUS,
    Resolve: Decided.STATUS,
    Assign: Decided.OWNER,
    Annotate: Decided.NOTE,
}


def _decided_at(group: Group) -> datetime | None:
    return group.regressed_at or group.status_at


def _when(group: Group) -> float:
    at = _decided_at(group)
    return float("-inf") if at is None else at.timestamp()


def _newest_first(group: Group) -> tuple[float, int, str]:
    return -_when(group), -group.total_count, group.fingerprint


def _still_holds(one: Group, members: Sequence[Group]) -> bool:
    """Whether the failures of the others do not contradict that ``one`` is resolved."""
    if one.status is not GroupStatus.RESOLVED or one.status_at is None:
        return True
    latest = max(other.last_seen_at for other in members)
    return latest <= max(one.status_at, one.last_seen_at)
