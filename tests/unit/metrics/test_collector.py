from __future__ import annotations

import re
import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from support.factories import T0

from celery_dlq.errors import StoreUnavailable
from celery_dlq.metrics import families
from celery_dlq.metrics.collector import register
from celery_dlq.metrics.families import MOST_SETS
from celery_dlq.metrics.snapshot import Reading, Snapshots
from celery_dlq.model.automation import AutoState
from celery_dlq.model.handling import HandlingState, TicketKind
from celery_dlq.model.operation import OperationState, SendingState
from celery_dlq.model.states import Reason, State
from celery_dlq.model.worker import CircuitState, Lost, RecorderReport, ReportKind
from celery_dlq.store.base import Cell, Measures, UnsentAt
from celery_dlq.store.keeping import (
    CLOSED_AGES,
    ArchiveTotals,
    CheckReport,
    Holding,
    Keeping,
    Kept,
    Pile,
    RoundReport,
)

SOON_S = 60
NOW = T0.timestamp() + 600


def cell(**changes) -> Cell:
    values = {
        "task": "shop.charge", "queue": "celery", "reason": Reason.TERMINAL,
        "exception_type": "ValueError", "open": 3, "arrived": 7, "succeeded": 2, "failed": 1,
        "first_seen_at": T0,
    }  # fmt: skip
    return Cell(**{**values, **changes})


#: Messages that were kept because the broker did not take them.
KEPT = cell(
    reason=Reason.UNSENT, exception_type="OSError", open=0, succeeded=0, failed=0, arrived=8
)


MEASURES = Measures(
    cells=(
        cell(),
        cell(queue="mail", open=1),
        cell(task="shop.ship", reason=Reason.TIMEOUT),
        KEPT,
    ),
    open={State.DEAD: 6, State.CLAIMED: 1, State.REDRIVEN: 0},
    oldest_open_at=T0,
    parked=4,
    overdue=1,
    unsent=(
        UnsentAt(place="here", messages=2, since=T0 + timedelta(seconds=200)),
        UnsentAt(place="there", messages=1, since=T0 + timedelta(seconds=100)),
    ),
    operations=dict.fromkeys(OperationState, 0) | {OperationState.ABORTED: 2},
    aborted_at=T0 + timedelta(seconds=5),
    deaths=3,
    circuits={("shop.ship", CircuitState.OPEN): 2},
    handlings={("repair", HandlingState.FAILED): 5},
    tickets={TicketKind.TICKET: 1, TicketKind.ESCALATION: 0},
    auto_redrives={"nightly": AutoState.SUSPENDED},
    auto_letters={("nightly", SendingState.FAILED): 9},
    held={"nightly": 4},
    routes={"payments": 3},
)


KEEPING = Keeping(
    round=RoundReport(
        ended_at=T0 + timedelta(seconds=60),
        removed=5,
        holdings=(
            Holding(
                where=None,
                age=timedelta(days=30),
                kept=Kept(
                    ages={
                        bound: Pile(letters=number, size=100 * number)
                        for number, bound in enumerate(CLOSED_AGES)
                    },
                    expired=Pile(letters=0, size=0),
                    within_day=4,
                    within_week=6,
                    oldest_closed_at=T0 - timedelta(days=30, seconds=30),
                ),
            ),
        ),
    ),
    archive=ArchiveTotals(segments=2, letters=70, size=900, last_at=T0 + timedelta(seconds=7)),
    check=CheckReport(
        checked_at=T0 + timedelta(seconds=9),
        segments=1,
        letters=30,
        size=400,
        damaged=1,
        harmless=3,
    ),
)

#: Before the first round, without an archive.
NOTHING_KEPT = Keeping(
    round=None,
    archive=ArchiveTotals(segments=0, letters=0, size=0, last_at=None),
    check=None,
)


def reported(kind, messages, seconds) -> RecorderReport:
    return RecorderReport(
        kind=kind, about=f"{seconds}", worker="w@host", host="host", messages=messages,
        since=T0 + timedelta(seconds=seconds), why="",
    )  # fmt: skip


LOST = Lost(
    open=3,
    arrived=2,
    reports=(
        reported(ReportKind.STUCK, 0, 0),
        reported(ReportKind.STUCK, 4, 500),
        reported(ReportKind.WAITING, 1, 9_000),
        reported(ReportKind.UNCOVERED, 7, 0),
    ),
)


