"""Messages of ``dlq_unsent`` that the broker may have taken, although it did not confirm them. Such a message
has a letter, and is sent again after a while, as another copy; but a worker may have run it before.

So each worker remembers the messages that it took lately. Every few seconds it reads which are in doubt. The
messages among them that it took are accepted as the first copy; for each that it takes from then on, it asks
the store first.
"""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING

from celery_dlq.model.headers import doubtful_parking

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: The most messages that are remembered: those of a minute, in a worker that takes 800 in a second.
MOST = 50_000


class Doubts:
    """The messages in doubt, for the workers of one app in this process.

    :param place: names the broker: see :class:`~celery_dlq.worker.broker_limits.Hold`.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        #: The names of the messages taken, the oldest first.
        self._taken: dict[str, None] = {}
        #: None until they have been read.
        self._known: Set[str] | None = None

    @property
    def is_unknown(self) -> bool:
        """Whether it is not known yet which messages are in doubt."""
        return self._known is None

    def take(self, sent: str) -> tuple[str, int] | None:
        """Remember the message with this name. If it may be in doubt, the parking and the number of this
        copy, which has to be accepted before it runs."""
        # In this order: either refresh() finds it, or it is known here.
        self._taken[sent] = None
        if len(self._taken) > MOST:
            del self._taken[next(iter(self._taken))]
        known = self._known
        return (doubtful_parking(self._place, sent), 1) if known is None or sent in known else None

    def refresh(self, store: Store) -> None:
        """Read which messages are in doubt, and accept those that were taken here.

        :raises StoreError: the store failed.
        """
        known = self._known = store.parked.in_doubt(self._place)
        taken = [sent for sent in known if sent in self._taken]
        if taken:
            store.parked.accept([(doubtful_parking(self._place, sent), 1) for sent in taken])
