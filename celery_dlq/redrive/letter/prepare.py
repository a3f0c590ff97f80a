"""From a letter to a message that may be sent: it is repaired, then checked. Its body is decoded once.

A plan prepares the first letters, and the run prepares each of them again, because time passes between: a
person confirms, or a worker takes the operation over. By then the app may have other tasks or repairs, the
broker other queues, and the result backend may have forgotten a chord.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.operation import Orders
from celery_dlq.redrive.context import RedriveContext
from celery_dlq.redrive.letter.checks import Checks, open_checks
from celery_dlq.redrive.letter.chords import ChordMember
from celery_dlq.redrive.letter.repair import Repairs


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A letter as it would be sent."""

    letter: DeadLetter
    #: The changes in its message, as lines of a diff; empty for none.
    change: str = ""
    #: Why it must not be sent; None if it may.
    why_not: str | None = None
    #: Why it may fail although it may be sent; empty for no reason.
    doubt: str = ""
    #: The members of chords to reopen before it is sent.
    members: Sequence[ChordMember] = ()


@dataclass(frozen=True)
class Preparation:
    """The repairs and checks of one redrive."""

    repairs: Repairs
    checks: Checks

    def prepare(self, letter: DeadLetter, now: datetime) -> Prepared:
        """``letter`` as it would be sent. An error in it is its ``why_not``.

        :raises RedriveError: the result backend does not answer, or functions of the user have hung too
            often.
        """
        repaired = self.repairs.repaired(letter, now)
        if repaired.why_not is not None:
            return Prepared(letter=letter, why_not=repaired.why_not)
        checked = self.checks.check(repaired.opened, now)
        return Prepared(
            letter=repaired.letter, change=repaired.change, why_not=checked.why_not,
            doubt=checked.doubt, members=checked.members,
        )  # fmt: skip


@contextmanager
def open_preparation(context: RedriveContext, orders: Orders) -> Iterator[Preparation]:
    """The preparation of one redrive.

    :raises RepairError: the changes that were ordered cannot be made here.
    """
    repairs = Repairs(context.app, orders.repair, context.redactor)
    with open_checks(context.app, orders) as checks:
        yield Preparation(repairs, checks)
