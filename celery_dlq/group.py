"""What is known and decided about a group of letters: its counts, its status, and when that ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import ClassVar, TypeAlias

from celery_dlq.errors import TriageError

#: How long after its first letter a group is marked as new.
NEW_FOR = timedelta(hours=24)

#: Characters of a note, of an owner's or a release's name.
NOTE_LIMIT, NAME_LIMIT = 4_000, 255

_HOUR = timedelta(hours=1)


class GroupStatus(str, Enum):
    """What people have decided about a group. Its letters are not touched by it."""

    #: Nothing, or what was decided holds no longer.
    OPEN = "open"
    #: Known, and not shown among the groups unless it is asked for, until its ignoring runs out.
    IGNORED = "ignored"
    #: Its cause is gone. The next letter that says otherwise opens it again.
    RESOLVED = "resolved"


class Mark(str, Enum):
    """What makes an open group worth a look."""

    #: Its first letter came within the last day.
    NEW = "new"
    #: A letter came though it was resolved, or its ignoring had run out; nobody has acted since.
    REGRESSED = "regressed"


@dataclass(frozen=True, kw_only=True)
class Group:
    """Letters that share a fingerprint, as counted in the rollup, and what people say of them."""

    fingerprint: str
    task: str
    exception_type: str
    #: A message of the group, as an example.
    message: str
    open_count: int
    total_count: int
    first_seen_at: datetime
    last_seen_at: datetime
    status: GroupStatus = GroupStatus.OPEN
    #: When and by whom the status was set; nothing while nobody has decided anything.
    status_at: datetime | None = None
    status_by: str = ""
    #: While it is ignored, what ends that; whatever comes first. None does not end it.
    ignored_until: datetime | None = None
    #: Letters within an hour.
    ignored_rate: int | None = None
    #: The ``total_count`` that it is to reach.
    ignored_total: int | None = None
    #: While it is resolved: the release that has the cure, where that was said.
    resolved_in: str = ""
    #: The failure that opened it again.
    regressed_at: datetime | None = None
    owner: str = ""
    note: str = ""

    def marks(self, now: datetime) -> tuple[Mark, ...]:
        """The marks it bears at ``now``."""
        if self.status is not GroupStatus.OPEN:
            return ()
        if self.regressed_at is not None:
            return (Mark.REGRESSED,)
        return (Mark.NEW,) if now - self.first_seen_at < NEW_FOR else ()


@dataclass(frozen=True, kw_only=True)
class GroupFilter:
    """Which groups are meant, by what people say of them. Empty fields do not restrict."""

    statuses: frozenset[GroupStatus] = frozenset()
    #: Whether groups that somebody has decided about are meant without open letters, too.
    emptied: bool = False
    #: One of these marks.
    marks: frozenset[Mark] = frozenset()
    owner: str = ""


#: Every group with open letters.
ANY_GROUP = GroupFilter()

#: What a list of groups begins with: an ignored one is there for those who ask for it.
NOT_IGNORED = GroupFilter(statuses=frozenset({GroupStatus.OPEN, GroupStatus.RESOLVED}))


@dataclass(frozen=True, kw_only=True)
class Ignore:
    """Do not show the group until one of these comes true; with none of them, until somebody acts."""

    name: ClassVar[str] = "ignore"

    until: datetime | None = None
    #: So many letters within an hour.
    rate: int | None = None
    #: So many letters more.
    count: int | None = None

    def __post_init__(self) -> None:
        for what, value in (("rate", self.rate), ("count", self.count)):
            if value is not None and value < 1:
                raise TriageError(f"A {what} of {value} ends nothing; give 1 or more.")


@dataclass(frozen=True, kw_only=True)
class Resolve:
    """The cause is gone."""

    name: ClassVar[str] = "resolve"

    #: Which release has the cure: what dies in the releases that failed before is no regression. Empty:
    #: every later failure is one.
    release: str = ""

    def __post_init__(self) -> None:
        _check_length("release", self.release, NAME_LIMIT)


@dataclass(frozen=True, kw_only=True)
class Reopen:
    """It is neither ignored nor resolved, and nothing has regressed."""

    name: ClassVar[str] = "reopen"


@dataclass(frozen=True, kw_only=True)
class Annotate:
    """What people are to know about it, in the place of what was there; empty removes it."""

    name: ClassVar[str] = "note"

    note: str

    def __post_init__(self) -> None:
        _check_length("note", self.note, NOTE_LIMIT)


@dataclass(frozen=True, kw_only=True)
class Assign:
    """Who looks after it; empty is nobody."""

    name: ClassVar[str] = "assign"

    owner: str

    def __post_init__(self) -> None:
        _check_length("owner", self.owner, NAME_LIMIT)


#: What a person may do with a group.
GroupAct: TypeAlias = Ignore | Resolve | Reopen | Annotate | Assign


def _check_length(what: str, text: str, limit: int) -> None:
    if len(text) > limit:
        raise TriageError(f"The {what} has {len(text):,} characters; {limit:,} are kept.")


@dataclass
class Arrivals:
    """The letters of one group that a save has brought."""

    count: int = 0
    #: The newest failure, by the release that it happened in.
    newest: dict[str, datetime] = field(default_factory=dict)

    def add(self, at: datetime, release: str) -> None:
        """One more."""
        self.count += 1
        self.newest[release] = max(at, self.newest.get(release, at))

    @property
    def latest(self) -> datetime:
        """The newest failure of all."""
        return max(self.newest.values())


def is_first(group: Group, arrivals: Arrivals) -> bool:
    """Whether ``arrivals`` are all that the group has ever had."""
    return group.total_count == arrivals.count


def opened_by(
    group: Group, arrivals: Arrivals, *, failed_in: frozenset[str], in_hour: float
) -> datetime | None:
    """The failure that opens ``group`` again, which counts ``arrivals`` already; None when none does.

    :param failed_in: the releases that had failed before it was resolved in another one.
    :param in_hour: letters of the group within the hour before the latest.
    """
    if group.status is GroupStatus.RESOLVED:
        return _since_resolved(group, arrivals.newest, failed_in)
    if group.status is GroupStatus.IGNORED and _runs_out(group, arrivals.latest, in_hour):
        return arrivals.latest
    return None


def _since_resolved(
    group: Group, newest: Mapping[str, datetime], failed_in: frozenset[str]
) -> datetime | None:
    # A worker may have spooled its letters before somebody found the cure.
    later = [
        at
        for release, at in newest.items()
        if release not in failed_in and (group.status_at is None or at > group.status_at)
    ]
    return max(later, default=None)


def _runs_out(group: Group, latest: datetime, in_hour: float) -> bool:
    return (
        (group.ignored_until is not None and latest >= group.ignored_until)
        or (group.ignored_total is not None and group.total_count >= group.ignored_total)
        or (group.ignored_rate is not None and in_hour >= group.ignored_rate)
    )


def hour_of(moment: datetime) -> datetime:
    """The beginning of the hour that ``moment`` is in, by the clock of UTC."""
    return moment.astimezone(timezone.utc).replace(minute=0, second=0, microsecond=0)


def within_hour(before: int, this: int, at: datetime) -> float:
    """About how many of the letters counted by the hour came within an hour before ``at``: those
    of ``this`` hour, and of the one ``before`` it the part that is not yet over."""
    passed = (at - hour_of(at)) / _HOUR
    return this + before * (1 - passed)
