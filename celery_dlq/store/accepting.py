"""Which copies of redriven messages a worker may run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from sqlalchemy import select, update
from sqlalchemy.engine import Connection

from celery_dlq.operation import SendingState
from celery_dlq.store import tables
from celery_dlq.store.query import one_of
from celery_dlq.store.rows import fit, stored_id

sending = tables.sending

_ENDED = frozenset({SendingState.SUCCEEDED.value, SendingState.FAILED.value})

#: A redrive of a letter: task id and number.
Redrive = tuple[str, int]


@dataclass(frozen=True)
class Known:
    """What is stored of the redrives of some letters, over all operations."""

    #: By task id, the last one that was not skipped.
    newest: Mapping[str, int]
    #: The copy that a worker has run, or None.
    accepted: Mapping[Redrive, str | None]
    #: Those of which the outcome is known. The message of one may be delivered again: its worker was
    #: cut off before the acknowledgement.
    ended: Set[Redrive]


def accept(connection: Connection, keys: Sequence[tuple[str, int, str]]) -> list[bool]:
    """Which of ``keys`` (task id, redrive, copy) may run; that they do is noted."""
    asked = [(stored_id(task_id), redrive, _stored(copy)) for task_id, redrive, copy in keys]
    answers, accepted = judge(_lock(connection, {key[0] for key in asked}), asked)
    # The messages of one claim are copies of one name: mostly this is one statement.
    for (redrive, copy), task_ids in sorted(_by_copy(accepted).items()):
        of_these = one_of(connection, sending.c.task_id, sorted(task_ids))
        ran = update(sending).where(of_these, sending.c.redrive == redrive)
        connection.execute(ran.values(accepted=copy))
    return answers


def judge(
    known: Known, keys: Sequence[tuple[str, int, str]]
) -> tuple[list[bool], dict[Redrive, str]]:
    """Which of ``keys`` may run, and the copies that are accepted by that."""
    answers, accepted = list[bool](), dict[Redrive, str]()
    for task_id, redrive, copy in keys:
        key = (task_id, redrive)
        is_over = key in known.ended or known.newest.get(task_id, 0) > redrive
        ran = known.accepted.get(key, copy)
        if ran is None and not is_over:
            ran = accepted.setdefault(key, copy)
        answers.append(ran == copy and not is_over)
    return answers, accepted


def _lock(connection: Connection, task_ids: Iterable[str]) -> Known:
    """What is known of the redrives of ``task_ids``, locked until the transaction ends."""
    stored = (
        select(sending.c.task_id, sending.c.redrive, sending.c.state, sending.c.accepted)
        .where(one_of(connection, sending.c.task_id, sorted(task_ids)))
        .order_by(sending.c.task_id, sending.c.redrive)
        .with_for_update()
    )
    newest, accepted, ended = dict[str, int](), dict[Redrive, str | None](), set[Redrive]()
    for task_id, redrive, state, copy in connection.execute(stored):
        if accepted.get((task_id, redrive)) is None:
            accepted[task_id, redrive] = copy
        if state != SendingState.SKIPPED.value:
            newest[task_id] = redrive
        if state in _ENDED:
            ended.add((task_id, redrive))
    return Known(newest, accepted, ended)


def _by_copy(accepted: Mapping[Redrive, str]) -> dict[tuple[int, str], list[str]]:
    grouped: dict[tuple[int, str], list[str]] = {}
    for (task_id, redrive), copy in accepted.items():
        grouped.setdefault((redrive, copy), []).append(task_id)
    return grouped


def _stored(copy: str) -> str:
    return str(fit(sending, {"accepted": copy})["accepted"])
