"""The loop of a redrive: claim, check, repair, reopen chords, pace, publish, confirm, mark."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from celery.utils.log import get_logger

from celery_dlq.errors import RedriveError, SandboxError, StoreError
from celery_dlq.letter import DeadLetter
from celery_dlq.operation import Orders
from celery_dlq.redrive.canvas import reopen_chords
from celery_dlq.redrive.checks import Checks, open_checks
from celery_dlq.redrive.depth import Depths, open_depths
from celery_dlq.redrive.ledger import Ledger, Settled, Taken
from celery_dlq.redrive.means import Means
from celery_dlq.redrive.pace import STEP_S
from celery_dlq.redrive.plan import Progress
from celery_dlq.redrive.publish import Publisher, open_publisher
from celery_dlq.redrive.repair import Repairs
from celery_dlq.redrive.sent import Sent
from celery_dlq.redrive.tuned import tuned
from celery_dlq.store.base import Operation

logger = get_logger(__name__)

#: Called after every step with where the redrive stands.
OnProgress = Callable[[Progress], object]


@dataclass(frozen=True)
class Run:
    """How a run of an operation ended: where it stands, and what kept it from going on."""

    operation: Operation
    error: str | None = None
    #: Whether it would keep the next run in this process from going on, too.
    lasts: bool = False


@dataclass(frozen=True, kw_only=True)
class _Sending:
    """A batch that is handed over to the broker, as far as its letters can be sent."""

    settled: Settled
    letters: Sequence[DeadLetter] = ()
    #: What was changed in them.
    changes: Mapping[str, str] = field(default_factory=dict)
    #: Waits for what the broker says.
    outcome: Callable[[], Sent] = Sent


@dataclass(kw_only=True)
class _Way:
    """One run under way."""

    ledger: Ledger
    repairs: Repairs
    checks: Checks
    publisher: Publisher
    depths: Depths
    on_progress: OnProgress
    #: Claims, and marks, while this thread publishes.
    beside: ThreadPoolExecutor
    marking: ThreadPoolExecutor
    #: Whether a batch is written while the broker still stores the one before.
    overlaps: bool
    #: What comes next, what the broker has not confirmed, and whether the last batch is marked.
    ahead: deque[Future[Taken]] = field(default_factory=deque)
    sending: _Sending | None = None
    marked: Future[None] | None = None
    #: What keeps it from going on; and of the store, what came while the rest was given back.
    error: str | None = None
    lasts: bool = False
    failed: StoreError | None = None


class Redrive:
    """Sends what is left of an operation. Killed between any two steps, it loses nothing: a letter is
    claimed under a lease before it is published, and marked only after the broker confirmed it."""

    def __init__(self, means: Means) -> None:
        self._app, self._store, self._settings = means.app, means.store, means.settings
        self._redactor, self._reports, self._clock = means.redactor, means.reports, means.clock

    def run(
        self,
        operation: Operation,
        *,
        on_progress: OnProgress = lambda _progress: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Run:
        """Send for ``operation``, which is running and nobody else's, until nothing is left, or it is
        stopped.

        :raises StoreError: the store failed; what was sent until then stays sent and marked.
        :raises RepairError: what is to be changed in the messages cannot be changed here.
        """
        self._store.rescue(self._clock.now())
        self._store.free_claims(operation.id)
        ledger = self._ledger(operation, should_stop)
        if ledger.is_done:
            return Run(ledger.close())
        try:
            with self._opened(ledger, on_progress) as way:
                self._send_all(way)
            return Run(ledger.close(), way.error, way.lasts)
        except RedriveError as error:
            return Run(ledger.close(), str(error), isinstance(error, SandboxError))

    def _batch(self, orders: Orders) -> int:
        most = orders.pacing.batch or self._settings.redrive_batch_size
        if not orders.checking.validate:
            return most
        # Its claim must not end while they are tried one after the other.
        longest_s = orders.checking.validate_timeout_s
        return max(1, min(most, int(self._settings.claim_lease / 2 / longest_s)))

    def _ledger(self, operation: Operation, should_stop: Callable[[], bool]) -> Ledger:
        return Ledger(
            self._store,
            operation,
            batch=self._batch(operation.orders),
            lease_s=self._settings.claim_lease,
            now=self._clock.now,
            monotonic=self._clock.monotonic,
            should_stop=should_stop,
        )

    @contextlib.contextmanager
    def _opened(self, ledger: Ledger, on_progress: OnProgress) -> Iterator[_Way]:
        orders = ledger.operation.orders
        repairs = Repairs(self._app, orders.repair, self._redactor)
        with (
            tuned(),
            open_publisher(self._app) as publisher,
            open_depths(self._app, orders.pacing.max_queue_depth) as depths,
            open_checks(self._app, orders) as checks,
            ThreadPoolExecutor(
                self._store.claims_at_once, thread_name_prefix="dlq-claim"
            ) as beside,
            ThreadPoolExecutor(max_workers=1, thread_name_prefix="dlq-mark") as marking,
        ):
            yield _Way(
                ledger=ledger, repairs=repairs, checks=checks, publisher=publisher,
                depths=depths, on_progress=on_progress, beside=beside, marking=marking,
                # Not where the one before would have to wait, and its claim might end.
                overlaps=publisher.confirms_later
                and not (depths.are_limited or orders.checking.validate),
            )  # fmt: skip

    def _send_all(self, way: _Way) -> None:
        try:
            while way.error is None and not (taken := self._next(way)).is_over:
                self._step(way, taken)
        finally:
            self._give_back(way)
        if way.failed is not None:
            raise way.failed

    def _next(self, way: _Way) -> Taken:
        if way.marked is not None and way.marked.done():
            # What is not marked counts as in hand, and would be waited for without end.
            self._await_mark(way)
        if not way.ahead:
            self._claim_ahead(way, 1)
        taken = way.ahead.popleft().result()
        while way.ahead and not taken.letters:
            taken = way.ahead.popleft().result()  # of two at once, one may have taken all there was
        if taken.letters and way.ledger.is_stopped:
            # Since it was claimed: claiming is a batch ahead of sending.
            self._free(way, taken)
            return Taken(is_over=True)
        if taken.letters and way.ledger.is_late(taken):
            # The batch before has taken so long. What is claimed anew has all of its time.
            self._free(way, taken)
            return Taken()
        return taken

    def _step(self, way: _Way, taken: Taken) -> None:
        """Send a batch, while the next one is claimed and the last one marked; or wait."""
        if not taken.letters:
            self._finish(way)
            self._await_mark(way)  # it may leave something to be taken
            self._tell(way, taken.waits_for)
            if taken.wait_s:
                self._clock.sleep(min(taken.wait_s, STEP_S))
            return
        if not way.depths.are_limited:
            self._claim_ahead(way, self._store.claims_at_once if way.ledger.has_much else 1)
        before, way.sending = way.sending, self._deliver(way, taken)
        if before is not None:
            self._mark(way, self._settled(way, before))
        if not way.overlaps:
            self._finish(way)
        self._tell(way)
        self._wait_for_queues(way)

    def _claim_ahead(self, way: _Way, most: int) -> None:
        while len(way.ahead) < most:
            way.ahead.append(way.beside.submit(way.ledger.take))

    def _await_mark(self, way: _Way) -> None:
        if way.marked is not None:
            marked, way.marked = way.marked, None
            marked.result()

    def _mark(self, way: _Way, settled: Settled) -> None:
        # Also when the one before has failed; they are made one after the other.
        before, way.marked = way.marked, way.marking.submit(way.ledger.settle, settled)
        if before is not None:
            before.result()

    def _finish(self, way: _Way) -> None:
        """Mark what is written, once the broker has confirmed it."""
        if way.sending is not None:
            sending, way.sending = way.sending, None
            self._mark(way, self._settled(way, sending))

    def _give_back(self, way: _Way) -> None:
        """Mark what is written, and free what was claimed ahead and is not sent any more; each also when
        another could not be."""
        self._tried(way, self._await_mark)
        self._tried(way, self._finish)
        while way.ahead:
            self._tried(way, self._await_mark)
            with contextlib.suppress(StoreError):  # nothing is claimed, or the lease ends by itself
                self._free(way, way.ahead.popleft().result())
        self._tried(way, self._await_mark)

    def _tried(self, way: _Way, step: Callable[[_Way], None]) -> None:
        try:
            step(way)
        except StoreError as error:
            way.failed = way.failed or error

    def _free(self, way: _Way, taken: Taken) -> None:
        if taken.letters:
            self._mark(way, Settled(token=taken.token, unsent=_ids(taken.letters)))

    def _wait_for_queues(self, way: _Way) -> None:
        while way.error is None and (full := self._full_queues(way)):
            if not way.beside.submit(way.ledger.goes_on).result():
                return
            self._tell(way, f"room in {', '.join(full)}")
            self._clock.sleep(STEP_S)

    def _full_queues(self, way: _Way) -> list[str]:
        try:
            return way.depths.full()
        except RedriveError as error:
            way.error = str(error)
            return []

    def _deliver(self, way: _Way, taken: Taken) -> _Sending:
        settled = Settled(token=taken.token)
        try:
            ready, changes = self._prepare(way, taken.letters, settled)
        except RedriveError as error:
            way.error, way.lasts = str(error), isinstance(error, SandboxError)
            return _Sending(settled=Settled(token=taken.token, unsent=_ids(taken.letters)))
        if not ready or not self._reopen_chords(way, ready, settled):
            return _Sending(settled=settled)
        return _Sending(
            settled=settled, letters=ready, changes=changes, outcome=way.publisher.begin(ready)
        )

    def _prepare(
        self, way: _Way, letters: Sequence[DeadLetter], settled: Settled
    ) -> tuple[list[DeadLetter], dict[str, str]]:
        """The letters as they are to be sent, as far as their queues take them; and what was changed in
        any."""
        now, ready, changes = self._clock.now(), list[DeadLetter](), dict[str, str]()
        for original in letters:
            letter, change, why = way.repairs.repaired(original, now)
            why = why or way.checks.why_not(letter, now)
            if why is not None:
                settled.skipped[letter.task_id] = why
                continue
            ready.append(letter)
            if change:
                changes[letter.task_id] = change
        fit, rest = way.depths.part(ready)
        settled.unsent = _ids(rest)
        return fit, changes

    def _reopen_chords(self, way: _Way, letters: Sequence[DeadLetter], settled: Settled) -> bool:
        try:
            reopen_chords(self._app, letters)
        except Exception as error:
            logger.exception("result backend failed while chords were reopened")
            settled.unsent += _ids(letters)
            way.error = f"the result backend does not answer ({type(error).__name__}: {error})"
            return False
        return True

    def _settled(self, way: _Way, sending: _Sending) -> Settled:
        settled, letters, sent = sending.settled, sending.letters, sending.outcome()
        changes = sending.changes
        settled.sent = {task_id: changes.get(task_id, "") for task_id in sent.confirmed}
        quiet = {task for task in {letter.task for letter in letters} if not self._reports(task)}
        settled.silent = {letter.task_id for letter in letters if letter.task in quiet}
        settled.skipped |= sent.refused
        settled.unsent += sent.unsent
        if sent.uncertain or sent.error:
            # Of two batches that fail, the first one says why.
            way.error = way.error or sent.error or "the broker did not confirm in time"
        return settled

    def _tell(self, way: _Way, waits_for: str = "") -> None:
        ledger = way.ledger
        way.on_progress(
            Progress(operation=ledger.operation.id, counts=ledger.counts, waits_for=waits_for)
        )


def _ids(letters: Sequence[DeadLetter]) -> list[str]:
    return [letter.task_id for letter in letters]
