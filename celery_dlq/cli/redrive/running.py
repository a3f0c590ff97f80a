"""Run an operation in the foreground: show its progress, pause it on Ctrl-C, and summarize it."""

from __future__ import annotations

import contextlib
import gc
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NoReturn

from celery_dlq.cli.exits import DONE, FAILED, INTERRUPTED, NO_WORKER, PARTLY, for_app, leave
from celery_dlq.cli.screens.operation import eta_text, next_step
from celery_dlq.cli.screens.progress import (
    OnStep,
    Speed,
    Step,
    shown_progress,
    stopping_on_interrupt,
)
from celery_dlq.cli.session import Session
from celery_dlq.errors import CeleryDLQError, StoreError
from celery_dlq.model.operation import ENDED, Counts, OperationState, SendingState
from celery_dlq.store.base import Operation
from celery_dlq.view.operations import outcome_text, summary
from celery_dlq.view.text import counted, visible
from celery_dlq.view.times import rate

if TYPE_CHECKING:
    from celery_dlq.redrive.loop import Progress

#: Wait for seconds, and count them.
Sleep = Callable[[float], object]
Clock = Callable[[], float]

#: Letters that the summary lists one by one.
_NAMED = 5

#: Seconds between two reads of the outcomes.
_LOOK_S = 0.5

#: Seconds to wait for the outcome of a single letter without ``--wait``.
_ONE_S = 10.0

#: Seconds after which a worker should have answered. An idle one begins an operation within five.
_ANSWER_S = 10.0

#: Seconds without a worker after which a redrive no longer waits for outcomes.
_GIVE_UP_S = 60.0

#: Seconds for which a thread may continue while another one waits. Python's default is ten times as long.
#: While one thread encodes a batch, the one that claims needs a turn after every answer of the database.
TURN_S = 0.0005

#: Allocations between two garbage collections. At Python's default of some hundreds, collecting takes a sixth
#: of a redrive's time and frees nothing.
OBJECTS = 100_000

_TROUBLE = {SendingState.SKIPPED: "Not sent", SendingState.FAILED: "Failed again"}


class Foreground:
    """An operation that runs in this process.

    :param show: shows its progress.
    :param is_interrupted: says whether Ctrl-C was pressed.
    :param ordered: messages per second that the orders allow; None for any number.
    """

    def __init__(
        self, session: Session, show: OnStep, is_interrupted: Callable[[], bool],
        monotonic: Clock, ordered: float | None,
    ) -> None:  # fmt: skip
        self._show, self._ordered = show, ordered
        self._speed, self.watch = Speed(monotonic), _Watch(session, is_interrupted, monotonic)
        #: The latest progress; None before the first.
        self.reached: Progress | None = None

    def on_progress(self, progress: Progress) -> None:
        """Show how far the operation has come."""
        self.reached = progress
        self._speed.note(progress.counts.out)
        self._show(_step(progress, self._speed, self._ordered))
        self.watch.note(progress.counts)

    def should_stop(self) -> bool:
        """Whether Ctrl-C was pressed, or no worker has answered for a minute."""
        return bool(self.watch.why_stop())


@contextlib.contextmanager
def in_foreground(
    session: Session, ordered: float | None = None, *, monotonic: Clock = time.monotonic
) -> Iterator[Foreground]:
    """Show the progress of an operation that the block runs. The first Ctrl-C pauses it after the current
    batch, the second one at once."""
    with (
        redrive_tuning(),
        shown_progress(session.cli, "Redriving") as show,
        stopping_on_interrupt() as is_interrupted,
    ):
        foreground = Foreground(session, show, is_interrupted, monotonic, ordered)
        try:
            yield foreground
        except (CeleryDLQError, KeyboardInterrupt):
            if foreground.reached is not None:
                _tell_cut_off(session, foreground.reached)
            raise


