"""The loop of a redrive. While one batch is published, the next one is claimed and the last one is marked.

It ends when all letters are sent. The outcome of each is written by the worker that runs its message
(``celery_dlq/store/redrive/endings.py``).
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from celery.utils.log import get_logger

from celery_dlq.errors import FunctionHangs, RedriveError, StoreError
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.operation import Counts
from celery_dlq.redrive.broker.message import Sent
from celery_dlq.redrive.broker.publisher import open_publisher
from celery_dlq.redrive.broker.queues import open_depths
from celery_dlq.redrive.broker.trace import Tracing
from celery_dlq.redrive.context import RedriveContext
from celery_dlq.redrive.ledger import BatchResult, Ledger, NextStep
from celery_dlq.redrive.letter.chords import reopen_chords
from celery_dlq.redrive.letter.repair import Prepared, preparation_of
from celery_dlq.redrive.pacing import STEP_S
from celery_dlq.store.base import Operation

logger: logging.Logger = get_logger(__name__)

#: The most letters of one claim, if the orders name no number. The first steps are smaller, and so are all
#: steps that would take more than a quarter of the claim's lease.
BATCH = 2_000
#: Seconds for which a redrive holds a letter. After that, the redrive counts as dead, and the letter is free
#: again. It is well above the time that a redrive waits for the broker's next confirmation.
CLAIM_LEASE_S = 120.0
#: Seconds after which the rest of a batch is given back. Functions of the user may be slow, and the claim
#: must not expire before its letters are sent.
PREPARE_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of a running redrive."""

    #: Its id.
    operation: str
    counts: Counts
    #: The reason why it waits, for people; empty while it sends.
    waits_for: str = ""


#: Called after every step with the progress of the redrive.
OnProgress = Callable[[Progress], object]


@dataclass(frozen=True)
class RunResult:
    """How a run of an operation ended."""

    operation: Operation
    #: The error that ended it early.
    error: str | None = None
    #: Whether the next run in this process would fail with it, too.
    is_permanent_error: bool = False


def run_operation(
    context: RedriveContext,
    operation: Operation,
    *,
    on_progress: OnProgress,
    should_stop: Callable[[], bool],
) -> RunResult:
    """Send the remaining letters of ``operation``, which is running. This process has its lease. If
    the process is killed between any two steps, nothing is lost: a letter is claimed under a lease before it
    is published, and marked only after the broker has confirmed it.

    :raises StoreError: the store failed; letters that were marked as sent before that stay so.
    :raises RepairError: the changes that were ordered cannot be made here.
    :raises ContentsSealed: letters are encrypted with a key that is not here.
    """
    context.store.claims.rescue(context.clock.now())
    context.store.claims.free(operation.id)
    context.store.claims.check_keys(operation.wanted)
    ledger = Ledger(
        context.store,
        operation,
        context.clock,
        batch=operation.orders.pacing.batch or BATCH,
        lease_s=CLAIM_LEASE_S,
        should_stop=should_stop,
    )
    if ledger.is_done:
        return RunResult(ledger.close())
    try:
        with contextlib.ExitStack() as stack:
            run = Run(context, ledger, on_progress, stack)
            run.send_all()
        return RunResult(ledger.close(), run.error, run.is_permanent_error)
    except RedriveError as error:
        return RunResult(ledger.close(), str(error), isinstance(error, FunctionHangs))


class Outgoing(NamedTuple):
    """A batch that was given to the broker, without the letters that cannot be sent."""

    #: The fates that are known before the broker answers.
    result: BatchResult
    prepared: Sequence[Prepared] = ()
    #: Waits for the broker's answer.
    answer: Callable[[], Sent] = Sent


