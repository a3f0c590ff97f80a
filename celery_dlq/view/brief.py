"""A brief describes a group for a ticket or an assistant. Each query that reads it is bounded, however many
letters the group has. Texts that come from outside are in :class:`Outside`; all other values are numbers,
times, our own words, and command lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from celery_dlq.model.group import Group, GroupStatus, Mark
from celery_dlq.model.letter import Attempt, DeadLetter
from celery_dlq.model.states import Reason, State, Verdict
from celery_dlq.store.base import Filter, Operation
from celery_dlq.view import lookup
from celery_dlq.view.groups import Redrives, Sample, Share, ends_of, sample_of
from celery_dlq.view.letters import own_traceback
from celery_dlq.view.records import attempts_of
from celery_dlq.view.text import json_text

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Letters whose arguments are listed; waits, and numbers of attempts.
_EXAMPLES, _WAITS, _NUMBERS = 3, 12, 4

_DAY = 24  # hours


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
    #: The lines that the newest letter's run logged.
    log: str
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
    status_at: datetime | None
    open_count: int
    letter_count: int
    #: Failures; a letter counts each time that it died.
    total_count: int
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


def gather(
    store: Store,
    prefix: str,
    now: datetime,
    *,
    owner_of: Callable[[str], str],
    command: Callable[..., str],
    see: str = "",
) -> Brief:
    """The brief about the group whose fingerprint begins with ``prefix``.

    :param store: the store as screens read it, without secrets.
    :param owner_of: the owner of the route with a name.
    :param command: makes command lines such as ``celery -A shop dlq list``.
    :param see: the command that lists groups.
    :raises UnknownGroup: no fingerprint matches.
    :raises AmbiguousId: several fingerprints match.
    """
    group = lookup.group(store, prefix, now, see=see)
    sample = sample_of(store, group.fingerprint)
    newest = sample.newest
    return Brief(
        at=now,
        standing=_standing(store, group, now),
        reason=newest.reason if newest else None,
        verdict=newest.verdict if newest else None,
        sample=len(sample.letters),
        attempts=_attempts(newest, sample.letters),
        redrives=sample.redrives,
        operations=tuple(sample.operations),
        commands=tuple(_commands(group, sample.letters, command)),
        outside=_outside(store, group, sample, owner_of),
    )


def _standing(store: Store, group: Group, now: datetime) -> Standing:
    fingerprint = group.fingerprint
    by_state = {
        state: store.counts.letters(Filter(group=fingerprint, states=frozenset({state})))
        for state in State
    }
    hours = store.groups.trends([fingerprint], now=now, hours=2 * _DAY)[fingerprint]
    return Standing(
        status=group.status,
        marks=group.marks(now),
        ends=ends_of(group),
        status_at=group.status_at,
        open_count=group.open_count,
        letter_count=group.letter_count,
        total_count=group.total_count,
        by_state={state: count for state, count in by_state.items() if count},
        first_seen_at=group.first_seen_at,
        last_seen_at=group.last_seen_at,
        last_day=sum(hours[_DAY:]),
        day_before=sum(hours[:_DAY]),
    )


def _attempts(newest: DeadLetter | None, letters: Sequence[DeadLetter]) -> Attempts:
    runs: Sequence[Attempt] = newest.attempts if newest else ()
    waits = [run.delay_s for run in runs if run.delay_s is not None]
    return Attempts(
        newest=attempts_of(newest) if newest else 0,
        waits_s=tuple(waits[-_WAITS:]),
        letters=dict(Counter(map(attempts_of, letters)).most_common(_NUMBERS)),
    )


def _commands(
    group: Group, letters: Sequence[DeadLetter], command: Callable[..., str]
) -> Iterator[str]:
    # An id that came with a message may be any text, also one that reads like a command.
    examples = [one.task_id for one in letters if _is_plain(one.task_id)]
    fingerprint = group.fingerprint if _is_plain(group.fingerprint) else "GROUP"
    yield command("groups", "show", fingerprint)
    if examples:
        yield command("show", examples[0])
    yield command("redrive", "--group", fingerprint, "--dry-run")
    yield command("groups", "ignore", fingerprint, "--until", "3d")


def _is_plain(name: str) -> bool:
    return name.isascii() and name.replace("-", "").isalnum() and 0 < len(name) <= 40


def _outside(store: Store, group: Group, sample: Sample, owner_of: Callable[[str], str]) -> Outside:
    newest = sample.newest
    grounds = newest.explanation if newest else None
    tickets = store.tickets.of_groups([group.fingerprint]).get(group.fingerprint, ())
    return Outside(
        fingerprint=group.fingerprint,
        task=group.task,
        exception_type=group.exception_type,
        message=newest.message if newest else group.message,
        traceback=own_traceback(newest.traceback) if newest else "",
        log=newest.log if newest else "",
        rule=grounds.rule if grounds else "",
        evidence=grounds.evidence if grounds else "",
        path=grounds.path if grounds else "",
        owner=group.owner,
        route=group.route,
        route_owner=owner_of(group.route),
        note=group.note,
        resolved_in=group.resolved_in,
        decided_by=group.status_by,
        tickets=tuple(ticket.url or ticket.to for ticket in tickets),
        arguments=tuple(
            Arguments(task_id=one.task_id, args=json_text(one.args), kwargs=json_text(one.kwargs))
            for one in sample.with_arguments[:_EXAMPLES]
        ),
        shared=tuple(sample.shared),
        found_in=tuple(sample.found_in),
    )
