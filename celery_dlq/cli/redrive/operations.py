"""``dlq operations``: inspect, pause, cancel and resume redrives."""

from __future__ import annotations

import click

from celery_dlq.cli.exits import NamingGroup
from celery_dlq.cli.options import (
    after_option,
    format_option,
    limit_option,
    states_option,
    why_option,
)
from celery_dlq.cli.redrive.running import finish, in_foreground, report_detached
from celery_dlq.cli.screens.operation import next_step, operation_parts, operation_table
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.model.operation import OperationState, SendingState
from celery_dlq.view import records
from celery_dlq.view.operations import TROUBLED
from celery_dlq.view.text import counted

_named = click.argument("operation_id", metavar="ID")


@click.group("operations", cls=NamingGroup, alone="list")
def operations() -> None:
    """Inspect, pause, cancel and resume redrives."""


@operations.command("list")
@states_option(OperationState, "a state of operations", "the operations")
@limit_option("Show at most this many operations.", default=20)
@format_option
@pass_session
def list_operations(
    session: Session, states: frozenset[OperationState], limit: int, form: str
) -> None:
    """List operations, newest first."""
    known = session.store.operations.find(states=states, limit=limit + 1)
    found = known[:limit]
    session.screen.emit(form, [*map(records.operation_record, found)], operation_table(found))
    session.say_if_more(len(known), limit)


@operations.command("show")
@_named
@states_option(
    SendingState, "a state of an operation's letters", "the letters to show", "failed, unknown, skipped"
)  # fmt: skip
@limit_option("Letters per page.", default=20)
@after_option
@format_option
@pass_session
def show(
    session: Session,
    operation_id: str,
    states: frozenset[SendingState],
    limit: int,
    after: str | None,
    form: str,
) -> None:
    """Show one operation and the outcomes of its letters.

    ID is an operation's id, or a prefix of it that no other operation has.
    """
    operation = session.operation(operation_id)
    page = session.store.sendings.of_operation(
        operation.id, states=states or TROUBLED, limit=limit, after=after
    )
    session.screen.emit(
        form,
        records.whole_operation_record(operation, page.rows),
        *operation_parts(operation, page.rows, session.command),
    )
    session.say_next(page.next)


@operations.command("pause")
@_named
@why_option
@pass_session
def pause(session: Session, operation_id: str, why: str) -> None:
    """Stop an operation; it can be resumed.

    The process that runs it stops after the current batch. Messages that were sent stay sent.
    """
    paused = session.queue.redrives.pause(
        session.operation(operation_id).id, who=operator(), why=why
    )
    session.done(f"Paused operation {paused.id}. Next: {next_step(paused, session.command)}")


@operations.command("cancel")
@_named
@why_option
@pass_session
def cancel(session: Session, operation_id: str, why: str) -> None:
    """End an operation for good.

    Letters that were not sent are unchanged. Messages that were sent stay sent.
    """
    ended = session.queue.redrives.cancel(
        session.operation(operation_id).id, who=operator(), why=why
    )
    left = f"{counted(ended.counts.left, 'letter')} not sent and left unchanged"
    session.done(f"Cancelled operation {ended.id}; {left}.")


@operations.command("resume")
@_named
@click.option("--detach", is_flag=True, help="Let a worker run it.")
@why_option
@pass_session
def resume(session: Session, operation_id: str, detach: bool, why: str) -> None:
    """Continue an operation that was paused or whose process was killed."""
    session.load_tasks()
    operation = session.operation(operation_id)
    who = operator()
    if detach:
        left = session.queue.redrives.resume(operation.id, who=who, why=why, detach=True)
        report_detached(session, left, f"A worker will run operation {left.id}")
        return
    with in_foreground(session, operation.orders.pacing.rate) as foreground:
        done = session.queue.redrives.resume(
            operation.id, who=who, why=why,
            on_progress=foreground.on_progress, should_stop=foreground.should_stop,
        )  # fmt: skip
    finish(session, done, foreground)