class Run:
    """One run under way.

    :param stack: closes its connections and threads.
    """

    def __init__(
        self,
        context: RedriveContext,
        ledger: Ledger,
        on_progress: OnProgress,
        stack: contextlib.ExitStack,
    ) -> None:
        self._context, self._ledger, self._on_progress = context, ledger, on_progress
        app, claims, orders = context.app, context.store.claims, ledger.operation.orders
        self._preparation = preparation_of(context, orders, ledger.operation.id)
        stack.enter_context(claims.while_redriving())
        self._publisher = stack.enter_context(open_publisher(app))
        self._depths = stack.enter_context(open_depths(app, orders.pacing.max_queue_depth))
        self._tracing = Tracing(app, context.settings, ledger.operation.id, context.clock.now)
        #: Claims letters while this thread publishes.
        self._claiming = stack.enter_context(ThreadPoolExecutor(claims.at_once, "dlq-claim"))
        #: A single thread, so that marks are made one after the other.
        self._marking = stack.enter_context(ThreadPoolExecutor(1, "dlq-mark"))
        # A batch is published while the broker still stores the previous one, unless it may take long: the
        # claim of the previous one might expire.
        self._overlaps = self._publisher.confirms_later and not self._depths.are_limited
        self._ahead: deque[Future[NextStep]] = deque()
        self._outgoing: Outgoing | None = None
        self._marked: Future[None] | None = None
        #: The error that ends the run, and whether the next run in this process would fail with it, too.
        self.error: str | None = None
        self.is_permanent_error: bool = False
        #: The first failure of the store while the run was ended.
        self._failure: StoreError | None = None

    def send_all(self) -> None:
        """Send until nothing is left, the operation is stopped, or an error ends the run.

        :raises StoreError: the store failed.
        """
        try:
            while self.error is None and not (step := self._next()).is_end:
                if step.letters:
                    self._send(step)
                else:
                    self._wait(step)
        finally:
            self._give_back()
        if self._failure is not None:
            raise self._failure

    def _next(self) -> NextStep:
        if self._marked is not None and self._marked.done():
            # If a mark fails, its letters count as in hand, and the run would wait for them for ever.
            self._await_mark()
        if not self._ahead:
            self._claim_ahead(1)
        step = self._ahead.popleft().result()
        while self._ahead and not step.letters:
            step = self._ahead.popleft().result()  # the other claim may have taken all the letters
        if step.letters and self._ledger.is_stopped:
            # Stopped since the claim, which is made one batch ahead.
            self._free(step)
            return NextStep(is_end=True)
        if step.letters and self._ledger.is_late(step):
            # The previous batch took long. A new claim has its whole lease.
            self._free(step)
            return NextStep()
        return step

    def _send(self, step: NextStep) -> None:
        """Publish a batch while the next one is claimed and the last one is marked."""
        if not self._depths.are_limited:
            self._claim_ahead(self._context.store.claims.at_once if self._ledger.has_much else 1)
        before, self._outgoing = self._outgoing, self._publish(step)
        if before is not None:
            self._confirm(before)
        if not self._overlaps:
            self._finish()
        self._report()
        self._wait_for_queues()

    def _publish(self, step: NextStep) -> Outgoing:
        """Hand the letters of a claim to the broker, without waiting for its answer."""
        result = BatchResult(token=step.token)
        try:
            ready = self._prepared(step.letters, result)
            self._reopen_chords(ready)
        except RedriveError as error:
            self.error, self.is_permanent_error = str(error), isinstance(error, FunctionHangs)
            result.unsent = [one for one in ids_of(step.letters) if one not in result.skipped]
            return Outgoing(result)
        if not ready:
            return Outgoing(result)
        answer = self._tracing.publish(self._publisher, [one.letter for one in ready])
        return Outgoing(result, ready, answer)

    def _prepared(self, letters: Sequence[DeadLetter], result: BatchResult) -> list[Prepared]:
        """The letters that may be sent and fit into their queues. ``result`` gets the fates of the others."""
        clock, ready = self._context.clock, list[Prepared]()
        now, until = clock.now(), clock.monotonic() + PREPARE_S
        if (approved := self._preparation.approved) is not None:
            # Claimed letters can no longer be edited, so they are sent as they are now.
            result.skipped = self._context.store.requests.changed(approved, ids_of(letters))
            letters = [one for one in letters if one.task_id not in result.skipped]
        for place, letter in enumerate(letters):
            if place and clock.monotonic() >= until:
                result.unsent = ids_of(letters[place:])
                break
            one = self._preparation.prepare(letter, now)
            if one.why_not is None:
                ready.append(one)
            else:
                result.skipped[letter.task_id] = one.why_not
        _, rest = self._depths.part([one.letter for one in ready])
        without_room = ids_of(rest)
        result.unsent += without_room
        return [one for one in ready if one.letter.task_id not in without_room]

    def _reopen_chords(self, ready: Sequence[Prepared]) -> None:
        try:
            reopen_chords(self._context.app, [member for one in ready for member in one.members])
        except Exception as error:
            logger.exception("result backend failed while chords were reopened")
            raise RedriveError(
                f"the result backend does not answer ({type(error).__name__}: {error})"
            ) from error

    def _wait(self, step: NextStep) -> None:
        self._finish()
        self._await_mark()  # letters may come back unsent
        self._report(step.waits_for)
        if step.wait_s:
            self._context.clock.sleep(min(step.wait_s, STEP_S))

    def _claim_ahead(self, most: int) -> None:
        while len(self._ahead) < most:
            self._ahead.append(self._claiming.submit(self._ledger.take))

    def _finish(self) -> None:
        if self._outgoing is not None:
            outgoing, self._outgoing = self._outgoing, None
            self._confirm(outgoing)

    def _confirm(self, outgoing: Outgoing) -> None:
        """Mark a batch that was published, once the broker has confirmed it."""
        result, sent = outgoing.result, outgoing.answer()
        changes = {one.letter.task_id: one.change for one in outgoing.prepared}
        result.sent = {task_id: changes[task_id] for task_id in sent.confirmed}
        tasks = {one.letter.task for one in outgoing.prepared}
        silent = {task for task in tasks if not self._context.reports(task)}
        result.silent = {
            one.letter.task_id for one in outgoing.prepared if one.letter.task in silent
        }
        result.skipped |= sent.refused
        result.unsent += sent.unsent
        if sent.uncertain or sent.error:
            # If two batches fail, the first error is reported.
            self.error = self.error or sent.error or "the broker did not confirm in time"
        self._mark(result)

    def _mark(self, result: BatchResult) -> None:
        # This mark is made even if the previous one has failed.
        before, self._marked = self._marked, self._marking.submit(self._ledger.mark, result)
        if before is not None:
            before.result()

    def _await_mark(self) -> None:
        if self._marked is not None:
            marked, self._marked = self._marked, None
            marked.result()

    def _free(self, step: NextStep) -> None:
        if step.letters:
            self._mark(BatchResult(token=step.token, unsent=ids_of(step.letters)))

    def _give_back(self) -> None:
        """Mark what was published, and free letters that were claimed ahead. If one step fails, the others
        are still done."""
        self._try(self._await_mark)
        self._try(self._finish)
        while self._ahead:
            self._try(self._await_mark)
            with contextlib.suppress(StoreError):  # nothing was claimed, or the lease will end
                self._free(self._ahead.popleft().result())
        self._try(self._await_mark)

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except StoreError as error:
            self._failure = self._failure or error

    def _wait_for_queues(self) -> None:
        while self.error is None and (full := self._full_queues()):
            if not self._claiming.submit(self._ledger.may_continue).result():
                return
            self._report(f"room in {', '.join(full)}")
            self._context.clock.sleep(STEP_S)

    def _full_queues(self) -> list[str]:
        try:
            return self._depths.full()
        except RedriveError as error:
            self.error = str(error)
            return []

    def _report(self, waits_for: str = "") -> None:
        ledger = self._ledger
        self._on_progress(
            Progress(operation=ledger.operation.id, counts=ledger.counts, waits_for=waits_for)
        )


def ids_of(letters: Sequence[DeadLetter]) -> list[str]:
    """The task ids of ``letters``."""
    return [letter.task_id for letter in letters]
