"""The last reports of retention and of checks of the archive are kept."""

from __future__ import annotations

from datetime import timedelta

from support.factories import T0

from celery_dlq.model.states import Reason
from celery_dlq.store.base import Filter
from celery_dlq.store.keeping import CLOSED_AGES, Holding, Kept, Pile

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
    assert found.archive.closed_at is None


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


def test_the_archive_knows_when_its_last_segment_was_complete(store):
    mine = store.leases.take("retention", holder="me", seconds=60)
    first = store.archiving.begin(mine, now=T0)
    store.archiving.commit(first.id, mine, letters=3, size=100, manifest_sha256="f" * 64)
    assert store.reports.keeping().archive.closed_at is None
    store.archiving.close(first.id, mine, deleted=3)
    lost = store.archiving.begin(mine, now=T0)
    store.archiving.abandon(lost.id, mine)
    found = store.reports.keeping().archive
    assert (found.segments, found.letters, found.size) == (1, 3, 100)
    assert found.closed_at is not None


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
