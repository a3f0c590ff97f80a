"""Groups as screens show them: the groups that need a person, the status of one in words, and the values that
its newest letters share."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from celery_dlq.model.group import NOT_IGNORED, Alias, Group, GroupFilter, GroupStatus, Mark
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.operation import Sending, SendingState
from celery_dlq.model.states import OPEN_STATES, State
from celery_dlq.model.terms import leaves
from celery_dlq.store.base import Filter, Operation
from celery_dlq.view.fields import as_record
from celery_dlq.view.text import counted
from celery_dlq.view.times import iso

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Filters that the counts of groups can answer without reading letters.
GROUP_FILTERS = ("task", "exception", "group", "route", "since", "until", "namespace")

#: Groups with each mark that are counted.
MOST_MARKED = 100

# The letters of groups, in any state. Parked retries do not belong to a group.
_STORED = frozenset(State) - {State.PARKED}

# A group that is ignored or resolved needs no person now.
_UNDECIDED = GroupFilter(statuses=frozenset({GroupStatus.OPEN}))

#: Letters that shares are counted over: the newest of the group.
SAMPLE = 200

#: The share of the sample's letters that must have an argument, and how many such arguments are listed.
_MOST, _SHARED = 0.5, 8

#: Values of a release, a worker, a queue, a tag or a task.
_VALUES = 4

#: Operations that are looked through for the group, and those of them that are listed.
_OPERATIONS, _LISTED = 50, 3


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
        groups=in_order[:limit], marked={mark: len(groups) for mark, groups in marked.items()}
    )


def _need(group: Group, now: datetime) -> tuple[bool, bool, int]:
    marks = group.marks(now)
    return Mark.REGRESSED not in marks, Mark.NEW not in marks, -group.open_count


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """Why letters are in a group."""

    #: Its newest letter, with the traceback; None if the group has no letters.
    newest: DeadLetter | None
    #: The groups that were merged into it, and the place whose groups were folded into it.
    merged: Sequence[Alias]

    @property
    def grouped(self) -> str:
        """The facts by which its newest letter is grouped; empty if they are unknown."""
        return self.newest.grouped if self.newest else ""

    def record(self) -> dict[str, Any]:
        """The form for programs."""
        return {"grouped": self.grouped, "merged": [*map(as_record, self.merged)]}


def grouping_of(store: Store, fingerprint: str) -> Grouping:
    """Why letters are in a group.

    :raises StoreError: the store failed.
    """
    listed = store.letters.find(Filter(group=fingerprint, states=_STORED), limit=1).letters
    newest = store.letters.get(listed[0].task_id) if listed else None
    return Grouping(newest=newest, merged=store.groups.merged(fingerprint))


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


def ends_of(group: Group, moment: Callable[[datetime], str] = iso) -> str:
    """When a group stops being ignored; empty for a group that is not ignored.

    :param moment: a time as text.
    """
    if group.status is not GroupStatus.IGNORED:
        return ""
    ends = []
    if group.ignored_until is not None:
        ends.append(f"at {moment(group.ignored_until)}")
    if group.ignored_rate is not None:
        ends.append(f"at {counted(group.ignored_rate, 'failure')} within an hour")
    if group.ignored_total is not None:
        left = max(0, group.ignored_total - group.total_count)
        ends.append(f"after {counted(left, 'more failure')}")
    return ", or ".join(ends) or "when it is reopened"


@dataclass(frozen=True, kw_only=True)
class Share:
    """How many letters of the sample have a value."""

    #: The path of an argument, as in ``--arg``; or what the value is, such as ``release``.
    name: str
    value: str
    letters: int


@dataclass(frozen=True, kw_only=True)
class Redrives:
    """How the redrives of the sample's letters ended, as far as they followed a failure of the group."""

    sent: int
    succeeded: int
    failed: int
    awaited: int
    unknown: int
    skipped: int
    last_at: datetime | None

    @property
    def success_rate(self) -> float | None:
        """The share of successes among the redrives that succeeded or failed; None if there are none."""
        ended = self.succeeded + self.failed
        return self.succeeded / ended if ended else None


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The newest letters of a group, with their redrives."""

    #: The open ones; the closed ones if none is open.
    letters: Sequence[DeadLetter]
    #: The newest one with its traceback; None if the group has no letters.
    newest: DeadLetter | None
    redrives: Redrives
    #: The newest operations that chose the group, or that sent a letter of the sample; newest first.
    concerned: Sequence[Operation]
    #: The newest operations that chose the group.
    operations: Sequence[Operation]

    @property
    def with_arguments(self) -> Sequence[DeadLetter]:
        """The letters whose arguments are known."""
        return [one for one in self.letters if one.args is not None or one.kwargs is not None]

    @property
    def shared(self) -> Sequence[Share]:
        """The arguments that most letters share, the most frequent first."""
        counts: Counter[tuple[str, str]] = Counter()
        for letter in self.letters:
            counts.update(set(leaves(letter.args, letter.kwargs)))
        least = max(2.0, _MOST * len(self.letters))
        found = [
            Share(name=path, value=value, letters=count)
            for (path, value), count in counts.items()
            if count >= least
        ]
        return sorted(found, key=lambda one: (-one.letters, one.name, one.value))[:_SHARED]

    @property
    def found_in(self) -> Sequence[Share]:
        """Tasks, queues, releases, workers and tags, each kind with its most frequent values."""
        found = {
            name: [getattr(one, name) for one in self.letters]
            for name in ("task", "queue", "release", "worker")
        }
        found["tag"] = [tag for one in self.letters for tag in set(one.tags)]
        return [*itertools.chain.from_iterable(map(_counted, found, found.values()))]


def sample_of(store: Store, fingerprint: str) -> Sample:
    """The newest letters of a group.

    :param store: the store as screens read it, without secrets.
    """
    every = store.letters.find(Filter(group=fingerprint, states=_STORED), limit=SAMPLE).letters
    # A closed letter may have failed with another value, and may have been repaired.
    wanted = Filter(group=fingerprint, states=OPEN_STATES)
    letters = store.letters.find(wanted, limit=SAMPLE).letters or every
    sendings = store.sendings.of_cause(fingerprint, [one.task_id for one in every])
    latest, senders = store.operations.find(limit=_OPERATIONS), {one.operation for one in sendings}
    chose = [one for one in latest if one.wanted.chooses_group(fingerprint)]
    return Sample(
        letters=letters,
        # It may have been deleted since then.
        newest=store.letters.get(letters[0].task_id) if letters else None,
        redrives=_redrives(sendings),
        concerned=[
            one for one in latest if one.id in senders or one.wanted.chooses_group(fingerprint)
        ],
        operations=chose[:_LISTED],
    )


def _redrives(sendings: Sequence[Sending]) -> Redrives:
    states = Counter(sending.state for sending in sendings)
    skipped = states[SendingState.SKIPPED]
    return Redrives(
        sent=len(sendings) - skipped - states[SendingState.SENDING], skipped=skipped,
        succeeded=states[SendingState.SUCCEEDED], failed=states[SendingState.FAILED],
        awaited=states[SendingState.SENT], unknown=states[SendingState.UNKNOWN],
        last_at=max((one.sent_at for one in sendings if one.sent_at is not None), default=None),
    )  # fmt: skip


def _counted(name: str, values: Iterable[str]) -> list[Share]:
    """The most frequent of ``values``; empty ones mean that a letter has none."""
    counts = Counter(value for value in values if value)
    in_order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [Share(name=name, value=value, letters=count) for value, count in in_order[:_VALUES]]
