"""Counts the deliveries of a message that did not end, and stops the message when there are too many.

The store keeps the count, because the worker that knew it may be dead. A message is counted when it comes
back, or when its process dies while the worker survives. A first delivery that ends in any other way costs
nothing.

A message is poison if two conditions hold. First, it was delivered ``dlq_max_deliveries`` times and started,
and none of these runs came to an end; a first delivery without a record counts as one of them. Second, one of
these runs was its *own* death: the worker saw its process die, or the whole worker died while nothing else
ran in it (:mod:`celery_dlq.worker.admission.isolation`). So a message that merely ran at the same time as a
killer is never condemned, however often the worker dies: before its last run it has to wait until it is
alone, and then its run ends.

Deliveries are counted in batches, one transaction for all that are asked about at the same time. While
messages run one after the other, the next few are counted before they have a slot of the pool; see
:data:`AHEAD`.

There are two upper bounds. First, a message that was started three times as often without an end is condemned
without that proof, because on a worker whose other tasks never end, no message is ever alone. Second, if the
store does not answer, the same bound applies to the broker's own count, if the broker keeps one; in addition,
each worker counts the deaths that it sees.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from celery.utils.log import get_logger

from celery_dlq.base import process
from celery_dlq.model.worker import Delivery
from celery_dlq.worker.admission.isolation import IsolatedRun
from celery_dlq.worker.end.request import DLQRequest
from celery_dlq.worker.message import brokers_count, is_dropped_next
from celery_dlq.worker.writing.loop_callbacks import LoopCallbacks

if TYPE_CHECKING:
    from celery_dlq.store import Store

logger: logging.Logger = get_logger(__name__)

#: Deliveries are counted by task id, task, redrive and attempt.
_Key = tuple[str, str, int, int]

#: A message is condemned at this multiple of the limit, whatever else ran.
HOPELESS = 3
#: A message that its own code gives back is condemned at this multiple of the limit.
GIVEN_BACK = 30
#: How long a delivery without an end counts. If a message waits longer than this in its queue, its count
#: starts again.
MEMORY = timedelta(days=7)
#: A worker remembers the deaths of this many messages while the store is away.
UNWRITTEN = 1_000
#: How often a worker deletes older deliveries.
PRUNE_EVERY = timedelta(hours=1)
#: The most messages that are counted together with one before them, and the time within which as many others
#: must have got a slot of the pool.
AHEAD, SOON = 16, timedelta(seconds=0.1)


class Fate(Enum):
    """Whether a message that came back may run."""

    RUN = "run"
    #: Only while nothing else runs in its worker.
    RUN_ALONE = "run alone"
    POISON = "poison"


def next_number(earlier: Sequence[Delivery], missing: int = 1) -> int:
    """The number of the delivery that follows ``earlier``. The first delivery is missing there, unless its
    worker saw its process die."""
    return max((item.number for item in earlier), default=missing) + 1


def fate_after(earlier: Sequence[Delivery], limit: int) -> Fate:
    """Whether a message whose ``earlier`` deliveries did not end may run."""
    number = next_number(earlier)
    guilty = any(item.is_to_blame for item in earlier)
    if number > HOPELESS * limit or (guilty and number > limit):
        return Fate.POISON
    return Fate.RUN if guilty or number < limit else Fate.RUN_ALONE


@dataclass(frozen=True)
class Begun:
    """The store's answer when a delivery was about to start."""

    fate: Fate
    earlier: tuple[Delivery, ...]
    #: The delivery as it was stored; None if it may not start now.
    started: Delivery | None = None


def begin(
    wanted: Delivery,
    known: Sequence[Delivery],
    *,
    limit: int,
    patient: bool = True,
    ahead: bool = False,
) -> Begun:
    """Whether ``wanted`` may start, of whose message the deliveries are among ``known``.

    :param patient: whether the delivery waits if it has to be alone; if not, it runs at the same time as
        others.
    :param ahead: whether it has no slot of the pool yet. If its worker dies first, it is counted although it
        did not run; so it starts only if none is known.
    """
    earlier = _unended(known, wanted)
    fate = fate_after(earlier, limit)
    must_wait = (fate is Fate.RUN_ALONE and patient) or (earlier and ahead)
    if fate is Fate.POISON or must_wait:
        return Begun(fate, earlier)
    return Begun(Fate.RUN, earlier, replace(wanted, number=next_number(earlier)))


