"""A dry run, and its screen: letters that would be sent, changes, and reasons why others would not."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from celery_dlq.cli.screens.parts import Block, Column, Part, Short, Table
from celery_dlq.cli.screens.progress import Step, shown_progress, stopping_on_interrupt
from celery_dlq.cli.session import Session
from celery_dlq.model.operation import Orders
from celery_dlq.store.base import Filter
from celery_dlq.view.text import SHORT_ID, counted

if TYPE_CHECKING:
    from celery_dlq.redrive.plan import Trial, Tried

#: Letters whose changes are shown; rows of the tables of reasons and of kinds of change.
_SHOWN, _KINDS = 5, 20


@dataclass
class DryRun:
    """The results of trying each letter."""

    #: Letters that the redrive would take.
    total: int
    trial: Trial
    #: Letters by kind of change; and the first changes.
    kinds: Counter[str] = field(default_factory=Counter)
    changed: list[Tried] = field(default_factory=list)
    #: Letters by the reason why they would not be sent, with its numbers left out; and the first of each.
    reasons: Counter[str] = field(default_factory=Counter)
    first: dict[str, Tried] = field(default_factory=dict)

    def note(self, one: Tried) -> None:
        """Add a letter."""
        self.trial.note(one)
        if one.why_not is None:
            self._note_change(one)
        else:
            reason = re.sub(r"\d+", "…", one.why_not)
            self.reasons[reason] += 1
            self.first.setdefault(reason, one)

    def _note_change(self, one: Tried) -> None:
        from celery_dlq.redrive.contents import kind_of

        if one.change:
            self.kinds[kind_of(one.change)] += 1
            if len(self.changed) < _SHOWN:
                self.changed.append(one)

    def parts(self) -> list[Part]:
        """The parts of the screen."""
        would, tried = counted(self.trial.passed.total(), "dead letter"), self.trial.tried
        said = f"{would} of {tried:,} would be sent. Nothing was sent or changed."
        if tried < self.total:
            said = f"Stopped after {tried:,} of {self.total:,}. {said}"
        tables = [self._reason_table(), self._kind_table()]
        changes = [Block(f"Changed in {one.task_id}", one.change) for one in self.changed]
        return [said, *(table for table in tables if table.rows), *changes]

    def _reason_table(self) -> Table:
        columns = (
            Column("LETTERS", right=True, rigid=True),
            Column("SUCH AS", rigid=True),
            Column("CANNOT BE SENT", fold=True),
        )
        rows = [
            (count, Short(one.task_id[:SHORT_ID], one.task_id), one.why_not)
            for reason, count in self.reasons.most_common(_KINDS)
            for one in [self.first[reason]]
        ]
        return Table(columns, rows)

    def _kind_table(self) -> Table:
        columns = (Column("LETTERS", right=True, rigid=True), Column("CHANGED IN", fold=True))
        return Table(columns, [(n, kind) for kind, n in self.kinds.most_common(_KINDS)])


def try_all(session: Session, wanted: Filter, orders: Orders) -> DryRun:
    """Try every letter and show the progress; Ctrl-C stops it, and the results so far remain."""
    from celery_dlq.redrive.plan import Trial, redrivable

    total = session.store.counts.letters(redrivable(wanted))
    total = min(total, orders.pacing.limit or total)
    found = DryRun(total, Trial())
    with shown_progress(session.cli, "Trying") as show, stopping_on_interrupt() as should_stop:
        for one in session.queue.dry_run(wanted, orders):
            found.note(one)
            would = f"{found.trial.passed.total():,} would be sent"
            show(Step(total, found.trial.tried, would, would))
            if should_stop():
                break
    return found
