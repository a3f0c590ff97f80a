"""``dlq redrive``: sends letters back to their queues, or shows what it would send."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

import click

from celery_dlq.base.known import unknown_name
from celery_dlq.cli.exits import DONE, FAILED, PARTLY, HeadedCommand, leave, one_line
from celery_dlq.cli.options import TAKEABLE, Chosen, filters, read_with, selection_options
from celery_dlq.cli.redrive.options import orders_options
from celery_dlq.cli.redrive.running import finish, in_foreground, report_detached
from celery_dlq.cli.screens.operation import plan_parts, to_send
from celery_dlq.cli.screens.parts import Block, Column, Part, Short, Table
from celery_dlq.cli.screens.progress import Step, shown_progress, stopping_on_interrupt
from celery_dlq.cli.selection import confirm, left_alone, select
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.errors import RepairError
from celery_dlq.model.operation import OperationState, Orders
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter
from celery_dlq.view import times
from celery_dlq.view.text import SHORT_ID, counted, visible

if TYPE_CHECKING:
    from celery_dlq.redrive.plan import Plan, Trial, Tried

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
        from celery_dlq.redrive.letter.contents import kind_of

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
        changes = [Block(f"Changed in {one.task_id}", one.change) for one in self.changed]
        return [said, self._reason_table(), self._kind_table(), *changes]

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
        for one in session.queue.redrives.dry_run(wanted, orders):
            found.note(one)
            would = f"{found.trial.passed.total():,} would be sent"
            show(Step(total, found.trial.tried, would, would))
            if should_stop():
                break
    return found


#: The value of ``--wait`` if none is given.
_PATIENCE = "10m"


def _patience(text: str) -> float:
    """The seconds to wait.

    :raises ValueError: the text is not a duration, or it may be the beginning of an id.
    """
    if text.strip().isdigit():
        raise ValueError(
            f"{text!r} has no unit; write --wait={text}s, or put --wait after the ids."
        )
    return times.parse_span(text)


@click.command("redrive", cls=HeadedCommand)
@filters(states=TAKEABLE)
@orders_options
@click.option(
    "--wait", "wait_s", metavar="[DURATION]", is_flag=False, flag_value=_PATIENCE,
    callback=read_with(_patience),
    help=f"Wait for the outcomes, at most this long: 30s, 1h. Without a value: {_PATIENCE}.",
)  # fmt: skip
@click.option("--detach", is_flag=True, help="Let a worker send the letters.")
@selection_options
@pass_session
def redrive(
    session: Session,
    chosen: Chosen,
    wanted: Filter,
    orders: Orders,
    wait_s: float | None,
    detach: bool,
) -> None:
    """Send the original messages back to their queues.

    Waits for the outcome of a single letter for up to ten seconds, and of several letters with --wait. Takes
    dead letters. With --state redriven, it takes letters that were sent and have no outcome yet. The
    plan shows how many of them may still run. Ctrl-C pauses the redrive after the current batch, a second
    Ctrl-C stops it at once; `operations resume` continues it. A guard stops it when its letters fail again,
    unless you give --no-guard.
    """
    if detach and wait_s:
        raise click.UsageError("--wait contradicts --detach; use only one of them.")
    wanted = select(session, chosen, wanted)
    others = left_alone(session, wanted, wanted.states or {State.DEAD}) > 0
    plan = _planned(session, wanted, orders, dry_run=chosen.dry_run)
    if chosen.dry_run:
        return
    if not plan.sendable:
        # Letters that another redrive holds are being sent; the others that match are not.
        failed = others or bool(wanted.ids) or plan.matched > plan.in_flight
        _end_without_sending(session, plan, failed=failed)
    if plan.sendable > 1:
        confirm(session, f"Redrive {to_send(plan)}?", count=plan.sendable, yes=chosen.yes)
    if detach:
        left = session.queue.redrives.start(
            wanted, who=operator(), orders=orders, plan=plan, detach=True
        )
        letters = counted(left.counts.planned, "dead letter")
        report_detached(session, left, f"A worker will send operation {left.id} with {letters}")
        leave(PARTLY if others else DONE)
    with in_foreground(session, orders.pacing.rate) as foreground:
        operation = session.queue.redrives.start(
            wanted, who=operator(), orders=orders, plan=plan,
            on_progress=foreground.on_progress, should_stop=foreground.should_stop,
        )  # fmt: skip
    finish(session, operation, foreground, wait_s=wait_s, left_alone=others, planned=plan.sendable)


def _planned(session: Session, wanted: Filter, orders: Orders, *, dry_run: bool) -> Plan:
    """Make the plan, and show it; in a dry run, with the results of trying each letter."""
    session.load_tasks()
    if orders.repair.to_task is not None:
        _check_target(session, orders.repair.to_task)
    try:
        tried = try_all(session, wanted, orders) if dry_run else None
        plan = session.queue.redrives.plan(wanted, orders, trial=tried.trial if tried else None)
    except RepairError as error:
        raise click.UsageError(one_line(str(error))) from error
    if tried is not None:
        session.screen.show(*plan_parts(plan, orders, with_skipped=False), *tried.parts())
    elif plan.matched > 1 and not session.cli.quiet:
        session.screen.show(*plan_parts(plan, orders))
    elif plan.sendable:
        for note in plan.notes:
            session.say(f"Note: {note}")
    if plan.in_flight:
        _name_running(session)
    return plan


def _check_target(session: Session, name: str) -> None:
    if name not in session.cli.app.tasks:
        said = unknown_name("a task of this app", name, sorted(session.task_names()))
        raise click.BadParameter(visible(said), param_hint="'--to-task'")


def _name_running(session: Session) -> None:
    """Name the running operations, which may hold letters that match."""
    for one in session.store.operations.find(states=frozenset({OperationState.RUNNING}), limit=5):
        see = session.command("operations", "show", one.id)
        session.say(f"Operation {one.id} of {one.who} is running. See: {see}")


def _end_without_sending(session: Session, plan: Plan, *, failed: bool) -> NoReturn:
    for item in plan.skipped:
        session.error(f"Not sent: {item.task_id}: {item.why_not}")
    if plan.matched:
        session.error(" ".join(("Nothing was sent.", *plan.notes)))
    elif failed:
        session.error("Nothing was sent: no dead letter matches these ids and filters.")
    else:
        session.screen.show("No dead letters match.")
    leave(FAILED if failed else DONE)