def note_deaths(store: Store, deaths: Sequence[Delivery]) -> tuple[Delivery, ...]:
    """Store ``deaths`` of one message, oldest first; returns all its deliveries that did not end, the last
    of ``deaths`` last. Of runs that gave the message back, only the last one is kept, with their number."""
    known: tuple[Delivery, ...] = ()
    for died in deaths:
        found = _unended(store.deliveries.find(died.task_id, died.task), died)
        others = [item for item in found if item.started_at != died.started_at]
        known = (*others, _numbered(died, others))
        store.deliveries.put(known[-1])
        if died.is_given_back:
            store.deliveries.forget(others)
            known = known[-1:]
    return known


def _key(item: Delivery) -> _Key:
    return item.task_id, item.task, item.redrive, item.attempt


def _numbered(died: Delivery, others: Sequence[Delivery]) -> Delivery:
    alike = [item for item in others if item.is_given_back == died.is_given_back]
    if died.is_given_back:
        return replace(died, number=next_number(alike, missing=0))
    # Most of kombu's transports do not mark a message that comes back: each delivery looks like the first.
    number = max(died.number, len(alike) + 1) if died.number else next_number(alike)
    return replace(died, number=number)


def _unended(known: Sequence[Delivery], one: Delivery) -> tuple[Delivery, ...]:
    """The deliveries among ``known`` of the message of ``one`` that did not end; if ``one`` gave the message
    back, the deliveries that gave it back. A delivery that is still running does not count: if a message
    takes longer than the visibility timeout, Redis delivers it again."""
    return tuple(
        item
        for item in known
        if _key(item) == _key(one)
        and item.is_given_back == one.is_given_back
        and (item.death or not process.lives(item.process))
    )


