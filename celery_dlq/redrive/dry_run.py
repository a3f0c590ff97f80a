"""A trial of letters: how a redrive would change each, or why it would not send it. Nothing is sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from celery_dlq.errors import RedriveError
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.operation import Orders
from celery_dlq.redrive.check.checks import open_checks
from celery_dlq.redrive.context import RedriveContext
from celery_dlq.redrive.plan import Trial, Tried, redrivable
from celery_dlq.redrive.repair.repair import Repairs
from celery_dlq.store.base import Filter

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Letters that are listed, or read, at a time.
_PAGE = 500

#: The most letters that are tried for a plan, and the most seconds that it takes.
MOST, PATIENCE_S = 500, 1.0


def dry_run(context: RedriveContext, wanted: Filter, orders: Orders) -> Iterator[Tried]:
    """The letters that a redrive of ``wanted`` would take, oldest failure first, each as it would be
    repaired and checked.

    :raises RepairError: a change is wrong, or cannot be imported.
    :raises RedriveError: the result backend does not answer.
    """
    limit, taken = orders.pacing.limit, redrivable(wanted)
    if limit is None:
        ids = _oldest_first(context.store, taken)
    else:
        ids = context.store.claims.first_ids(taken, limit)
    yield from _tried(context, ids, orders)


def try_first(context: RedriveContext, wanted: Filter, orders: Orders) -> Trial:
    """Try the first letters of a redrive of ``wanted``, for a moment. They are not validated, because that
    runs the user's code, which may take any time.

    :raises RepairError: a change is wrong, or cannot be imported.
    """
    until, trial = context.clock.monotonic() + PATIENCE_S, Trial()
    quick = replace(orders, checking=replace(orders.checking, validate=False))
    limit = min(orders.pacing.limit or MOST, MOST)
    ids = context.store.claims.first_ids(redrivable(wanted), limit)
    try:
        for one in _tried(context, ids, quick):
            trial.note(one)
            if context.clock.monotonic() >= until:
                break
    except RedriveError as error:
        trial.trouble = str(error)
    return trial


def _tried(context: RedriveContext, ids: Sequence[str], orders: Orders) -> Iterator[Tried]:
    now, redactor = context.clock.now(), context.redactor
    repairs = Repairs(context.app, orders.repair, redactor)
    with open_checks(context.app, orders) as checks:
        for letter in _read(context.store, ids):
            repaired = repairs.repaired(letter, now)
            why_not = repaired.why_not or checks.why_not(repaired.letter, now)
            yield Tried(
                task_id=letter.task_id,
                task=letter.task,
                change=repaired.change,
                why_not=None if why_not is None else redactor.text(why_not),
            )


def _read(store: Store, ids: Sequence[str]) -> Iterator[DeadLetter]:
    """The letters with their messages, without those that were deleted in the meantime."""
    done = 0
    while done < len(ids):
        letters, told = store.letters.read(ids[done : done + _PAGE])
        yield from letters
        done += told


def _oldest_first(store: Store, wanted: Filter) -> list[str]:
    newest_first, after = list[str](), None
    while True:
        page = store.letters.find(wanted, limit=_PAGE, after=after)
        newest_first += [letter.task_id for letter in page.letters]
        after = page.next
        if after is None:
            return newest_first[::-1]
