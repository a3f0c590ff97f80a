"""Reads what a brief says about a group. Every query is bounded, however many letters the group has."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from celery_dlq.model.group import Group
from celery_dlq.model.letter import Attempt, DeadLetter
from celery_dlq.model.operation import Sending, SendingState
from celery_dlq.model.states import State
from celery_dlq.model.terms import leaves
from celery_dlq.redact import hide_known
from celery_dlq.store.base import Filter, Operation
from celery_dlq.view import lookup
from celery_dlq.view.brief.facts import (
    Arguments,
    Attempts,
    Brief,
    Outside,
    PastOperation,
    Redrives,
    Share,
    Standing,
)
from celery_dlq.view.brief.frames import own_traceback
from celery_dlq.view.groups import ends_of
from celery_dlq.view.records import attempts_of

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Letters that shares are counted over: the newest of the group.
SAMPLE = 200

#: The share of the sample's letters that must have an argument, and how many such arguments are listed.
_MOST, _SHARED = 0.5, 8
#: Letters whose arguments are listed; values of a release, a worker, a queue, a tag or a task; waits.
_EXAMPLES, _VALUES, _WAITS = 3, 4, 12
#: Operations that are looked through for the group, and those of them that are listed.
_OPERATIONS, _LISTED = 50, 3

_DAY = 24  # hours

#: The letters of a group, whatever became of them.
_OF_GROUP = frozenset(State) - {State.PARKED}


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
    wanted = Filter(group=group.fingerprint, states=_OF_GROUP)
    letters = store.letters.find(wanted, limit=SAMPLE).letters
    # It may have been deleted since then.
    newest = store.letters.get(letters[0].task_id) if letters else None
    sendings = store.sendings.of_cause(group.fingerprint, [one.task_id for one in letters])
    return Brief(
        at=now,
        standing=_standing(store, group, now),
        reason=newest.reason if newest else None,
        verdict=newest.verdict if newest else None,
        sample=len(letters),
        attempts=_attempts(newest, letters),
        redrives=_redrives(sendings),
        operations=tuple(_operations(store, group.fingerprint)),
        commands=tuple(_commands(group, letters, command)),
        outside=_outside(store, group, newest, letters, owner_of),
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
        decided_at=group.status_at,
        open=group.open_count,
        total=group.total_count,
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
        letters=dict(Counter(map(attempts_of, letters)).most_common(_VALUES)),
    )


def _redrives(sendings: Sequence[Sending]) -> Redrives:
    states = Counter(sending.state for sending in sendings)
    skipped = states[SendingState.SKIPPED]
    return Redrives(
        sent=len(sendings) - skipped - states[SendingState.SENDING],
        succeeded=states[SendingState.SUCCEEDED],
        failed=states[SendingState.FAILED],
        awaited=states[SendingState.SENT],
        unknown=states[SendingState.UNKNOWN],
        skipped=skipped,
        last_at=max((one.sent_at for one in sendings if one.sent_at is not None), default=None),
    )


def _operations(store: Store, fingerprint: str) -> list[PastOperation]:
    """The newest operations whose filter names the group, by its fingerprint or a prefix of it."""
    latest = store.operations.find(limit=_OPERATIONS)
    chosen = [one for one in latest if fingerprint.startswith(one.wanted.group or "\0")]
    return [_past(one) for one in chosen[:_LISTED]]


def _past(operation: Operation) -> PastOperation:
    counts = operation.counts
    return PastOperation(
        id=operation.id,
        state=operation.state,
        created_at=operation.created_at,
        sent=counts.out,
        succeeded=counts.succeeded,
        failed=counts.failed,
        skipped=counts.skipped,
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


def _outside(
    store: Store,
    group: Group,
    newest: DeadLetter | None,
    letters: Sequence[DeadLetter],
    owner_of: Callable[[str], str],
) -> Outside:
    grounds = newest.explanation if newest else None
    tickets = store.tickets.of_groups([group.fingerprint]).get(group.fingerprint, ())
    return Outside(
        fingerprint=group.fingerprint,
        task=group.task,
        exception_type=group.exception_type,
        message=newest.message if newest else group.message,
        traceback=own_traceback(newest.traceback) if newest else "",
        rule=grounds.rule if grounds else "",
        evidence=grounds.evidence if grounds else "",
        path=grounds.path if grounds else "",
        owner=group.owner,
        route=group.route,
        route_owner=owner_of(group.route),
        note=hide_known(group.note),
        resolved_in=group.resolved_in,
        decided_by=group.status_by,
        tickets=tuple(ticket.url or ticket.to for ticket in tickets),
        arguments=tuple(map(_arguments, _with_arguments(letters)[:_EXAMPLES])),
        shared=tuple(_shared(letters)),
        found_in=tuple(_found_in(letters)),
    )


def _with_arguments(letters: Sequence[DeadLetter]) -> list[DeadLetter]:
    return [one for one in letters if one.args is not None or one.kwargs is not None]


def _arguments(letter: DeadLetter) -> Arguments:
    return Arguments(
        task_id=letter.task_id, args=_as_json(letter.args), kwargs=_as_json(letter.kwargs)
    )


def _as_json(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _shared(letters: Sequence[DeadLetter]) -> list[Share]:
    """The arguments that most letters share, the most frequent first."""
    counts: Counter[tuple[str, str]] = Counter()
    for letter in letters:
        counts.update(set(leaves(letter.args, letter.kwargs)))
    least = max(2.0, _MOST * len(letters))
    found = [
        Share(name=path, value=value, letters=count)
        for (path, value), count in counts.items()
        if count >= least
    ]
    return sorted(found, key=lambda one: (-one.letters, one.name, one.value))[:_SHARED]


def _found_in(letters: Sequence[DeadLetter]) -> Iterator[Share]:
    yield from _counted("task", (one.task for one in letters))
    yield from _counted("queue", (one.queue for one in letters))
    yield from _counted("release", (one.release for one in letters))
    yield from _counted("worker", (one.worker for one in letters))
    yield from _counted("tag", (tag for one in letters for tag in set(one.tags)))


def _counted(name: str, values: Iterable[str]) -> list[Share]:
    """The most frequent of ``values``; empty ones mean that a letter has none."""
    counts = Counter(value for value in values if value)
    in_order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [Share(name=name, value=value, letters=count) for value, count in in_order[:_VALUES]]
