"""The database's clock, on which several machines agree."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

from sqlalchemy.engine import Connection

from celery_dlq.store.database.dialects import dialect_of

#: Seconds after which the database is asked again; until then, this machine adds the time that has passed to
#: the last answer.
ASK_S = 10.0


def now(connection: Connection) -> datetime:
    """The time by the database's clock."""
    return dialect_of(connection).now(connection)


def machine_now() -> datetime:
    """The time by this machine's clock."""
    return datetime.now(timezone.utc)


def _counted_s() -> float:
    # This clock also runs while the machine sleeps, and does not jump when the time is set.
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class DatabaseClock:
    """The database's clock, without a query for each reading. Any thread may read it.

    :param ask: asks the database.
    """

    def __init__(
        self,
        ask: Callable[[], datetime],
        *,
        machine_now: Callable[[], datetime] = machine_now,
        counted_s: Callable[[], float] = _counted_s,
    ) -> None:
        self._ask, self._machine_now, self._counted_s = ask, machine_now, counted_s
        #: A moment, and this machine's count of seconds at it.
        self._answer: tuple[datetime, float] | None = None

    def now(self) -> datetime:
        """The time. The quicker the database answers, the more exact it is.

        :raises StoreError: the database failed.
        """
        answer, counted_s = self._answer, self._counted_s()
        if answer is None or counted_s - answer[1] >= ASK_S:
            moment = self._ask()
            # The answer was true when it was given, which is about half-way.
            answer = self._answer = moment, (counted_s + self._counted_s()) / 2
            counted_s = self._counted_s()
        return answer[0] + timedelta(seconds=counted_s - answer[1])

    def ahead(self) -> timedelta:
        """How far the database's clock is ahead of this machine's; below zero if it is behind.

        :raises StoreError: the database failed.
        """
        return self.now() - self._machine_now()


#: Seconds of difference that are not reported. Answers of a busy database take a second or two.
TOLERATED_S = 5.0


def why_wrong(ahead: timedelta) -> str:
    """The error of this machine's clock, and the next step; empty if it agrees with the database's.

    :param ahead: how far the database's clock is ahead of this machine's.
    """
    seconds = ahead.total_seconds()
    if abs(seconds) <= TOLERATED_S:
        return ""
    side = "behind" if seconds > 0 else "ahead of"
    return (
        f"the clock of this machine is {abs(seconds):,.0f} seconds {side} the database's; workers write "
        "the times of failures by the clock of their machine, so lists and --since are wrong by as much; "
        "synchronise both machines with NTP and check with: timedatectl status"
    )
