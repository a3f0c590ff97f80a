"""A group of letters: its counts, its status, and when that status ends; and stored letters with the
fingerprints of today's recipe."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from enum import Enum
from operator import index
from typing import ClassVar, TypeAlias

from celery_dlq.base.codec import dump_json
from celery_dlq.base.redact import safe_text
from celery_dlq.errors import FilterError, TriageError
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import Verdict

#: How long after its first letter a group is marked as new.
NEW_FOR = timedelta(hours=24)

#: The most characters of a note, and of the name of an owner or a release.
NOTE_LIMIT, NAME_LIMIT = 4_000, 255

#: The most groups that one place in the code may make within :data:`FOLD_WITHIN`. If it makes more, they are
#: folded into one.
GROUPS_OF_PLACE, FOLD_WITHIN = 20, timedelta(hours=24)

_HOUR, _MICROSECOND = timedelta(hours=1), timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class GroupStatus(str, Enum):
    """A person's decision about a group. It does not change the group's letters."""

    #: No decision, or the decision has ended.
    OPEN = "open"
    #: Known, and left out of lists unless it is asked for, until its ignoring ends.
    IGNORED = "ignored"
    #: Its cause is fixed. The next letter that shows otherwise opens it again.
    RESOLVED = "resolved"


class Mark(str, Enum):
    """The reason to look at an open group."""

    #: Its first letter came within the last day.
    NEW = "new"
    #: A letter came although it was resolved, or after its ignoring had ended; no decision has followed
    #: yet.
    REGRESSED = "regressed"


@dataclass(frozen=True, kw_only=True)
class Group:
    """Letters that share a fingerprint, as counted in the rollup, and the decisions about them."""

    fingerprint: str
    task: str
    exception_type: str
    #: A message of the group, as an example.
    message: str
    open_count: int
    #: Its failures: a letter counts each time that it died, also if it was deleted since.
    total_count: int
    first_seen_at: datetime
    last_seen_at: datetime
    #: Its letters that are stored, open or closed.
    letter_count: int = 0
    status: GroupStatus = GroupStatus.OPEN
    #: When the status was set, and by whom; empty without a decision.
    status_at: datetime | None = None
    status_by: str = ""
    #: While it is ignored: the conditions that end that. The first one that is met counts; None is not a
    #: condition.
    ignored_until: datetime | None = None
    #: Failures within an hour.
    ignored_rate: int | None = None
    #: The ``total_count`` that ends it.
    ignored_total: int | None = None
    #: While it is resolved: the release that has the fix, if one was named.
    resolved_in: str = ""
    #: The failure that opened it again.
    regressed_at: datetime | None = None
    #: The person or team that it is assigned to.
    owner: str = ""
    #: The route of its newest failure: see :class:`~celery_dlq.Route`.
    route: str = ""
    note: str = ""
    #: The namespace of its letters.
    namespace: str = ""
    #: The verdict on its newest open letter, or on a closed one if none is open, and the rule that decided;
    #: None in an event, and if no letter is stored.
    verdict: Verdict | None = None
    rule: str = ""

    def marks(self, now: datetime) -> tuple[Mark, ...]:
        """Its marks at ``now``."""
        if self.status is not GroupStatus.OPEN:
            return ()
        if self.regressed_at is not None:
            return (Mark.REGRESSED,)
        return (Mark.NEW,) if now - self.first_seen_at < NEW_FOR else ()


@dataclass(frozen=True, kw_only=True)
class GroupFilter:
    """A filter for groups, by the decisions about them. Empty fields do not restrict."""

    statuses: frozenset[GroupStatus] = frozenset()
    #: Whether groups with a decision match even without open letters.
    emptied: bool = False
    #: One of these marks.
    marks: frozenset[Mark] = frozenset()
    owner: str = ""


#: Every group with open letters.
ANY_GROUP = GroupFilter()

#: The default of a list of groups: ignored ones are left out unless asked for.
NOT_IGNORED = GroupFilter(statuses=frozenset({GroupStatus.OPEN, GroupStatus.RESOLVED}))


@dataclass(frozen=True, kw_only=True)
class Ignore:
    """Leave the group out of lists until one of these conditions is met; without any condition, until the
    next decision."""

    name: ClassVar[str] = "ignore"

    until: datetime | None = None
    #: This many failures within an hour.
    rate: int | None = None
    #: This many further letters.
    count: int | None = None

    def __post_init__(self) -> None:
        for what, value in (("rate", self.rate), ("count", self.count)):
            if value is not None and value < 1:
                raise TriageError(f"A {what} of {value} ends nothing; give 1 or more.")


@dataclass(frozen=True, kw_only=True)
class Resolve:
    """The cause is fixed."""

    name: ClassVar[str] = "resolve"

    #: The release that has the fix: a failure in a release where the group failed before is not a
    #: regression. Empty: every later failure is one.
    release: str = ""

    def __post_init__(self) -> None:
        _check_length("release", self.release, NAME_LIMIT)


@dataclass(frozen=True, kw_only=True)
class Reopen:
    """Make the group neither ignored nor resolved, and clear its mark of a regression."""

    name: ClassVar[str] = "reopen"


@dataclass(frozen=True, kw_only=True)
class Annotate:
    """A note about the group, which replaces the previous one; an empty note removes it."""

    name: ClassVar[str] = "note"

    note: str

    def __post_init__(self) -> None:
        _check_length("note", self.note, NOTE_LIMIT)


@dataclass(frozen=True, kw_only=True)
class Assign:
    """The owner of the group; an empty one removes it."""

    name: ClassVar[str] = "assign"

    owner: str

    def __post_init__(self) -> None:
        _check_length("owner", self.owner, NAME_LIMIT)


@dataclass(frozen=True, kw_only=True)
class Merge:
    """The group has the same cause as another one. Its letters, and those of later failures, are counted
    there; the decisions about it wait until it is split off again."""

    name: ClassVar[str] = "merge"

    #: The fingerprint of the other group.
    into: str


@dataclass(frozen=True, kw_only=True)
class Split:
    """Take a group that was merged into this one out again; without a name, all of them. A group into which
    the groups of one place were folded is dissolved, and its place is not folded again."""

    name: ClassVar[str] = "split"

    #: The fingerprint of the group that was merged.
    member: str = ""


#: The acts of a person on a group.
GroupAct: TypeAlias = Ignore | Resolve | Reopen | Annotate | Assign | Merge | Split


class AliasReason(str, Enum):
    """Why failures are counted in a group that has another fingerprint than they have."""

    #: A person merged their group into it.
    MERGED = "merged"
    #: Their place made too many groups.
    FOLDED = "folded"
    #: The group was made by an earlier recipe.
    RECIPE = "recipe"


@dataclass(frozen=True, kw_only=True)
class Alias:
    """A fingerprint, or a place, whose failures are counted in a group with another fingerprint."""

    name: str
    #: The group.
    fingerprint: str
    why: AliasReason
    #: The person who merged them; empty if it was not a person.
    who: str
    at: datetime

    def in_words(self) -> str:
        """The alias as a part of a sentence about the group."""
        if self.why is AliasReason.FOLDED:
            return f"its place in the code made more than {GROUPS_OF_PLACE} groups within a day"
        return f"{self.name}, by {self.who}"


def _check_length(what: str, text: str, limit: int) -> None:
    if len(text) > limit:
        raise TriageError(
            f"The {what} has {len(text):,} characters; use at most {limit:,}. Nothing was changed."
        )


@dataclass
class Arrivals:
    """The letters of one group in one save."""

    count: int = 0
    #: The newest failure of each release.
    newest: dict[str, datetime] = field(default_factory=dict)

    def add(self, at: datetime, release: str) -> None:
        """Count one more letter."""
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
    """The failure that opens ``group`` again; None if no failure does. ``group`` already counts ``arrivals``.

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
    # A worker may have spooled its letters before the group was resolved.
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
    """An estimate of the letters within the hour before ``at``, from counts per hour: all of ``this``
    hour, and a share of the hour ``before`` it."""
    passed = (at - hour_of(at)) / _HOUR
    return this + before * (1 - passed)


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A group whose letters may belong to other groups."""

    fingerprint: str
    task: str
    exception_type: str
    #: The recipe that has to be applied; empty if only aliases have changed.
    recipe: str
    #: The number of the last letter that was looked at; below zero before the first.
    above: int
    #: The letters that it has.
    letters: int


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A stored letter, and its fingerprint by today's recipe."""

    id: int
    #: As it is stored.
    letter: DeadLetter
    #: With its new fingerprint, and what the recipe noted.
    after: DeadLetter

    @property
    def raw(self) -> str:
        """The new fingerprint."""
        return self.after.fingerprint


