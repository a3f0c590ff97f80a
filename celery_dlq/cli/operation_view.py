"""An operation as a person reads it: where it stands, what became of its letters, what to do next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from celery_dlq.cli.render import Block, Column, Facts, Part, Short, Table
from celery_dlq.operation import ENDED, Counts, OperationState, Orders, Sending
from celery_dlq.store.base import Operation
from celery_dlq.view.operations import given_orders, named_values
from celery_dlq.view.text import last_part, short_ids
from celery_dlq.view.times import duration

#: Makes a command line of words, for the app at hand.
Command = Callable[..., str]

_COLUMNS = (
    Column("OPERATION", rigid=True),
    Column("STATE", rigid=True),
    Column("PLANNED", right=True, rigid=True),
    Column("SENT", right=True, rigid=True),
    Column("SUCCEEDED", right=True, from_width=80),
    Column("FAILED AGAIN", right=True, rigid=True),
    Column("SKIPPED", right=True, from_width=100),
    Column("BY", from_width=80),
    Column("MADE", rigid=True),
    Column("CAUSE"),
)

_SENDING_COLUMNS = (
    Column("ID", rigid=True),
    Column("TASK"),
    Column("STATE", rigid=True),
    Column("WHY", fold=True),
    Column("SENT", from_width=100),
    Column("ENDED", from_width=80),
)


def operation_table(operations: Sequence[Operation]) -> Part:
    """The table of ``operations``, or a sentence when there are none."""
    if not operations:
        return "There are no such operations."
    rows = [
        (
            one.id,
            one.state.value,
            one.counts.planned,
            one.counts.out,
            one.counts.succeeded,
            one.counts.failed,
            one.counts.skipped,
            one.who,
            one.created_at,
            one.cause,
        )
        for one in operations
    ]
    return Table(_COLUMNS, rows)


def operation_parts(
    operation: Operation, sendings: Sequence[Sending], command: Command
) -> list[Part]:
    """The parts of an operation's screen.

    :param command: makes the command lines that are named, such as ``celery -A shop dlq list``.
    """
    parts: list[Part] = [_facts(operation), _letters(operation.counts), _orders(operation.orders)]
    if sendings:
        parts.append(sending_table(sendings))
        parts += _changes(sendings)
    return [part for part in parts if not isinstance(part, Facts) or part.given] + [
        f"Next: {next_step(operation, command)}"
    ]


def _facts(operation: Operation) -> Facts:
    return Facts(
        "Operation",
        [
            ("Id", operation.id),
            ("State", operation.state.value),
            ("Cause", operation.cause),
            ("Of", named_values(operation.wanted.to_dict())),
            ("By", f"{operation.who} on {operation.host}"),
            ("For", " on ".join(filter(None, (operation.home.app, operation.home.broker)))),
            ("Left to", "a worker" if operation.detached else None),
            ("Made", operation.created_at),
            ("Started", operation.started_at),
            ("Ended", operation.ended_at),
        ],
    )


def _letters(counts: Counts) -> Facts:
    return Facts(
        "Letters",
        [
            ("Planned", counts.planned),
            ("Sent", counts.out),
            ("Succeeded", counts.succeeded),
            ("Failed again", counts.failed),
            ("Awaited", counts.sent),
            ("Unknown", counts.unknown or None),
            ("Skipped", counts.skipped),
            ("Left", counts.left),
            ("In hand", counts.sending or None),
        ],
    )


def _orders(orders: Orders) -> Facts:
    return Facts("Orders", given_orders(orders))


def sending_table(sendings: Sequence[Sending]) -> Table:
    """What became of letters in an operation."""
    ids = short_ids([sending.task_id for sending in sendings])
    rows = [
        (
            Short(short, sending.task_id),
            Short(last_part(sending.task), sending.task),
            sending.state.value,
            sending.why,
            sending.sent_at,
            sending.ended_at,
        )
        for short, sending in zip(ids, sendings, strict=True)
    ]
    return Table(_SENDING_COLUMNS, rows)


def _changes(sendings: Sequence[Sending]) -> Iterator[Block]:
    for sending in sendings:
        if sending.change:
            yield Block(f"Changed in {sending.task_id}", sending.change)


def next_step(operation: Operation, command: Command) -> str:
    """What an operator may do now."""
    this, state, counts = operation.id, operation.state, operation.counts
    if state is OperationState.PAUSED:
        cancel = command("operations", "cancel", this)
        return f"to go on: {command('operations', 'resume', this)}; to end it: {cancel}"
    if state not in ENDED:
        pause = command("operations", "pause", this)
        return f"look again: {command('operations', 'show', this)}; to stop it: {pause}"
    if counts.sent:
        return f"outcomes are awaited; look again: {command('operations', 'show', this)}"
    if counts.unknown:
        again = command("redrive", "--state", "redriven", "--operation", this)
        return f"unless they just wait on their queue, send again those without an outcome: {again}"
    if counts.failed or (counts.left and state is not OperationState.DONE):
        return f"mend the cause, then redrive what is dead: {command('groups')}"
    if counts.skipped:
        why = command("operations", "show", this, "--state", "skipped")
        return f"see why letters were skipped, mend that, and redrive them: {why}"
    return f"nothing; the others: {command('operations', 'list')}"


def eta_text(left_s: float | None) -> str:
    """How long it will take, as far as that can be told."""
    return "" if left_s is None else f"{duration(left_s)} left"
