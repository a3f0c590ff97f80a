"""What a redrive would do with each letter: changed how, or not sent and why. Nothing is sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from celery_dlq.letter import DeadLetter
from celery_dlq.operation import Orders
from celery_dlq.redact import Redactor
from celery_dlq.redrive.checks import open_checks
from celery_dlq.redrive.plan import redrivable
from celery_dlq.redrive.repair import Repairs
from celery_dlq.store.base import Filter, Store

#: Letters listed, and read, at a time.
_PAGE = 500


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One letter in a dry run."""

    task_id: str
    task: str
    #: What would be changed in its message, as lines of a diff; empty for nothing.
    change: str = ""
    #: Why it would not be sent; None when it would.
    why_not: str | None = None


def dry_run(
    app: Any, store: Store, wanted: Filter, orders: Orders, redactor: Redactor, *, now: datetime
) -> Iterator[Tried]:
    """The letters that a redrive of ``wanted`` would take, oldest failure first, each as it would be
    repaired and checked.

    :raises RepairError: a change that is asked for makes no sense, or cannot be imported.
    :raises RedriveError: the result backend does not answer.
    """
    repairs = Repairs(app, orders.repair, redactor)
    with open_checks(app, orders) as checks:
        ids = _oldest_first(store, redrivable(wanted), orders.pacing.limit)
        for letter in _read(store, ids):
            repaired = repairs.repaired(letter, now)
            why_not = repaired.why_not or checks.why_not(repaired.letter, now)
            yield Tried(
                task_id=letter.task_id, task=letter.task, change=repaired.change, why_not=why_not
            )


def _read(store: Store, ids: Sequence[str]) -> Iterator[DeadLetter]:
    """The letters with their messages, without those that are gone meanwhile."""
    done = 0
    while done < len(ids):
        letters, told = store.read_letters(ids[done : done + _PAGE])
        yield from letters
        done += told


def _oldest_first(store: Store, wanted: Filter, limit: int | None) -> list[str]:
    newest_first, after = list[str](), None
    while True:
        page = store.find(wanted, limit=_PAGE, after=after)
        newest_first += [letter.task_id for letter in page.letters]
        after = page.next
        if after is None:
            return newest_first[::-1][:limit]