def finish(
    session: Session,
    operation: Operation,
    foreground: Foreground,
    *,
    wait_s: float | None = None,
    left_alone: bool = False,
    planned: int = 0,
) -> NoReturn:
    """Wait for the outcomes for up to ``wait_s`` seconds, or shortly for that of a single letter; summarize
    the operation, and end the command with its status.

    :param left_alone: whether letters that the command names were left alone.
    :param planned: how many letters the plan said would be sent.
    """
    if operation.state not in ENDED:
        foreground.watch.end_early(operation)
    patience_s = wait_s or (_ONE_S if _is_one(session, operation) else 0.0)
    if patience_s:
        operation = await_outcomes(session, operation, patience_s)
    gone = max(0, planned - operation.counts.planned)
    status = _status(operation, left_alone=left_alone or gone > 0, waited=bool(wait_s))
    write = session.done if status == DONE else session.error
    for line in _summary(session, operation, planned, gone):
        write(line)
    leave(status)


def _is_one(session: Session, operation: Operation) -> bool:
    """Whether a worker will soon run the only letter of ``operation``."""
    return operation.counts.planned == operation.counts.sent == 1 and not session.why_no_worker()


def _summary(session: Session, operation: Operation, planned: int, gone: int) -> Iterator[str]:
    if operation.counts.skipped or operation.counts.failed:
        yield from _troubles(session, operation)
    yield from summary(operation.counts)
    if gone:
        yield (
            f"The plan had {counted(planned, 'dead letter')}, but {gone:,} could no longer be taken when "
            "the redrive began: another redrive has claimed or sent them, or they were closed. "
            f"See their state: {session.command('list')}"
        )
    unsent = operation.counts.left - operation.counts.sending
    if unsent > 0 and operation.state is OperationState.DONE:
        yield (
            f"{counted(unsent, 'letter')} not sent, because another process took or closed them first."
        )
    elif unsent > 0 and operation.state in ENDED:
        yield f"{counted(unsent, 'letter')} not sent and left unchanged."
    if operation.state is not OperationState.DONE:
        redacted = for_app(session.queue.redactor.text(operation.cause))
        cause = f": {redacted}" if operation.cause else ""
        yield visible(f"Operation {operation.id} is {operation.state.value}{cause}")
    if operation.counts.succeeded < operation.counts.planned:
        yield f"Next: {next_step(operation, session.command)}"


def _status(operation: Operation, *, left_alone: bool, waited: bool) -> int:
    counts = operation.counts
    # Without waiting, the outcomes so far are a matter of chance.
    missing = counts.skipped or counts.left or (waited and counts.succeeded < counts.out)
    if operation.state is OperationState.DONE and counts.all_failed:
        return FAILED
    if operation.state is OperationState.DONE and not missing and not left_alone:
        return DONE
    return PARTLY if counts.out else FAILED


def _troubles(session: Session, operation: Operation) -> list[str]:
    found = session.store.sendings.of_operation(
        operation.id, states=frozenset(_TROUBLE), limit=_NAMED
    )
    lines = [visible(f"{_TROUBLE[one.state]}: {one.task_id}: {one.why}") for one in found.rows]
    if found.next:
        lines.append(f"… and more: {session.command('operations', 'show', operation.id)}")
    return lines


@contextlib.contextmanager
def redrive_tuning() -> Iterator[None]:
    """Let the threads of this process take turns more often, and collect garbage less often, until the end of
    the block. Not for a worker's process, because tasks run in it, too."""
    turn_s, (youngest, older, oldest) = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(min(TURN_S, turn_s))
    if youngest:  # 0: the process never collects
        gc.set_threshold(max(OBJECTS, youngest), older, oldest)
    try:
        yield
    finally:
        sys.setswitchinterval(turn_s)
        gc.set_threshold(youngest, older, oldest)


