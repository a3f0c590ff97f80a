"""A dry run as a person reads it: how many would be sent, what would change, and why others stay."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from celery_dlq.cli.progress import Step, shown_progress, stopping_on_interrupt
from celery_dlq.cli.render import Block, Column, Part, Short, Table
from celery_dlq.cli.session import Session
from celery_dlq.operation import Orders
from celery_dlq.store.base import Filter
from celery_dlq.view.text import SHORT_ID, counted

if TYPE_CHECKING:
    from celery_dlq.redrive.dry_run import Tried

#: Letters whose changes are shown, and reasons and kinds of change.
_SHOWN, _KINDS = 5, 20


@dataclass
class DryRun:
    """What was found out letter by letter."""

    tried: int = 0
    sendable: int = 0
    #: Letters by the kind of their change; and the first changes.
    kinds: Counter[str] = field(default_factory=Counter)
    changed: list[Tried] = field(default_factory=list)
    #: Letters by the reason why they would not be sent, whatever the numbers in it are; and the first
    #: of each.
    reasons: Counter[str] = field(default_factory=Counter)
    first: dict[str, Tried] = field(default_factory=dict)

    def note(self, one: Tried) -> None:
        """One more letter."""
        self.tried += 1
        if one.why_not is None:
            self.sendable += 1
            self._note_change(one)
        else:
            reason = re.sub(r"\d+", "…", one.why_not)
            self.reasons[reason] += 1
            self.first.setdefault(reason, one)

    def _note_change(self, one: Tried) -> None:
        from celery_dlq.redrive.change import kind_of

        if one.change:
            self.kinds[kind_of(one.change)] += 1
            if len(self.changed) < _SHOWN:
                self.changed.append(one)

    def parts(self, total: int) -> list[Part]:
        """The parts of its screen."""
        would = counted(self.sendable, "dead letter")
        said = f"{would} of {self.tried:,} would be sent. Nothing was sent or changed."
        if self.tried < total:
            said = f"Stopped after {self.tried:,} of {total:,}. {said}"
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


def run_dry(session: Session, wanted: Filter, orders: Orders) -> list[Part]:
    """Try every letter, and show how far it is; Ctrl-C stops, and what was found until then is told."""
    from celery_dlq.redrive.plan import redrivable

    found, total = DryRun(), session.store.count(redrivable(wanted))
    total = min(total, orders.pacing.limit or total)
    with shown_progress(session.cli, "Trying") as show, stopping_on_interrupt() as should_stop:
        for one in session.queue.dry_run(wanted, orders):
            found.note(one)
            would = f"{found.sendable:,} would be sent"
            show(Step(total, found.tried, would, would))
            if should_stop():
                break
    return found.parts(total)