class Deliveries:
    """Asks the store before a message that came back is run, and stores the deaths that this worker sees.

    :param limit: ``dlq_max_deliveries``.
    :param isolation: lets a message be alone before its last run.
    :param takes_back: whether the broker delivers a message again that is given back to it.
    """

    def __init__(
        self,
        desk: LoopCallbacks,
        limit: int,
        *,
        isolation: IsolatedRun,
        takes_back: bool = True,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._desk, self._limit, self._now = desk, limit, now
        self._takes_back = takes_back
        self._isolation = isolation
        self._process = process.identity()
        #: The number of lost connections. Messages that came before the last one must not run.
        self._connection = 0
        #: Requests whose deliveries were counted, and that were not seen to die. Some have ended since. They
        #: do no harm here, because the store has forgotten them.
        self._started: WeakKeyDictionary[DLQRequest, Delivery] = WeakKeyDictionary()
        #: Requests that are being counted ahead, and whether they have got a slot of the pool since.
        self._ahead: dict[DLQRequest, bool] = {}
        #: When the last requests got a slot.
        self._admitted: deque[datetime] = deque(maxlen=AHEAD)
        #: Deaths that could not be stored yet, by message; the oldest first.
        self._unwritten: dict[_Key, tuple[Delivery, ...]] = {}
        self._prune_at = datetime.min.replace(tzinfo=timezone.utc)

    def admit(self, suspect: DLQRequest) -> None:
        """Run ``suspect`` as soon as it may, or condemn it. Its message came back, and it has a slot of the
        pool."""
        try:
            if self._isolation.keeps_out(suspect):
                return
            if suspect in self._ahead:
                self._ahead[suspect] = True
            elif suspect in self._started:
                suspect.run_counted((self._started[suspect],))
            else:
                self._ask(suspect, alone=False, patient=True)
            self._count_ahead()
            self._admitted.append(self._now())
        except Exception:
            logger.exception("celery_dlq could not count a delivery of %s", suspect.id)
            suspect.run_counted(())

    def count_death(
        self,
        suspect: DLQRequest,
        died: Delivery,
        then: Callable[[tuple[Delivery, ...]], object],
    ) -> None:
        """Store that ``suspect`` died. ``then`` gets all deliveries of its message that did not end, this one
        last. If the store is away, ``then`` gets only the deliveries that this worker saw."""
        self._started.pop(suspect, None)
        key = _key(died)
        earlier = self._unwritten.pop(key, ())
        died = replace(died, process=self._process)

        def answered(known: tuple[Delivery, ...] | None) -> None:
            if known is None:
                known = self._unwritten[key] = (*earlier, _numbered(died, earlier))
                if len(self._unwritten) > UNWRITTEN:
                    self._unwritten.pop(next(iter(self._unwritten)))
            then(known)

        # A run that was not counted has no number yet; the store knows the runs before it.
        self._desk.ask(partial(note_deaths, deaths=(*earlier, died)), answered)

    def forget(self, known: Sequence[Delivery], then: Callable[[], object]) -> None:
        """Delete these runs, which ended without a death, from the count; call ``then`` once that is
        stored."""
        self._desk.ask(lambda store: store.deliveries.forget(known), lambda _: then())

    def give_slot_back(self) -> None:
        """Free the pool slot of a request that will not run now."""
        self._isolation.give_slot_back()

    def is_spent(self, known: Sequence[Delivery], message: Any) -> bool:
        """Whether a message whose process was just seen to die, or whose own code gives it back, must not be
        delivered again.

        :param known: its deliveries, the last one last.
        """
        if not self._takes_back:
            return True
        last = known[-1]
        most = GIVEN_BACK * self._limit if last.is_given_back else self._limit
        if last.number >= most or is_dropped_next(message):
            return True
        # The broker's count has deliveries that were never started, so it matters only if the store is away.
        was_away = not last.is_given_back and _key(last) in self._unwritten
        return was_away and self._is_hopeless(message)

    def _is_hopeless(self, message: Any) -> bool:
        return (brokers_count(message) or 0) > HOPELESS * self._limit

    def stop(self) -> None:
        """Called when the connection is lost, or the worker shuts down.

        Messages that wait go back to the broker. From now on runs are not counted: after a lost connection
        the broker delivers their messages elsewhere, and a shutdown may kill them when its time is up.
        """
        self._connection += 1
        self._ahead.clear()
        started, self._started = self._started, WeakKeyDictionary()
        if started:
            self.forget([*started.values()], lambda: None)

    def _ask(self, suspect: DLQRequest, *, alone: bool, patient: bool) -> None:
        self._isolation.expect(suspect)
        answered = partial(self._answered, suspect, self._connection)
        self._begin(suspect.as_delivery(self._process, alone=alone), answered, patient=patient)

    def _count_ahead(self) -> None:
        """Count the next requests, too, while they wait for a slot. They are so few that they run soon."""
        soon = sum(self._now() - at < SOON for at in self._admitted)
        for other in self._isolation.next_in_line(soon):
            is_counted = other in self._ahead or other in self._started
            if getattr(other, "_dlq_count", False) and not is_counted:
                self._ahead[other] = False
                answered = partial(self._is_ahead, other)
                self._begin(other.as_delivery(self._process), answered, ahead=True)

    def _is_ahead(self, suspect: DLQRequest, begun: Begun | None) -> None:
        has_slot = self._ahead.pop(suspect, None)
        if has_slot is None:  # the connection is lost
            self._uncount(begun)
        elif begun is not None and begun.started is not None:
            self._started[suspect] = begun.started
        if has_slot:
            self.admit(suspect)

    def _begin(self, wanted: Delivery, then: Callable[[Begun | None], object], **how: Any) -> None:
        decide = partial(begin, limit=self._limit, **how)
        self._desk.ask_together(self._begin_all, (wanted, decide), then)

    def _begin_all(self, store: Store, wanted: Sequence[Any]) -> Sequence[Begun]:
        if self._now() >= self._prune_at:
            self._prune_at = self._now() + PRUNE_EVERY
            store.deliveries.prune(self._now() - MEMORY)
        return store.deliveries.begin(wanted)

    def _uncount(self, begun: Begun | None) -> None:
        if begun is not None and begun.started is not None:
            self.forget([begun.started], lambda: None)

    def _answered(self, suspect: DLQRequest, connection: int, begun: Begun | None) -> None:
        try:
            if connection != self._connection:
                self._uncount(begun)
            elif begun is None and self._is_hopeless(suspect.message):
                self._condemn(suspect, ())
            elif begun is None:
                said = "%s came back, and the store does not say how often: it runs uncounted"
                logger.warning(said, suspect.id)
                suspect.run_counted(())
            elif begun.fate is Fate.POISON:
                self._condemn(suspect, begun.earlier)
            elif begun.started is None:
                self._isolation.arrived(suspect)
                self._isolation.enter(
                    suspect,
                    lambda alone: self._ask(suspect, alone=alone, patient=False),
                    partial(self._is_joined, suspect),
                )
            else:
                self._started[suspect] = begun.started
                suspect.run_counted((*begun.earlier, begun.started))
        except Exception:
            logger.exception("celery_dlq could not decide about a delivery of %s", suspect.id)
            suspect.run_counted(())
        finally:
            self._isolation.arrived(suspect)

    def _is_joined(self, suspect: DLQRequest, then: Callable[[], object]) -> None:
        delivery = self._started.get(suspect)
        if delivery is None or not delivery.alone:
            then()
            return
        self._started[suspect] = crowded = replace(delivery, alone=False)
        self._desk.ask(lambda store: store.deliveries.put(crowded), lambda _: then())

    def _condemn(self, suspect: DLQRequest, earlier: tuple[Delivery, ...]) -> None:
        self.give_slot_back()
        suspect.condemn(earlier)
