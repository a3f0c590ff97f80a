"""Holding a lease: one process at a time, and another one soon after that has died."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from celery_dlq.errors import StoreError
from celery_dlq.store.base import Lease, Store

#: Seconds for which the lease is held without being prolonged. After a crash nobody is at work for so
#: long, and for :data:`TRY_S` on top.
LEASE_S = 20.0
#: Seconds between two tries, by those who have it and those who do not.
TRY_S = 5.0


class Tenure:
    """One candidate for a lease.

    :param holder: names this process among all.
    """

    def __init__(self, store: Callable[[], Store], name: str, holder: str) -> None:
        self._store, self._name, self._holder = store, name, holder
        self._lease: Lease | None = None

    def prolong(self) -> Lease | None:
        """The lease, taken or prolonged; None while another one has it."""
        self._lease = self._store().take_lease(self._name, holder=self._holder, seconds=LEASE_S)
        return self._lease

    def end(self) -> None:
        """Let the next one begin at once."""
        lease, self._lease = self._lease, None
        if lease is not None:
            self._store().give_up_lease(lease)


@contextlib.contextmanager
def kept(tenure: Tenure, lease: Lease) -> Iterator[Callable[[], bool]]:
    """Prolong ``lease`` in a thread, however long a step takes. Gives what says whether it is still held,
    as far as is known."""
    ending, lost = threading.Event(), threading.Event()

    def keep() -> None:
        while not ending.wait(TRY_S) and not lost.is_set():
            with contextlib.suppress(StoreError):  # it holds for a few tries more
                if tenure.prolong() != lease:
                    lost.set()

    thread = threading.Thread(target=keep, name="dlq-lease", daemon=True)
    thread.start()
    try:
        yield lambda: not lost.is_set()
    finally:
        ending.set()
        thread.join()
