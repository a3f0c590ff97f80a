"""What workers report about the flight recorder is shown while it is true, and does not stay."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import event, update
from support.factories import T0, attempt, letter

from celery_dlq.model.states import Reason
from celery_dlq.store.base import Filter
from celery_dlq.store.database import tables
from celery_dlq.store.keeping import Holding, Kept
from celery_dlq.store.lost import Lost, RecorderReport, ReportKind, messages_in
from celery_dlq.store.recorder_reports import AGAIN, FADES, MOST, NAME_LIMIT, WHY_LIMIT

LOST = "celery_dlq.errors.TaskLost"


def reported(about="host-1-ab", kind=ReportKind.STUCK, **changes) -> RecorderReport:
    values = {
        "kind": kind, "about": about, "worker": "w@host", "host": "host", "messages": 2, "since": T0,
        "why": "Permission denied", **changes,
    }  # fmt: skip
    return RecorderReport(**values)


def make_older(store, age):
    """As if every row had been written this long ago."""
    at = store.now() - age
    store.transactions.write(lambda found: found.execute(update(tables.report).values(at=at)))


def look(store) -> Lost:
    return store.recorder_reports.look(store.now())


@pytest.fixture
def written(store):
    """Counts the statements that change the reports."""
    statements = []

    def note(_connection, _cursor, statement, *_others):
        if "celery_dlq_report" in statement and not statement.startswith("SELECT"):
            statements.append(statement)

    engine = store.transactions.read(lambda connection: connection.engine)
    event.listen(engine, "before_cursor_execute", note)
    yield statements
    event.remove(engine, "before_cursor_execute", note)


def test_a_new_store_knows_of_no_loss(store):
    assert look(store) == Lost(open=0, arrived=0, reports=())


def test_reports_are_read_as_they_were_written_the_worst_first(store):
    waiting = reported("host-2-cd", ReportKind.WAITING, since=T0 - timedelta(days=1))
    uncovered = reported("w@host", ReportKind.UNCOVERED, messages=0)
    late = reported("host-3-ef", since=T0 + timedelta(seconds=1))
    store.recorder_reports.note([waiting, uncovered, late, reported()])
    found = look(store)
    assert found.reports == (reported(), late, waiting, uncovered)
    assert all(abs(one.seen_at - store.now()) < timedelta(hours=1) for one in found.reports)
    assert found.of(ReportKind.WAITING) == (waiting,)
    assert messages_in(found.of(ReportKind.STUCK, ReportKind.WAITING)) == 6


def test_two_workers_that_see_the_same_directory_write_one_report(store, written):
    store.recorder_reports.note([reported()])
    store.recorder_reports.note([reported()])
    assert len(look(store).reports) == len(written) == 1
    store.recorder_reports.note([reported(messages=1)])
    assert [one.messages for one in look(store).reports] == [1]


def test_an_unchanged_report_is_written_again_before_it_fades(store, written):
    store.recorder_reports.note([reported()])
    make_older(store, AGAIN + timedelta(minutes=1))
    written.clear()
    store.recorder_reports.note([reported()])
    assert len(written) == 1
    make_older(store, FADES - timedelta(minutes=1))
    assert len(look(store).reports) == 1


def test_the_report_of_a_machine_that_is_gone_fades_and_is_deleted(store):
    store.recorder_reports.note([reported()])
    store.reports.note_round([Holding(where=None, age=None, kept=Kept.none())], removed=0)
    make_older(store, timedelta(days=2))
    assert look(store).reports == ()
    store.recorder_reports.prune(older_than_s=3 * 86_400)
    assert count_rows(store) == 2
    store.recorder_reports.prune(older_than_s=86_400)
    assert count_rows(store) == 1
    assert store.reports.keeping().round is not None


def count_rows(store):
    return len(
        store.transactions.read(lambda found: found.execute(tables.report.select()).fetchall())
    )


def test_a_report_that_is_not_true_any_more_is_withdrawn(store):
    other = reported("host-2-cd")
    store.recorder_reports.note([reported(), other])
    store.recorder_reports.withdraw([replace(reported(), messages=17)])
    assert look(store).reports == (other,)


def test_hostile_and_endless_names_are_stored(store):
    evil = "\x00\ud800\u202e<script>\U0001f4a9\n" * 1_000
    store.recorder_reports.note([reported(evil, worker=evil, host=evil, why=evil)])
    [found] = look(store).reports
    assert max(len(found.about), len(found.worker), len(found.host)) <= NAME_LIMIT
    assert len(found.why) <= WHY_LIMIT
    assert not {"\x00", "\ud800"} & {*found.worker}
    store.recorder_reports.withdraw([reported(evil)])
    assert look(store).reports == ()


def test_the_reports_of_a_worker_are_bounded(store):
    store.recorder_reports.note([reported(f"host-{number}-ab") for number in range(MOST + 5)])
    assert len(look(store).reports) == MOST


def test_lost_letters_are_counted_open_and_arrived(store):
    now = store.now()

    def lost(task_id, age):
        died = attempt(failed_at=now - age, exception_type=LOST)
        return letter(task_id, died, reason=Reason.LOST, exception_type=LOST)

    store.letters.save([lost("new", timedelta(hours=1)), lost("old", timedelta(days=2))])
    store.letters.save([letter("other", attempt(failed_at=now))])
    found = look(store)
    assert (found.open, found.arrived) == (2, 1)
    store.closing.discard(Filter(ids=("new",)), who="ann", why="", now=now)
    found = look(store)
    assert (found.open, found.arrived) == (1, 1)
