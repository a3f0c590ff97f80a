"""The last reports of retention and of checks of the archive are kept. What workers report about the
flight recorder is shown while it is true, and does not stay."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import event, update
from support.factories import T0, attempt, letter

from celery_dlq.model.states import Reason
from celery_dlq.model.worker import Lost, RecorderReport, ReportKind, messages_in
from celery_dlq.store.base import Facts, Filter, OngoingAct
from celery_dlq.store.database import tables
from celery_dlq.store.keeping import CLOSED_AGES, Holding, Kept, Pile
from celery_dlq.store.reports import AGAIN, FADES, MOST, NAME_LIMIT, WHY_LIMIT

DAY = timedelta(days=1)


def kept(letters: int, *, oldest=T0, **changes) -> Kept:
    ages = {bound: Pile(letters=letters, size=100 * letters) for bound in CLOSED_AGES}
    values = {
        "ages": ages, "expired": Pile(letters=1, size=7), "within_day": 2, "within_week": 3,
        "oldest_closed_at": oldest, **changes,
    }  # fmt: skip
    return Kept(**values)


HOLDINGS = (
    Holding(where=Filter(task="pay", reason=Reason.POISON), age=None, kept=kept(1)),
    Holding(where=Filter(), age=30 * DAY, kept=kept(2, oldest=T0 + 2 * DAY)),
    Holding(where=Filter(queue="q"), age=90 * DAY, kept=Kept.none()),
    Holding(where=None, age=None, kept=kept(5)),
)


def test_a_new_store_has_no_reports(store):
    found = store.reports.keeping()
    assert (found.round, found.check) == (None, None)
    assert (found.archive.segments, found.archive.letters, found.archive.size) == (0, 0, 0)
    assert found.archive.last_at is None


def test_the_report_of_a_round_is_read_as_it_was_written(store):
    before = store.now()
    store.reports.note_round(HOLDINGS, removed=17)
    found = store.reports.keeping().round
    assert found.holdings == HOLDINGS
    assert found.removed == 17
    assert before - DAY < found.ended_at < before + DAY
    assert found.kept == HOLDINGS[0].kept + HOLDINGS[1].kept + HOLDINGS[3].kept


def test_the_last_report_replaces_the_one_before(store):
    store.reports.note_round(HOLDINGS, removed=17)
    store.reports.note_round(HOLDINGS[:1], removed=0)
    found = store.reports.keeping().round
    assert (found.holdings, found.removed) == (HOLDINGS[:1], 0)


def test_the_report_of_a_check_is_kept_and_audited(store):
    store.reports.note_check(
        who="ann", segments=2, letters=30, size=4_000_000_000, damaged=1, harmless=4
    )
    store.reports.note_round(HOLDINGS, removed=0)
    found = store.reports.keeping().check
    assert (found.segments, found.letters, found.size) == (2, 30, 4_000_000_000)
    assert (found.damaged, found.harmless) == (1, 4)
    (act,) = store.audit.find(act="verify").rows
    assert (act.who, act.count, act.at) == ("ann", 30, found.checked_at)


def test_the_archive_knows_when_its_last_segment_was_made(store):
    mine = store.leases.take("retention", holder="me", seconds=60)
    facts = Facts(letters=3, size=100, sha256="f" * 64, first_failed_at=T0, last_failed_at=T0)
    first = store.archiving.begin(facts, mine)
    assert store.reports.keeping().archive.last_at is None
    act = OngoingAct(who="ann", act="archive", detail={}, at=T0)
    store.archiving.commit(first, [], mine, act)
    store.archiving.begin(facts, mine)
    found = store.reports.keeping().archive
    assert (found.segments, found.letters, found.size) == (1, 3, 100)
    assert found.last_at == first.archived_at


def test_the_lag_is_the_time_since_the_first_letter_expired(store):
    store.reports.note_round(HOLDINGS, removed=0)
    found = store.reports.keeping().round
    assert found.next_expires_at == T0 + 32 * DAY
    assert found.lag(T0 + 32 * DAY) == timedelta()
    assert found.lag(T0) == timedelta()
    assert found.lag(T0 + 35 * DAY) == 3 * DAY


def test_letters_that_are_kept_for_ever_are_never_late(store):
    store.reports.note_round(HOLDINGS[:1], removed=0)
    found = store.reports.keeping().round
    assert found.next_expires_at is None
    assert found.lag(T0 + 9_999 * DAY) == timedelta()


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
