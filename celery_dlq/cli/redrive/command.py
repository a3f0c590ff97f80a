"""``dlq redrive``: sends letters back to their queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import click

from celery_dlq.cli.exits import DONE, FAILED, PARTLY, one_line
from celery_dlq.cli.options import (
    TAKEABLE,
    filters,
    operation_option,
    read_with,
    selection_options,
)
from celery_dlq.cli.redrive.dry_run import DryRun, try_all
from celery_dlq.cli.redrive.options import orders_options
from celery_dlq.cli.redrive.running import finish, in_foreground, tell_left
from celery_dlq.cli.screens.operation import plan_parts, to_send
from celery_dlq.cli.selection import confirm, left_alone, of_operation, select
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.errors import RepairError
from celery_dlq.known import unknown_name
from celery_dlq.model.operation import OperationState, Orders
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter
from celery_dlq.view import times
from celery_dlq.view.text import counted, visible

if TYPE_CHECKING:
    from celery_dlq.redrive.plan import Plan

#: The default of ``--wait``.
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


@click.command("redrive")
@filters(states=TAKEABLE)
@operation_option
@orders_options
@click.option(
    "--wait", "wait_s", metavar="[DURATION]", is_flag=False, flag_value=_PATIENCE,
    callback=read_with(_patience),
    help=f"Wait for the outcomes, at most this long: 30s, 1h. Without a value: {_PATIENCE}.",
)  # fmt: skip
@click.option("--detach", is_flag=True, help="Let a worker send the letters.")
@click.option("--dry-run", is_flag=True, help="Show the plan and send nothing.")
@selection_options
@pass_session
def redrive(
    session: Session,
    ids: Sequence[str],
    everything: bool,
    yes: bool,
    wanted: Filter,
    operation_id: str | None,
    orders: Orders,
    wait_s: float | None,
    detach: bool,
    dry_run: bool,
) -> None:
    """Send the original messages back to their queues.

    Takes dead letters. With --state redriven, it takes letters that were sent and have no outcome yet. The
    plan shows how many of them may still run. Ctrl-C pauses the redrive after the current batch, a second
    Ctrl-C stops it at once; `operations resume` continues it. A guard stops it when its letters fail again,
    unless you give --no-guard.
    """
    if detach and wait_s:
        raise click.UsageError("--wait contradicts --detach; use only one of them.")
    wanted = of_operation(session, wanted, operation_id)
    wanted = select(session, ids, wanted, everything=everything)
    session.load_tasks()
    _check_target(session, orders.repair.to_task)
    others = left_alone(session, wanted, wanted.states or {State.DEAD}) > 0
    try:
        tried = try_all(session, wanted, orders) if dry_run else None
        plan = session.queue.plan(wanted, orders, trial=tried.trial if tried else None)
    except RepairError as error:
        raise click.UsageError(one_line(str(error))) from error
    _show(session, plan, orders, tried)
    if tried is not None:
        return
    if not plan.sendable:
        # Letters that another redrive holds are being sent; the others that match are not.
        _end_without_sending(
            session, plan, failed=others or bool(wanted.ids) or plan.matched > plan.in_flight
        )
    confirm(session, f"Redrive {to_send(plan)}?", count=plan.sendable, yes=yes)
    if detach:
        left = session.queue.redrive(wanted, who=operator(), orders=orders, plan=plan, detach=True)
        letters = counted(left.counts.planned, "dead letter")
        tell_left(session, left, f"A worker will send operation {left.id} with {letters}")
        click.get_current_context().exit(PARTLY if others else DONE)
    with in_foreground(session) as foreground:
        operation = session.queue.redrive(
            wanted, who=operator(), orders=orders, plan=plan,
            on_progress=foreground.on_progress, should_stop=foreground.should_stop,
        )  # fmt: skip
    finish(session, operation, foreground, wait_s=wait_s, left_alone=others, promised=plan.sendable)


def _check_target(session: Session, name: str | None) -> None:
    tasks = session.cli.app.tasks
    if name is None or name in tasks:
        return
    said = unknown_name("a task of this app", name, sorted(session.task_names()))
    raise click.BadParameter(visible(said), param_hint="'--to-task'")


def _show(session: Session, plan: Plan, orders: Orders, tried: DryRun | None) -> None:
    """Show the plan, with all letters that were tried in a dry run."""
    if tried is not None:
        session.screen.show(*plan_parts(plan, orders, with_skipped=False), *tried.parts())
    elif plan.matched > 1 and not session.cli.quiet:
        session.screen.show(*plan_parts(plan, orders))
    elif plan.awaited:
        from celery_dlq.redrive.plan import why_twice

        session.say(f"Note: {why_twice(plan.awaited)}")
    if plan.in_flight:
        # Other running operations may hold these letters.
        running = session.store.operations.find(states=frozenset({OperationState.RUNNING}), limit=5)
        for one in running:
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
    click.get_current_context().exit(FAILED if failed else DONE)
