"""A read replica of the database, for screens: a server that follows the primary, which takes all writes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from sqlalchemy.engine import Connection

from celery_dlq.errors import RecordRefused, StoreError, StoreTooSlow, StoreUnavailable
from celery_dlq.store.database.dialects.server import Server
from celery_dlq.store.database.faults import address
from celery_dlq.store.database.transactions import Transactions

logger = logging.getLogger(__name__)

#: Seconds after a write of this process in which it reads from the primary, so that it sees what it wrote.
FOLLOW_S = 10.0

#: Seconds after an error until the replica is asked again.
PAUSE_S = 30.0

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Following:
    """How a read replica follows its primary."""

    #: Its URL, without a password.
    address: str
    #: How far it is behind; None if it does not say.
    lag: timedelta | None = None
    #: Why screens read from the primary instead; empty if they do not.
    trouble: str = ""


class ReplicaTransactions(Transactions):
    """Transactions that read from a replica, and write to the primary.

    They also read from the primary for :data:`FOLLOW_S` seconds after this process has written, and while the
    replica fails.

    :param primary: the transactions of the primary.
    :param replica: those of the replica.
    """

    def __init__(
        self,
        primary: Transactions,
        replica: Transactions,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(primary.database, **primary.searched._asdict(), monotonic=monotonic)
        self._primary, self._replica = primary, replica
        self._trouble, self._again_at = "", 0.0

    def check_schema(self) -> None:
        self._primary.check_schema()

    def read(self, work: Callable[[Connection], T]) -> T:
        if self._is_paused or self._primary.wrote_s_ago < FOLLOW_S:
            return self._primary.read(work)
        try:
            found = self._replica.read(work)
        except (StoreTooSlow, RecordRefused):  # on the primary it would be the same
            raise
        except StoreError as error:
            self._fails(error)
            return self._primary.read(work)
        self._works()
        return found

    def write(self, work: Callable[[Connection], T]) -> T:
        return self._primary.write(work)

    def following(self) -> Following:
        """How the replica follows now. Raises no error, and does not wait for a replica that has just
        failed."""
        where, dialect = address(self._replica.database.url), self._replica.database.dialect
        if self._is_paused or not isinstance(dialect, Server):
            return Following(address=where, trouble=self._trouble)
        try:
            lag = self._replica.database.read(dialect.lag)
        except StoreUnavailable as error:
            return Following(address=where, trouble=self._trouble or str(error))
        except StoreError:  # such as a missing right
            return Following(address=where, trouble=self._trouble)
        return Following(address=where, lag=lag, trouble=self._trouble)

    def close(self) -> None:
        """Close the connections to both servers."""
        self._replica.close()
        self._primary.close()

    @property
    def _is_paused(self) -> bool:
        return bool(self._trouble) and self._monotonic() < self._again_at

    def _fails(self, error: StoreError) -> None:
        self._again_at = self._monotonic() + PAUSE_S
        if not self._trouble:
            logger.warning("the read replica is not used until it works again: %s", error)
        self._trouble = str(error)

    def _works(self) -> None:
        if self._trouble:
            self._trouble = ""
            logger.info("the read replica at %s is used again", address(self._replica.database.url))
