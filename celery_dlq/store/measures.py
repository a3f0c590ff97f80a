"""What monitoring is told of a store: numbers and names, nothing of a letter's content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from celery_dlq.circuit import CircuitState
from celery_dlq.operation import OperationState
from celery_dlq.states import Reason, State


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Counts of the letters with the same task, queue, reason and exception type."""

    task: str
    queue: str
    reason: Reason
    exception_type: str
    open: int
    #: These never fall: letters that died, and redrives that ended well or came back.
    arrived: int
    succeeded: int
    failed: int
    #: When the first of them died.
    first_seen_at: datetime


@dataclass(frozen=True, kw_only=True)
class Measures:
    """A store in numbers, at one moment. All are read from rollups, or from rows that are few."""

    cells: tuple[Cell, ...]
    #: Open letters by state.
    open: Mapping[State, int]
    oldest_open_at: datetime | None
    #: Retries that wait in the store, and those that nobody releases though their time has come.
    parked: int
    overdue: int
    operations: Mapping[OperationState, int]
    #: When an operation last ended by its guard or by an error.
    aborted_at: datetime | None
    #: Runs that ended their process, of messages whose fate is open.
    deaths: int
    #: Circuits that are not closed, by task and state.
    circuits: Mapping[tuple[str, CircuitState], int]
