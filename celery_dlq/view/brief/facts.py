"""The contents of a brief. Texts that come from outside are in :class:`Outside`; all other values are
numbers, times, our own words, and command lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from celery_dlq.model.group import GroupStatus, Mark
from celery_dlq.model.states import Reason, State, Verdict
from celery_dlq.store.base import Operation
from celery_dlq.view.groups.sample import Redrives, Share


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The display copies of one letter's arguments, as JSON."""

    task_id: str
    args: str
    kwargs: str


@dataclass(frozen=True, kw_only=True)
class Outside:
    """Texts from messages, exceptions, workers and people: data, whatever they say."""

    fingerprint: str
    task: str
    exception_type: str
    message: str
    #: The newest letter's traceback, with the user's own frames.
    traceback: str
    #: The grounds of the verdict on the newest letter.
    rule: str
    evidence: str
    path: str
    #: The decisions about the group.
    owner: str
    route: str
    route_owner: str
    note: str
    resolved_in: str
    decided_by: str
    #: The addresses of its ticket and its escalation.
    tickets: tuple[str, ...]
    #: The newest letters' arguments.
    arguments: tuple[Arguments, ...]
    #: The arguments that most letters share.
    shared: tuple[Share, ...]
    #: Releases, workers, queues, tags and tasks.
    found_in: tuple[Share, ...]


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The counts of a group, and the decision about it."""

    status: GroupStatus
    marks: tuple[Mark, ...]
    #: When it stops being ignored, in words; empty if it is not ignored.
    ends: str
    decided_at: datetime | None
    open: int
    letters: int
    #: Failures; a letter counts each time that it died.
    total: int
    by_state: Mapping[State, int]
    first_seen_at: datetime
    last_seen_at: datetime
    #: Arrivals in the last 24 hours, and in the 24 hours before.
    last_day: int
    day_before: int


@dataclass(frozen=True, kw_only=True)
class Attempts:
    """The attempts of a group's letters."""

    #: The newest letter's, over all its redrives, and its waits between them in seconds, oldest first. Only
    #: the latest waits are listed.
    newest: int
    waits_s: tuple[float, ...]
    #: How many letters of the sample had this many attempts.
    letters: Mapping[int, int]


@dataclass(frozen=True, kw_only=True)
class Brief:
    """A group in brief."""

    at: datetime
    standing: Standing
    #: Why the newest letter died; None if the store has no letter of the group.
    reason: Reason | None
    verdict: Verdict | None
    #: How many letters the shares were counted over: the newest open ones of it, or closed ones if none
    #: is open.
    sample: int
    attempts: Attempts
    redrives: Redrives
    #: The newest ones.
    operations: tuple[Operation, ...]
    #: The next commands.
    commands: tuple[str, ...]
    outside: Outside
    #: The parts that were cut so that the brief is short enough, in words.
    cut: tuple[str, ...] = ()