def reading(measures=MEASURES, keeping=KEEPING, lost=LOST, **others) -> Reading:
    return Reading(measures, keeping, lost, **{"spool": 0, **others})


def scrape(read, wait_s=SOON_S, registry=None):
    registry = registry or CollectorRegistry()
    register(Snapshots(read, patience_s=5, clock=lambda: NOW), registry, wait_s=wait_s)
    return samples(registry)


def samples(registry) -> dict[str, float]:
    """The scraped values, by name and labels."""
    return {
        sample.name
        + "".join(f" {value}" for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


def test_every_number_of_the_store_is_there():
    found = scrape(lambda: reading(spool=17))
    assert {name: value for name, value in found.items() if "snapshot_seconds" not in name} == {
        "celery_dlq_up": 1,
        "celery_dlq_snapshot_timestamp_seconds": NOW,
        "celery_dlq_depth celery terminal shop.charge": 3,
        "celery_dlq_depth mail terminal shop.charge": 1,
        "celery_dlq_depth celery unsent shop.charge": 0,
        "celery_dlq_depth celery timeout shop.ship": 3,
        "celery_dlq_letters dead": 6,
        "celery_dlq_letters claimed": 1,
        "celery_dlq_letters redriven": 0,
        "celery_dlq_oldest_age_seconds": 600,
        "celery_dlq_arrivals_total ValueError terminal shop.charge": 14,
        "celery_dlq_arrivals_total ValueError timeout shop.ship": 7,
        "celery_dlq_redrives_total succeeded shop.charge": 4,
        "celery_dlq_redrives_total succeeded shop.ship": 2,
        "celery_dlq_redrives_total failed shop.charge": 2,
        "celery_dlq_redrives_total failed shop.ship": 1,
        **{f"celery_dlq_operations {state.value}": 0 for state in OperationState},
        "celery_dlq_operations aborted": 2,
        "celery_dlq_operation_aborted_timestamp_seconds": T0.timestamp() + 5,
        "celery_dlq_parked": 4,
        "celery_dlq_parked_overdue": 1,
        "celery_dlq_unsent_messages": 3,
        "celery_dlq_oldest_unsent_seconds": 500,
        "celery_dlq_unsent_total OSError shop.charge": 8,
        "celery_dlq_poison_deliveries": 3,
        "celery_dlq_circuits open shop.ship": 2,
        "celery_dlq_handlings repair failed": 5,
        "celery_dlq_tickets ticket": 1,
        "celery_dlq_tickets escalation": 0,
        "celery_dlq_auto_redrives nightly suspended": 1,
        "celery_dlq_auto_redrive_letters nightly failed": 9,
        "celery_dlq_held_letters nightly": 4,
        "celery_dlq_route_letters payments": 3,
        "celery_dlq_closed_letters 1d": 0,
        "celery_dlq_closed_letters 7d": 1,
        "celery_dlq_closed_letters 30d": 2,
        "celery_dlq_closed_letters 90d": 3,
        "celery_dlq_closed_letters 365d": 4,
        "celery_dlq_closed_letters more": 5,
        "celery_dlq_closed_bytes 1d": 0,
        "celery_dlq_closed_bytes 7d": 100,
        "celery_dlq_closed_bytes 30d": 200,
        "celery_dlq_closed_bytes 90d": 300,
        "celery_dlq_closed_bytes 365d": 400,
        "celery_dlq_closed_bytes more": 500,
        "celery_dlq_expiring_letters 1d": 4,
        "celery_dlq_expiring_letters 7d": 6,
        "celery_dlq_retention_timestamp_seconds": T0.timestamp() + 60,
        "celery_dlq_retention_lag_seconds": 630,
        "celery_dlq_archive_segments": 2,
        "celery_dlq_archive_letters": 70,
        "celery_dlq_archive_bytes": 900,
        "celery_dlq_archive_timestamp_seconds": T0.timestamp() + 7,
        "celery_dlq_archive_verified_timestamp_seconds": T0.timestamp() + 9,
        "celery_dlq_archive_damaged": 1,
        "celery_dlq_unrecovered stuck": 4,
        "celery_dlq_unrecovered waiting": 1,
        "celery_dlq_unrecovered_age_seconds stuck": 600,
        # By the clock of that machine, which is ahead.
        "celery_dlq_unrecovered_age_seconds waiting": 0,
        "celery_dlq_uncovered_workers": 1,
        "celery_dlq_spool_bytes": 17,
    }


def test_a_message_of_a_sender_whose_clock_is_ahead_has_no_age():
    ahead = UnsentAt(place="here", messages=1, since=T0 + timedelta(seconds=900))
    found = scrape(lambda: reading(replace(MEASURES, unsent=(ahead,))))
    assert found["celery_dlq_oldest_unsent_seconds"] == 0


def test_the_lag_of_retention_goes_by_the_clock_of_the_store():
    found = scrape(lambda: reading(ahead_s=60.0))
    assert found["celery_dlq_retention_lag_seconds"] == 690


def test_before_the_first_round_nothing_is_said_about_closed_letters():
    found = scrape(lambda: reading(keeping=NOTHING_KEPT))
    assert {name: value for name, value in found.items() if "archive" in name} == {
        "celery_dlq_archive_segments": 0, "celery_dlq_archive_letters": 0, "celery_dlq_archive_bytes": 0,
    }  # fmt: skip
    assert not [name for name in found if re.search("closed|expiring|retention", name)]


def test_without_reports_nothing_is_left():
    found = scrape(lambda: reading(lost=Lost(open=3, arrived=2, reports=())))
    assert {value for name, value in found.items() if re.search("unrecovered|uncovered", name)} == {
        0
    }


def test_exposed_metrics_are_as_described():
    registry = CollectorRegistry()
    register(Snapshots(reading, patience_s=5), registry, wait_s=SOON_S)
    exposed = {
        (sample.name, family.type, frozenset(sample.labels))
        for family in registry.collect()
        for sample in family.samples
    }
    assert exposed == {
        (one.name, one.kind, frozenset(one.labels)) for one in families.STORE_FAMILIES
    }


def test_empty_metrics_are_left_out_and_the_age_without_letters_is_zero():
    found = scrape(
        lambda: reading(replace(MEASURES, aborted_at=None, oldest_open_at=None), spool=None)
    )
    assert found["celery_dlq_oldest_age_seconds"] == 0
    assert "celery_dlq_operation_aborted_timestamp_seconds" not in found
    assert "celery_dlq_spool_bytes" not in found


def test_an_age_goes_by_the_clock_of_the_store():
    found = scrape(lambda: reading(ahead_s=60.0))
    assert found["celery_dlq_oldest_age_seconds"] == 660


def test_a_worker_whose_clock_is_ahead_makes_no_negative_age():
    ahead = replace(MEASURES, oldest_open_at=T0 + timedelta(days=1))
    assert scrape(lambda: reading(ahead))["celery_dlq_oldest_age_seconds"] == 0


def test_a_dead_store_is_down_and_nothing_else_is_known():
    def read():
        raise StoreUnavailable

    assert scrape(read) == {"celery_dlq_up": 0}


def test_registering_asks_nothing_and_a_scrape_does_not_wait():
    registry, let = CollectorRegistry(), threading.Event()
    asked: list[int] = []

    def read():
        asked.append(1)
        assert let.wait(SOON_S)
        return reading()

    try:
        register(Snapshots(read, patience_s=5), registry, wait_s=0)
        assert asked == []
        assert samples(registry) == {}
    finally:
        let.set()


def test_another_store_takes_the_place_of_the_first():
    registry = CollectorRegistry()
    scrape(lambda: reading(spool=1), registry=registry)
    assert scrape(lambda: reading(spool=2), registry=registry)["celery_dlq_spool_bytes"] == 2


def test_however_many_names_there_are_the_series_are_bounded():
    cells = tuple(cell(task=f"t{number}") for number in range(3 * MOST_SETS))
    found = scrape(lambda: reading(replace(MEASURES, cells=cells)))
    for name, total in (("depth", 3), ("arrivals_total", 7)):
        values = [value for key, value in found.items() if key.startswith(f"celery_dlq_{name} ")]
        assert len(values) == MOST_SETS + 1
        assert sum(values) == total * len(cells)


@pytest.mark.parametrize("name", ['a"b', "a\nb", "a\\b", "\u202eabc", "\U0001f600", "a\ud800b"])
def test_hostile_names_are_values_of_labels_and_nothing_else(name):
    found = scrape(lambda: reading(replace(MEASURES, cells=(cell(task=name),))))
    assert len([key for key in found if key.startswith("celery_dlq_depth")]) == 1
