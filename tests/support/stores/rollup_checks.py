"""Checks that the rollups say what counting the letters says."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.engine import Connection
from support.factories import T0

from celery_dlq.model.group import hour_of
from celery_dlq.model.states import OPEN_STATES, Reason, State
from celery_dlq.store.database import tables
from celery_dlq.store.sql import SQLStore

_BUCKETS = {State.RESOLVED: "resolved", State.DISCARDED: "discarded"}


def assert_counts_hold(store: SQLStore) -> None:
    """Groups, depth, states, tasks and attempts equal a recount; every arrival is in one group."""
    letters, groups, attempts, arrivals = store.database.read(_everything)
    assert _counted_in_groups(groups) == _recounted(letters)
    assert sum(row["total_count"] for row in groups) == arrivals
    for row in groups:
        members = row["open_count"] + row["resolved_count"] + row["discarded_count"]
        assert row["total_count"] >= members >= 0
    _assert_cells_hold(store, letters, arrivals)
    _assert_trends_hold(store, letters, arrivals)
    assert attempts == {
        row["task_id"]: row["attempt_count"] for row in letters if row["attempt_count"]
    }
    _assert_stats_hold(store, letters)


def _assert_cells_hold(store: SQLStore, letters: list[Any], arrivals: int) -> None:
    cells = store.monitoring.measures().cells
    expected = Counter(
        (row["task"], row["queue"], row["reason"], row["exception_type"])
        for row in letters
        if State(row["state"]) in OPEN_STATES
    )
    assert {_cell_of(cell): cell.open for cell in cells if cell.open} == expected
    assert len({_cell_of(cell) for cell in cells}) == len(cells)
    # A message that was not sent is counted when it begins to wait, not when it is discarded.
    unsent = sum(row["reason"] == Reason.UNSENT.value for row in letters)
    died = sum(cell.arrived for cell in cells if cell.reason is not Reason.UNSENT)
    assert died == arrivals - unsent


def _assert_trends_hold(store: SQLStore, letters: list[Any], arrivals: int) -> None:
    trends = store.database.read(
        lambda connection: connection.execute(select(tables.trend)).mappings().all()
    )
    expected = Counter(
        (row["fingerprint"], hour_of(row["last_failed_at"]))
        for row in letters
        if State(row["state"]) in OPEN_STATES
    )
    counted = {(row["fingerprint"], row["hour"]): row["open_count"] for row in trends}
    assert {key: count for key, count in counted.items() if count} == expected
    assert sum(row["count"] for row in trends) == arrivals


def _cell_of(cell: Any) -> tuple[str, str, str, str]:
    return cell.task, cell.queue, cell.reason, cell.exception_type


def _assert_stats_hold(store: SQLStore, letters: list[Any]) -> None:
    stats = store.monitoring.stats(T0)
    states = Counter(State(row["state"]) for row in letters)
    still_open = [row for row in letters if State(row["state"]) in OPEN_STATES]
    moving = stats.by_state[State.CLAIMED] + stats.by_state[State.REDRIVEN]
    assert moving == states[State.REDRIVEN]
    others = set(State) - {State.CLAIMED, State.REDRIVEN}
    assert all(stats.by_state[state] == states[state] for state in others)
    assert stats.depth == len(still_open) == sum(stats.ages.values())
    assert stats.by_task == Counter(row["task"] for row in still_open)
    assert stats.by_exception == Counter(row["exception_type"] for row in still_open)
    assert sum(stats.by_reason.values()) == len(still_open)
    failures = [row["last_failed_at"] for row in still_open]
    assert stats.oldest_open_at == min(failures, default=None)


def _everything(connection: Connection) -> tuple[list[Any], list[Any], dict[str, int], int]:
    letters = connection.execute(select(tables.letter)).mappings().all()
    groups = connection.execute(select(tables.group)).mappings().all()
    attempt = tables.attempt
    attempts = connection.execute(
        select(attempt.c.task_id, func.count()).group_by(attempt.c.task_id)
    )
    arrivals = connection.execute(select(func.sum(tables.arrival.c.count))).scalar_one()
    return list(letters), list(groups), dict(tuple(row) for row in attempts), int(arrivals or 0)


def _counted_in_groups(groups: list[Any]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for row in groups:
        key = row["fingerprint"], row["task"], row["exception_type"]
        for bucket in ("open", "resolved", "discarded"):
            found[(*key, bucket)] += row[f"{bucket}_count"]
    return +found


def _recounted(letters: list[Any]) -> Counter[Any]:
    return Counter(
        (
            row["fingerprint"],
            row["task"],
            row["exception_type"],
            _BUCKETS.get(State(row["state"]), "open"),
        )
        for row in letters
    )
