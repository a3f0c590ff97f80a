"""An operation that runs in the foreground: shown while it runs, paused by Ctrl-C, summed up at its
end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import click

from celery_dlq.cli.exits import DONE, FAILED, INTERRUPTED, PARTLY, for_app
from celery_dlq.cli.operation_view import eta_text, next_step
from celery_dlq.cli.progress import Step, shown_progress, stopping_on_interrupt
from celery_dlq.cli.session import Session
from celery_dlq.cli.speed import Speed
from celery_dlq.errors import CeleryDLQError
from celery_dlq.operation import ENDED, Counts, OperationState, SendingState
from celery_dlq.store.base import Operation
from celery_dlq.view.operations import outcome_text, summary
from celery_dlq.view.text import visible
from celery_dlq.view.times import rate

if TYPE_CHECKING:
    from celery_dlq.redrive.plan import Progress

#: Runs the operation; is given ``on_progress`` and ``should_stop``.
Act = Callable[..., Operation]

#: Letters that are named one by one at the end.
_NAMED = 5

#: Seconds between two looks at outcomes.
_LOOK_S = 0.5

_TROUBLE = {SendingState.SKIPPED: "Not sent", SendingState.FAILED: "Failed again"}


def run_shown(session: Session, act: Act) -> Operation:
    """Run an operation, and show how far it is. The first Ctrl-C pauses it after the batch in hand; the
    second one at once."""
    reached: list[Progress] = []
    speed = Speed(time.monotonic)
    with shown_progress(session.cli, "Redriving") as show, stopping_on_interrupt() as should_stop:

        def on_progress(progress: Progress) -> None:
            reached[:] = [progress]
            speed.note(progress.counts.out)
            show(_step(progress, speed))

        try:
            operation = act(on_progress=on_progress, should_stop=should_stop)
        except (CeleryDLQError, KeyboardInterrupt):
            for last in reached:
                _tell_cut_off(session, last)
            raise
        stopped = should_stop()
    if stopped and operation.state not in ENDED:
        _end_interrupted(session, operation)
    return operation


def _end_interrupted(session: Session, operation: Operation) -> NoReturn:
    session.cli.error("Interrupted.")
    _tell_unfinished(session, operation)
    click.get_current_context().exit(INTERRUPTED)


def _step(progress: Progress, speed: Speed) -> Step:
    counts = progress.counts
    outcomes = f"{counts.succeeded:,} succeeded, {counts.failed:,} failed again"
    pace = rate(speed.per_second)
    left = eta_text(speed.left_s(counts.left))
    said = [f"{counts.out:,} sent", outcomes, f"{counts.skipped:,} skipped", pace, left]
    return Step(
        total=counts.planned,
        done=counts.out + counts.skipped,
        short=f"{outcomes}, {pace}",
        long=", ".join(filter(None, said)),
        waits_for=progress.waits_for,
    )


def _tell_cut_off(session: Session, last: Progress) -> None:
    """What is known of an operation that an error or the second Ctrl-C has cut off."""
    try:
        operation = session.operation(last.operation)
    except CeleryDLQError:
        # The store is away. It says there how far it came; this is how far it was seen to come.
        for sentence in summary(last.counts):
            session.cli.error(sentence)
    else:
        _tell_unfinished(session, operation)


def _tell_unfinished(session: Session, operation: Operation) -> None:
    state = f"Operation {operation.id} is {operation.state.value}."
    following = f"Next: {next_step(operation, session.command)}"
    for sentence in (*summary(operation.counts), state, following):
        session.cli.error(sentence)


def await_outcomes(
    session: Session,
    operation: Operation,
    seconds: float,
    *,
    sleep: Callable[[float], object] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> Operation:
    """Wait until every message that was sent has its outcome, for ``seconds`` at most; Ctrl-C ends the
    command."""
    deadline = monotonic() + seconds
    with shown_progress(session.cli, "Waiting") as show, stopping_on_interrupt() as should_stop:
        while operation.counts.sent and monotonic() < deadline and not should_stop():
            sleep(_LOOK_S)
            operation = session.store.operation(operation.id) or operation
            show(_waiting_step(operation.counts))
        stopped = should_stop()
    if stopped:
        _end_interrupted(session, operation)
    return operation


def _waiting_step(counts: Counts) -> Step:
    text = outcome_text(counts)
    return Step(total=counts.out, done=counts.out - counts.sent, short=text, long=text)


def end(session: Session, operation: Operation, *, left_alone: bool, waited: bool) -> NoReturn:
    """Sum the operation up and end the command with the status that it earned."""
    status = _status(operation, left_alone=left_alone, waited=waited)
    tell = session.done if status == DONE else session.cli.error
    for line in _troubles(session, operation):
        tell(line)
    for sentence in summary(operation.counts):
        tell(sentence)
    unsent = operation.counts.left - operation.counts.sending
    if unsent > 0 and operation.state is OperationState.DONE:
        tell(f"{unsent:,} were not dead any more when it came to them; somebody else had them.")
    elif unsent > 0 and operation.state in ENDED:
        tell(f"{unsent:,} were not sent and are as they were.")
    if operation.state is not OperationState.DONE:
        cause = f": {for_app(operation.cause)}" if operation.cause else ""
        tell(visible(f"Operation {operation.id} is {operation.state.value}{cause}"))
    if operation.counts.succeeded < operation.counts.planned:
        tell(f"Next: {next_step(operation, session.command)}")
    click.get_current_context().exit(status)


def _status(operation: Operation, *, left_alone: bool, waited: bool) -> int:
    counts = operation.counts
    # Without waiting, which outcomes are there already is chance, and says nothing.
    missing = counts.skipped or counts.left or (waited and counts.succeeded < counts.out)
    if operation.state is OperationState.DONE and not missing and not left_alone:
        return DONE
    return PARTLY if counts.out else FAILED


def _troubles(session: Session, operation: Operation) -> list[str]:
    counts = operation.counts
    if not counts.skipped and not counts.failed:
        return []
    found = session.store.sendings(operation.id, states=frozenset(_TROUBLE), limit=_NAMED)
    lines = [visible(f"{_TROUBLE[one.state]}: {one.task_id}: {one.why}") for one in found.rows]
    if found.next:
        lines.append(f"… and more: {session.command('operations', 'show', operation.id)}")
    return lines
