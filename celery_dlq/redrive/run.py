"""The loop of a redrive. While one batch is published, the next one is claimed and the last one is marked.

It ends when all letters are sent. The outcome of each is written by the worker that runs its message
(``celery_dlq/store/redrive/endings.py``).
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from celery_dlq.errors import RedriveError, SandboxError, StoreError
from celery_dlq.model.operation import Orders
from celery_dlq.redrive.checks import open_checks
from celery_dlq.redrive.context import RedriveContext
from celery_dlq.redrive.delivery import Delivery, Outgoing, ids_of
from celery_dlq.redrive.ledger import BatchResult, Ledger, NextStep
from celery_dlq.redrive.pacing import STEP_S
from celery_dlq.redrive.plan import Progress
from celery_dlq.redrive.publisher import open_publisher
from celery_dlq.redrive.queues import open_depths
from celery_dlq.redrive.repair import Repairs
from celery_dlq.redrive.trace import Tracing
from celery_dlq.store.base import Operation

#: The most letters of one claim, if the orders name no number. The first steps are smaller, and so are all
#: steps that would take more than a quarter of the claim's lease.
BATCH = 2_000
#: Seconds for which a redrive holds a letter. After that, the redrive counts as dead, and the letter is free
#: again. It is well above the time that a redrive waits for the broker's next confirmation.
CLAIM_LEASE_S = 120.0

#: Called after every step with the progress of the redrive.
OnProgress = Callable[[Progress], object]


@dataclass(frozen=True)
class RunResult:
    """How a run of an operation ended."""

    operation: Operation
    #: The error that ended it early.
    error: str | None = None
    #: Whether the next run in this process would fail with it, too.
    lasts: bool = False


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
    """
    context.store.claims.rescue(context.clock.now())
    context.store.claims.free(operation.id)
    ledger = Ledger(
        context.store,
        operation,
        context.clock,
        batch=_batch_size(operation.orders),
        lease_s=CLAIM_LEASE_S,
        should_stop=should_stop,
    )
    if ledger.is_done:
        return RunResult(ledger.close())
    try:
        with _opened(context, ledger, on_progress) as run:
            run.send_all()
        return RunResult(ledger.close(), run.error, run.lasts)
    except RedriveError as error:
        return RunResult(ledger.close(), str(error), isinstance(error, SandboxError))


def _batch_size(orders: Orders) -> int:
    most = orders.pacing.batch or BATCH
    if not orders.checking.validate:
        return most
    # The claim must not expire while its letters are validated one after the other.
    longest_s = orders.checking.validate_timeout_s
    return max(1, min(most, int(CLAIM_LEASE_S / 2 / longest_s)))


@contextlib.contextmanager
def _opened(context: RedriveContext, ledger: Ledger, on_progress: OnProgress) -> Iterator[Run]:
    """A run with its connections, processes and threads, which end with it."""
    app, store, orders = context.app, context.store, ledger.operation.orders
    repairs = Repairs(app, orders.repair, context.redactor)
    with (
        store.claims.while_redriving(),
        open_publisher(app) as publisher,
        open_depths(app, orders.pacing.max_queue_depth) as depths,
        open_checks(app, orders) as checks,
        ThreadPoolExecutor(store.claims.at_once, thread_name_prefix="dlq-claim") as claiming,
        ThreadPoolExecutor(max_workers=1, thread_name_prefix="dlq-mark") as marking,
    ):
        delivery = Delivery(
            context=context, repairs=repairs, checks=checks, publisher=publisher, depths=depths,
            tracing=Tracing.of(app, context.settings, ledger.operation.id, context.clock.now),
        )  # fmt: skip
        # Batches do not overlap if one may take long, because the claim of the previous batch might expire.
        is_quick = not (depths.are_limited or orders.checking.validate)
        yield Run(
            ledger, delivery, on_progress, claiming=claiming, marking=marking,
            overlaps=publisher.confirms_later and is_quick,
        )  # fmt: skip


class Run:
    """One run under way.

    :param claiming: claims letters while this thread publishes.
    :param marking: a single thread, so that marks are made one after the other.
    :param overlaps: whether a batch is published while the broker still stores the previous one.
    """

    def __init__(
        self,
        ledger: Ledger,
        delivery: Delivery,
        on_progress: OnProgress,
        *,
        claiming: ThreadPoolExecutor,
        marking: ThreadPoolExecutor,
        overlaps: bool,
    ) -> None:
        self._ledger, self._delivery, self._on_progress = ledger, delivery, on_progress
        self._store, self._sleep = delivery.context.store, delivery.context.clock.sleep
        self._claiming, self._marking, self._overlaps = claiming, marking, overlaps
        self._ahead: deque[Future[NextStep]] = deque()
        self._outgoing: Outgoing | None = None
        self._marked: Future[None] | None = None
        #: The error that ends the run, and whether the next run in this process would fail with it, too.
        self.error: str | None = None
        self.lasts = False
        #: The first failure of the store while the run was ended.
        self._failure: StoreError | None = None

    def send_all(self) -> None:
        """Send until nothing is left, the operation is stopped, or an error ends the run.

        :raises StoreError: the store failed.
        """
        try:
            while self.error is None and not (step := self._next()).is_over:
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
            return NextStep(is_over=True)
        if step.letters and self._ledger.is_late(step):
            # The previous batch took long. A new claim has its whole lease.
            self._free(step)
            return NextStep()
        return step

    def _send(self, step: NextStep) -> None:
        """Publish a batch while the next one is claimed and the last one is marked."""
        if not self._delivery.depths.are_limited:
            self._claim_ahead(self._store.claims.at_once if self._ledger.has_much else 1)
        before, self._outgoing = self._outgoing, self._delivery.begin(step.token, step.letters)
        if self._outgoing.error is not None:
            self.error, self.lasts = self._outgoing.error, self._outgoing.lasts
        if before is not None:
            self._confirm(before)
        if not self._overlaps:
            self._finish()
        self._report()
        self._wait_for_queues()

    def _wait(self, step: NextStep) -> None:
        self._finish()
        self._await_mark()  # letters may come back unsent
        self._report(step.waits_for)
        if step.wait_s:
            self._sleep(min(step.wait_s, STEP_S))

    def _claim_ahead(self, most: int) -> None:
        while len(self._ahead) < most:
            self._ahead.append(self._claiming.submit(self._ledger.take))

    def _finish(self) -> None:
        """Mark the batch that was published, once the broker has confirmed it."""
        if self._outgoing is not None:
            outgoing, self._outgoing = self._outgoing, None
            self._confirm(outgoing)

    def _confirm(self, outgoing: Outgoing) -> None:
        result = self._delivery.finish(outgoing)
        # If two batches fail, the first error is reported.
        self.error = self.error or outgoing.error
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
            self._sleep(STEP_S)

    def _full_queues(self) -> list[str]:
        try:
            return self._delivery.depths.full()
        except RedriveError as error:
            self.error = str(error)
            return []

    def _report(self, waits_for: str = "") -> None:
        ledger = self._ledger
        self._on_progress(
            Progress(operation=ledger.operation.id, counts=ledger.counts, waits_for=waits_for)
        )
