"""Counts the deliveries of a message that did not end, and stops it when they are too many.

The count is kept in the store, since the worker that knew it may be dead. It is kept for messages that
come back only, and for those whose process died while the worker lived to see it: a first delivery
that ends in any other way costs nothing.

A message is poison when two things hold. It was delivered ``dlq_max_deliveries`` times and started,
and none of these runs came to an end; of a first delivery that nobody saw, the worst is assumed.
And one of them was *its own* death: the worker saw its process die, or the whole worker died while
nothing else ran in it (:mod:`celery_dlq.worker.admission.solitude`). So a message that merely ran beside a
killer is never condemned, however often the worker dies: before its last run it has to wait until
it is alone, and then its run ends.

Two things bound this from above. A message that is started three times as often without an end is
condemned without that proof: on a worker whose other tasks never end, nothing is ever alone. And where
the store does not answer, the same bound holds for the count that the broker keeps, if it does; and
each worker counts the deaths that it sees by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from enum import Enum
from functools import partial
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from celery.utils.log import get_logger

from celery_dlq.delivery import Delivery
from celery_dlq.store.base import Store
from celery_dlq.worker import process
from celery_dlq.worker.admission.solitude import Solitude

logger = get_logger(__name__)

T = TypeVar("T")

#: What is counted together: task id, task, redrive, attempt.
_Key = tuple[str, str, int, int]

#: Times the limit, at which a message is condemned whatever else ran.
HOPELESS = 3
#: For how long a delivery without an end counts. Messages that wait longer in their queue start anew.
MEMORY = timedelta(days=7)
#: Messages whose deaths a worker remembers itself while the store is away.
UNWRITTEN = 1_000
#: How often a worker deletes what is older.
PRUNE_EVERY = timedelta(hours=1)


class Admission(Enum):
    """What may become of a message that came back."""

    RUN = "run"
    #: Only when nothing else runs in its worker.
    RUN_ALONE = "run alone"
    POISON = "poison"


def next_number(earlier: Sequence[Delivery]) -> int:
    """The number of the delivery after ``earlier`` ones, which lack the first unless its process was
    seen to die."""
    return max((item.number for item in earlier), default=1) + 1


def admission(earlier: Sequence[Delivery], limit: int) -> Admission:
    """What may become of a message whose ``earlier`` deliveries did not end."""
    number = next_number(earlier)
    guilty = any(item.is_its_own for item in earlier)
    if number > HOPELESS * limit or (guilty and number > limit):
        return Admission.POISON
    return Admission.RUN if guilty or number < limit else Admission.RUN_ALONE


def came_back(message: Any) -> bool:
    """Whether the broker has delivered ``message`` before."""
    info = message.delivery_info or {}
    if info.get("redelivered"):
        return True
    return "sqs_message" in info and (_sqs_count(info) or 1) > 1


def brokers_count(message: Any) -> int | None:
    """Which delivery this is by the broker's own count; None where it keeps none.

    It counts deliveries that were never started, too.
    """
    info = message.delivery_info or {}
    if info.get("redelivered"):
        # Celery copies the header to retries, whose first delivery it says nothing about.
        given_back = _whole((message.headers or {}).get("x-delivery-count"))
        if given_back is not None:
            return given_back + 1
    return _sqs_count(info)


def _sqs_count(info: Mapping[str, Any]) -> int | None:
    raw = info.get("sqs_message")
    attributes = raw.get("Attributes") if isinstance(raw, Mapping) else None
    return _whole((attributes or {}).get("ApproximateReceiveCount"))


def _whole(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


@dataclass(frozen=True)
class Begun:
    """What the store said when a delivery was about to start."""

    admission: Admission
    earlier: tuple[Delivery, ...]
    #: The delivery as it was written down; None when it may not start now.
    started: Delivery | None = None


def begin(store: Store, wanted: Delivery, limit: int, *, patient: bool) -> Begun:
    """Write ``wanted`` down if it may start. What is not patient need not be alone."""
    earlier = _unended(store, wanted)
    verdict = admission(earlier, limit)
    if verdict is Admission.POISON or (verdict is Admission.RUN_ALONE and patient):
        return Begun(verdict, earlier)
    started = replace(wanted, number=next_number(earlier))
    store.put_delivery(started)
    return Begun(Admission.RUN, earlier, started)


def note_deaths(store: Store, deaths: Sequence[Delivery]) -> tuple[Delivery, ...]:
    """Write down ``deaths`` of one message, oldest first; returns all its deliveries that did not end,
    the last of ``deaths`` last."""
    known: tuple[Delivery, ...] = ()
    for died in deaths:
        others = [item for item in _unended(store, died) if item.started_at != died.started_at]
        known = (*others, _numbered(died, others))
        store.put_delivery(known[-1])
    return known


def _key(item: Delivery) -> _Key:
    return item.task_id, item.task, item.redrive, item.attempt


def _numbered(died: Delivery, others: Sequence[Delivery]) -> Delivery:
    return replace(died, number=died.number or next_number(others))


def _unended(store: Store, one: Delivery) -> tuple[Delivery, ...]:
    """The deliveries of the same message that did not end. A copy that is still running (Redis hands out
    what takes longer than the visibility timeout) is not among them."""
    return tuple(
        item
        for item in store.deliveries(one.task_id, one.task)
        if _key(item) == _key(one) and (item.death or not process.lives(item.process))
    )


class Suspect(Protocol):
    """A request that came back, as it is counted."""

    @property
    def id(self) -> str:
        """The task id."""

    @property
    def message(self) -> Any:
        """The message as the broker delivered it."""

    def as_delivery(self, process: str, *, alone: bool = False, death: str = "") -> Delivery:
        """This delivery, starting now. A number of 0 is for the store to fill in."""

    def run_counted(self, known: tuple[Delivery, ...]) -> None:
        """Run, in the slot of the pool that it has. ``known`` are earlier deliveries and this one."""

    def condemn(self, known: tuple[Delivery, ...]) -> None:
        """Do not run, but become a dead letter. ``known`` are the earlier deliveries."""


class Asks(Protocol):
    """What puts a question to the store, and calls back where the request lives."""

    def ask(self, question: Callable[[Store], T], then: Callable[[T | None], object]) -> None:
        """``then`` gets the answer; None when the store gave none in time."""


class Deliveries:
    """Asks before a message that came back is run, and notes the deaths that this worker sees.

    :param limit: ``dlq_max_deliveries``.
    """

    def __init__(
        self,
        recorder: Asks,
        limit: int,
        *,
        solitude: Solitude | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._recorder, self._limit, self._now = recorder, limit, now
        self.solitude = solitude or Solitude()
        self._process = process.identity()
        #: Goes up with every lost connection: what was asked before must not run any more.
        self._connection = 0
        #: Requests that were counted and not seen to die. What has ended is forgotten in the store, so
        #: that it does no harm here.
        self._started: WeakKeyDictionary[Suspect, Delivery] = WeakKeyDictionary()
        #: Deaths that the store did not take, for when it does, by message; the oldest first.
        self._unwritten: dict[_Key, tuple[Delivery, ...]] = {}
        self._prune_at = datetime.min.replace(tzinfo=timezone.utc)

    def admit(self, suspect: Suspect) -> None:
        """Run ``suspect``, which has a slot of the pool, as soon as it may; or condemn it."""
        try:
            if not self.solitude.keeps_out(suspect):
                self._ask(suspect, alone=False, patient=True)
        except Exception:
            logger.exception("celery_dlq could not count a delivery of %s", suspect.id)
            suspect.run_counted(())

    def count_death(
        self,
        suspect: Suspect,
        died: Delivery,
        then: Callable[[tuple[Delivery, ...]], object],
    ) -> None:
        """Write down that ``suspect`` died; ``then`` gets all deliveries of its message that did not end,
        this one last. Of a store that is away, only those that this worker saw."""
        self._started.pop(suspect, None)
        key = _key(died)
        earlier = self._unwritten.pop(key, ())
        deaths = (*earlier, _numbered(replace(died, process=self._process), earlier))

        def answered(known: tuple[Delivery, ...] | None) -> None:
            if known is None:
                self._keep_unwritten(key, deaths)
            then(known or deaths)

        self._recorder.ask(partial(note_deaths, deaths=deaths), answered)

    def _keep_unwritten(self, key: _Key, deaths: tuple[Delivery, ...]) -> None:
        self._unwritten[key] = deaths
        if len(self._unwritten) > UNWRITTEN:
            self._unwritten.pop(next(iter(self._unwritten)))

    def forget(self, known: Sequence[Delivery], then: Callable[[], object]) -> None:
        """These runs ended, and not in a death; call ``then`` once that is written down."""
        self._recorder.ask(lambda store: store.forget_deliveries(known), lambda _: then())

    def is_spent(self, known: Sequence[Delivery], message: Any) -> bool:
        """Whether a message that was just seen to die must not be delivered again.

        :param known: its deliveries, the last one last.
        """
        return known[-1].number >= self._limit or self._is_hopeless(message)

    def _is_hopeless(self, message: Any) -> bool:
        return (brokers_count(message) or 0) > HOPELESS * self._limit

    def stop(self) -> None:
        """The connection is lost, or the worker shuts down.

        What waits goes back to the broker. What runs is not counted from now on: after a lost
        connection others get its message while it runs, and a shutdown may kill it when time is up.
        """
        self._connection += 1
        self.solitude.stop()
        started, self._started = self._started, WeakKeyDictionary()
        if started:
            self.forget([*started.values()], lambda: None)

    def _ask(self, suspect: Suspect, *, alone: bool, patient: bool) -> None:
        wanted = suspect.as_delivery(self._process, alone=alone)
        question = partial(self._begin, wanted=wanted, patient=patient)
        self.solitude.expect(suspect)
        self._recorder.ask(question, partial(self._answered, suspect, self._connection))

    def _begin(self, store: Store, wanted: Delivery, patient: bool) -> Begun:
        if self._now() >= self._prune_at:
            self._prune_at = self._now() + PRUNE_EVERY
            store.prune_deliveries(self._now() - MEMORY)
        return begin(store, wanted, self._limit, patient=patient)

    def _answered(self, suspect: Suspect, connection: int, begun: Begun | None) -> None:
        try:
            self._go_on(suspect, connection, begun)
        except Exception:
            logger.exception("celery_dlq could not decide about a delivery of %s", suspect.id)
            suspect.run_counted(())
        finally:
            self.solitude.arrived(suspect)

    def _go_on(self, suspect: Suspect, connection: int, begun: Begun | None) -> None:
        if connection != self._connection:
            if begun and begun.started:
                self.forget([begun.started], lambda: None)
        elif begun is None:
            self._go_on_uncounted(suspect)
        elif begun.admission is Admission.POISON:
            self._condemn(suspect, begun.earlier)
        elif begun.started is None:
            self.solitude.arrived(suspect)
            self.solitude.enter(
                suspect, partial(self._start, suspect), partial(self._is_joined, suspect)
            )
        else:
            self._started[suspect] = begun.started
            suspect.run_counted((*begun.earlier, begun.started))

    def _start(self, suspect: Suspect, alone: bool) -> None:
        self._ask(suspect, alone=alone, patient=False)

    def _is_joined(self, suspect: Suspect, then: Callable[[], object]) -> None:
        delivery = self._started.get(suspect)
        if delivery is None or not delivery.alone:
            then()
            return
        self._started[suspect] = crowded = replace(delivery, alone=False)
        self._recorder.ask(lambda store: store.put_delivery(crowded), lambda _: then())

    def _go_on_uncounted(self, suspect: Suspect) -> None:
        if self._is_hopeless(suspect.message):
            self._condemn(suspect, ())
            return
        logger.warning(
            "%s came back, and the store does not say how often: it runs uncounted", suspect.id
        )
        suspect.run_counted(())

    def _condemn(self, suspect: Suspect, earlier: tuple[Delivery, ...]) -> None:
        self.solitude.give_slot_back()
        suspect.condemn(earlier)
