"""Commands on a machine whose clock is not the database's."""

from datetime import timedelta

import pytest
from support.factories import T0, attempt, letter

from celery_dlq.errors import StoreUnavailable
from celery_dlq.store.sql import SQLStore
from celery_dlq.view import times
from celery_dlq.view.times import ScreenClock


@pytest.fixture
def behind(monkeypatch):
    """This machine's clock is ten minutes behind; the database's stands an hour after T0."""
    clock = ScreenClock(lambda: T0 + timedelta(minutes=50))
    monkeypatch.setattr(times, "CLOCK", clock)
    monkeypatch.setattr(times, "utc_now", clock.now)
    monkeypatch.setattr(SQLStore, "clock_ahead", lambda _store: timedelta(minutes=10))


def test_a_span_is_measured_on_the_databases_clock(run, behind, queue):
    queue.store.letters.save([letter("a", attempt(minutes=25)), letter("b", attempt(minutes=35))])
    out = run("list", "--since", "30m").stdout
    assert "b" in out.split()
    assert "a" not in out.split()


def test_an_unreachable_store_is_reported_as_usual(run, behind, monkeypatch):
    def away(_store):
        raise StoreUnavailable("The dead-letter store does not answer")

    monkeypatch.setattr(SQLStore, "clock_ahead", away)
    result = run("list", "--since", "30m")
    assert (result.exit_code, result.stderr) == (
        3,
        "Error: The dead-letter store does not answer\n",
    )
