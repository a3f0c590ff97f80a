"""The command that sends letters back."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn

import click

from celery_dlq.cli.dry_run import run_dry
from celery_dlq.cli.exits import DONE, FAILED, PARTLY, one_line
from celery_dlq.cli.options import (
    TAKEABLE,
    filters,
    operation_option,
    read_with,
    selection_options,
)
from celery_dlq.cli.orders import orders_options
from celery_dlq.cli.plan_view import plan_parts
from celery_dlq.cli.running import await_outcomes, end, run_shown
from celery_dlq.cli.selection import confirm, left_alone, of_operation, select
from celery_dlq.cli.session import Session, operator
from celery_dlq.errors import RepairError
from celery_dlq.operation import OperationState, Orders
from celery_dlq.states import State
from celery_dlq.store.base import Filter, Operation
from celery_dlq.view import times
from celery_dlq.view.text import counted, visible

if TYPE_CHECKING:
    from celery_dlq.redrive.plan import Plan

#: How long ``--wait`` waits when it is not told.
_PATIENCE = "10m"


@click.command("redrive")
@filters(states=TAKEABLE)
@operation_option
@orders_options
@click.option(
    "--wait", "wait_s", metavar="[DURATION]", is_flag=False, flag_value=_PATIENCE,
    callback=read_with(times.parse_span),
    help=f"Then wait for the outcomes, at most so long: 30s, 1h; {_PATIENCE} when not said.",
)  # fmt: skip
@click.option("--detach", is_flag=True, help="Leave the sending to a worker.")
@click.option("--dry-run", is_flag=True, help="Show the plan and send nothing.")
@selection_options
@click.pass_obj
def redrive(
    cli: Any,
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

    Takes dead letters; with --state redriven those that were sent and have no outcome: the plan
    says how many may still run. Ctrl-C pauses after the batch in hand, a second one at once;
    `operations resume` goes on. It stops by itself when letters come back, unless --no-guard.
    """
    if detach and wait_s:
        raise click.UsageError("--wait contradicts --detach; leave one of them out.")
    session = Session(cli)
    wanted = of_operation(session, wanted, operation_id)
    wanted = select(session, ids, wanted, everything=everything)
    session.load_tasks()
    _check_target(session, orders.repair.to_task)
    others = left_alone(session, wanted, wanted.states or {State.DEAD}) > 0
    plan = _planned(session, wanted, orders, dry=dry_run)
    if dry_run:
        session.screen.show(*run_dry(session, wanted, orders))
        return
    if not plan.sendable:
        _end_without_sending(session, plan, failed=others or bool(wanted.ids or plan.skipped))
    confirm(session, f"Redrive {_letters(plan.sendable)}?", count=plan.sendable, yes=yes)
    if detach:
        _leave(session, wanted, orders, plan, left_alone=others)
    _send(session, wanted, orders, plan, wait_s, left_alone=others)


def _planned(session: Session, wanted: Filter, orders: Orders, *, dry: bool) -> Plan:
    try:
        plan = session.queue.plan(wanted, orders)
    except RepairError as error:
        raise click.UsageError(one_line(str(error))) from error
    if dry or (plan.matched > 1 and not session.cli.quiet):
        session.screen.show(*plan_parts(plan, orders, with_skipped=not dry))
    elif plan.awaited:
        from celery_dlq.redrive.plan import why_twice

        session.say(f"Note: {why_twice(plan.awaited)}")
    if plan.in_flight:
        _name_others(session)
    return plan


def _send(
    session: Session,
    wanted: Filter,
    orders: Orders,
    plan: Plan,
    wait_s: float | None,
    *,
    left_alone: bool,
) -> NoReturn:
    def act(**shown: Any) -> Operation:
        return session.queue.redrive(wanted, who=operator(), orders=orders, plan=plan, **shown)

    operation = run_shown(session, act)
    if wait_s:
        operation = await_outcomes(session, operation, wait_s)
    end(session, operation, left_alone=left_alone, waited=bool(wait_s))


def _check_target(session: Session, name: str | None) -> None:
    tasks = session.cli.app.tasks
    if name is None or name in tasks:
        return
    near = get_close_matches(name, tasks, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "deploy or import it first."
    raise click.UsageError(visible(f"--to-task: this app has no task {name!r}; {hint}"))


def _leave(
    session: Session, wanted: Filter, orders: Orders, plan: Plan, *, left_alone: bool
) -> NoReturn:
    operation = session.queue.redrive(wanted, who=operator(), orders=orders, plan=plan, detach=True)
    see = session.command("operations", "show", operation.id)
    session.done(
        f"Operation {operation.id} of {_letters(operation.counts.planned)} is left to a worker. "
        f"See: {see}"
    )
    click.get_current_context().exit(PARTLY if left_alone else DONE)


def _end_without_sending(session: Session, plan: Plan, *, failed: bool) -> NoReturn:
    for item in plan.skipped:
        session.cli.error(visible(f"Not sent: {item.task_id}: {item.why}"))
    if plan.matched:
        session.cli.error(" ".join(("Nothing was sent.", *plan.notes)))
    elif failed:
        session.cli.error("Nothing was sent: no dead letter with these ids and filters is waiting.")
    else:
        session.screen.show("No dead letters match.")
    click.get_current_context().exit(FAILED if failed else DONE)


def _name_others(session: Session) -> None:
    """Who else may have the letters: two operators may redrive at a time."""
    running = session.store.operations(states=frozenset({OperationState.RUNNING}), limit=5)
    for one in running:
        see = session.command("operations", "show", one.id)
        session.say(visible(f"Operation {one.id} of {one.who} is running; see: {see}"))


def _letters(count: int) -> str:
    return counted(count, "dead letter")
