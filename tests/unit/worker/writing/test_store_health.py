import threading
from pathlib import Path

import pytest

from celery_dlq.errors import SchemaError, StoreUnavailable
from celery_dlq.worker.writing.store_health import StoreHealth

NO_SCHEMA = SchemaError(
    "The dead-letter store has no schema yet; run: celery -A <app> dlq db upgrade"
)


@pytest.fixture
def health():
    return StoreHealth(Path("/srv/spool"))


@pytest.fixture
def said(caplog):
    caplog.set_level("INFO", "celery_dlq")
    return lambda: [(record.levelname, record.getMessage()) for record in caplog.records]


FAILS = (
    "ERROR",
    "dead letters go to the spool /srv/spool, and parked retries wait: The dead-letter store has no "
    "schema yet; run: celery -A <app> dlq db upgrade",
)
WORKS = ("INFO", "dead letters go to the store again")


def test_a_cause_is_told_once_whichever_thread_notices_it(health, said):
    threads = [
        threading.Thread(target=health.fails, args=(name, NO_SCHEMA))
        for name in ("writer", "upkeep", "redrives")
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said() == [FAILS]


def test_the_end_is_told_once_when_it_works_for_all(health, said):
    for name in ("writer", "upkeep"):
        health.fails(name, NO_SCHEMA)
    health.works("redrives")
    health.works("writer")
    assert said() == [FAILS]
    health.works("upkeep")
    health.works("upkeep")
    assert said() == [FAILS, WORKS]


def test_what_works_is_not_told(health, said):
    health.works("writer")
    assert said() == []


def test_a_new_failure_is_told_again_and_another_cause_by_itself(health, said):
    health.fails("writer", NO_SCHEMA)
    health.fails("writer", StoreUnavailable("away"))
    health.fails("writer", NO_SCHEMA)
    health.works("writer")
    health.fails("writer", NO_SCHEMA)
    away = ("ERROR", "dead letters go to the spool /srv/spool, and parked retries wait: away")
    assert said() == [FAILS, away, WORKS, FAILS]


def test_a_cause_whose_text_changes_with_each_try_floods_no_log(health, said):
    for number in range(1_000):
        health.fails("writer", StoreUnavailable(f"connection {number} was lost"))
    assert len(said()) == 5