def _step(progress: Progress, speed: Speed, ordered: float | None) -> Step:
    counts = progress.counts
    outcomes = f"{counts.succeeded:,} succeeded, {counts.failed:,} failed again"
    pace = rate(speed.per_second) + (f" of {rate(ordered)} ordered" if ordered else "")
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
    """Report an operation that an error or the second Ctrl-C has stopped."""
    try:
        operation = session.operation(last.operation)
    except CeleryDLQError:
        # The store, which has the exact counts, does not answer; report the last progress instead.
        for sentence in summary(last.counts):
            session.error(sentence)
    else:
        _tell_unfinished(session, operation)


def _tell_unfinished(session: Session, operation: Operation) -> None:
    state = f"Operation {operation.id} is {operation.state.value}."
    following = f"Next: {next_step(operation, session.command)}"
    for sentence in (*summary(operation.counts), state, following):
        session.error(sentence)


def await_outcomes(
    session: Session,
    operation: Operation,
    seconds: float,
    *,
    sleep: Sleep = time.sleep,
    monotonic: Clock = time.monotonic,
) -> Operation:
    """Wait until every sent message has an outcome, for at most ``seconds``; Ctrl-C ends the command."""
    deadline = monotonic() + seconds
    with shown_progress(session.cli, "Waiting") as show, stopping_on_interrupt() as is_interrupted:
        watch = _Watch(session, is_interrupted, monotonic)
        while operation.counts.sent and monotonic() < deadline and not watch.why_stop():
            sleep(_LOOK_S)
            operation = session.store.operations.get(operation.id) or operation
            counts, text = operation.counts, outcome_text(operation.counts)
            show(Step(total=counts.out, done=counts.out - counts.sent, short=text, long=text))
            watch.note(counts)
        watch.end_early(operation)
    return operation


class _Watch:
    """Says that no worker is there, while messages that were sent have no outcomes; and when to stop."""

    def __init__(
        self, session: Session, is_interrupted: Callable[[], bool], monotonic: Clock
    ) -> None:
        self._session, self._is_interrupted = session, is_interrupted
        self._monotonic, self._look_at = monotonic, monotonic() + _ANSWER_S
        self._missing_since = math.inf

    def note(self, counts: Counts) -> None:
        """Note the counts as they are now."""
        if counts.sent and self._monotonic() >= self._look_at:
            with contextlib.suppress(StoreError):  # the redrive itself reports it
                why, self._look_at = self._session.why_no_worker(), self._monotonic() + _ANSWER_S
                if why and self._missing_since == math.inf:
                    self._missing_since = self._monotonic()
                    self._session.error(f"Still waiting: {why}.")
                elif not why:
                    self._missing_since = math.inf

    def why_stop(self) -> tuple[str, int] | None:
        """The reason to stop, and the exit status for it, if there is one."""
        if self._is_interrupted():
            return "Interrupted.", INTERRUPTED
        if self._monotonic() - self._missing_since >= _GIVE_UP_S:
            return f"No worker has answered for {_GIVE_UP_S:g} s.", NO_WORKER
        return None

    def end_early(self, operation: Operation) -> None:
        """End the command, if there is a reason to stop."""
        if stop := self.why_stop():
            why, status = stop
            self._session.error(why)
            _tell_unfinished(self._session, operation)
            leave(status)


def report_detached(
    session: Session, left: Operation, text: str, *, sleep: Sleep = time.sleep
) -> None:
    """Say that the operation ``left`` was left to a worker; and if none begins it soon, say what that needs,
    and end the command."""
    session.done(f"{text}. See: {session.command('operations', 'show', left.id)}")
    for _ in range(int(_ANSWER_S / _LOOK_S)):
        if left.state not in (OperationState.PLANNED, OperationState.RUNNING):
            return
        if session.store.leases.to_do(left.lease_name).lease_free_in_s:
            return
        sleep(_LOOK_S)
        left = session.store.operations.get(left.id) or left
    why = session.why_no_worker() or (
        "the workers on this broker are busy with another one, do not have its tasks, or run another app"
    )
    session.error(f"Operation {left.id} has not begun: {why}.")
    leave(NO_WORKER)
