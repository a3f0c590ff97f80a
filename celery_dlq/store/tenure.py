"""Holds a lease, which one process has at a time. If that process dies, another one soon takes over."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from celery_dlq.errors import StoreError
from celery_dlq.store.base import Lease, ToDo

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: Seconds for which a lease holds without being prolonged. After a crash, no process holds it for up to this
#: time plus :data:`TRY_S`.
LEASE_S = 20.0
#: Seconds between two tries to take or prolong it.
TRY_S = 5.0


class Tenure:
    """One candidate for a lease.

    :param holder: identifies this process among all.
    """

    def __init__(self, store: Callable[[], Store], name: str, holder: str) -> None:
        self._store, self._name, self._holder = store, name, holder
        self._lease: Lease | None = None

    @property
    def is_held(self) -> bool:
        """Whether it was held at the last try."""
        return self._lease is not None

    def to_do(self) -> ToDo:
        """When the lease is free, and whether operations are left to workers."""
        return self._store().leases.to_do(self._name)

    def prolong(self) -> Lease | None:
        """Take or prolong the lease; returns None while another process has it."""
        self._lease = self._store().leases.take(self._name, holder=self._holder, seconds=LEASE_S)
        return self._lease

    def end(self) -> None:
        """Give the lease up, so that another process may take it at once."""
        lease, self._lease = self._lease, None
        if lease is not None:
            self._store().leases.give_up(lease)


@contextlib.contextmanager
def kept(tenure: Tenure, lease: Lease) -> Iterator[Callable[[], bool]]:
    """Prolong ``lease`` in a thread, however long a step takes. Gives a function that says whether it is
    still held, as of the last try."""
    ending, lost = threading.Event(), threading.Event()

    def keep() -> None:
        while not ending.wait(TRY_S) and not lost.is_set():
            with contextlib.suppress(StoreError):  # the lease outlasts a few failed tries
                if tenure.prolong() != lease:
                    lost.set()

    thread = threading.Thread(target=keep, name="dlq-lease", daemon=True)
    thread.start()
    try:
        yield lambda: not lost.is_set()
    finally:
        ending.set()
        thread.join()