def place_name(place: str) -> str:
    """The name of a place among the names of aliases."""
    return f"@{place}" if place else ""


def home(known: Mapping[str, str], raw: str, place: str) -> str:
    """The group of a failure.

    :param known: the groups that the aliases give to its fingerprint and its place; empty for a place that
        must not be folded.
    """
    return known.get(raw) or known.get(place_name(place)) or raw


def heir_of(group: str, raws: Counter[str], known: Mapping[str, str]) -> str | None:
    """The fingerprint whose letters a group is to keep, so that its history stays; None if it keeps its own.

    :param raws: the new fingerprints of its letters, with the number of each.
    :param known: the groups of those fingerprints that have one already.
    """
    if group in raws:
        return None
    return next((raw for raw, _number in raws.most_common() if raw not in known), None)


@dataclass(frozen=True)
class GroupMark:
    """A place in the order of the list: most open letters first, then the latest, then by name."""

    open_count: int
    last_seen_at: datetime
    fingerprint: str
    task: str
    exception_type: str

    @classmethod
    def of(cls, group: Group) -> GroupMark:
        """The place of ``group``."""
        return cls(
            group.open_count, group.last_seen_at, group.fingerprint, group.task,
            group.exception_type,
        )  # fmt: skip

    @classmethod
    def read(cls, cursor: str) -> GroupMark:
        """The inverse of :attr:`cursor`.

        :raises FilterError: it is not a cursor.
        """
        try:
            count, micros, *names = json.loads(cursor)
            fingerprint, task, exception_type = map(_text, names)
            at = _EPOCH + micros * _MICROSECOND
            # Larger numbers fit into no database.
            count = min(max(0, index(count)), 2**62)
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise FilterError("That is not a cursor of groups; start again without it.") from None
        return cls(count, at, fingerprint, task, exception_type)

    @property
    def cursor(self) -> str:
        """The text with which a caller asks for the next page."""
        micros = (self.last_seen_at - _EPOCH) // _MICROSECOND
        names = self.fingerprint, self.task, self.exception_type
        return dump_json([self.open_count, micros, *names])


def _text(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError
    return safe_text(name)
