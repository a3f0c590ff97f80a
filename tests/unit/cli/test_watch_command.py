from __future__ import annotations

import contextlib

import pytest
from factories import letter

from celery_dlq.cli import watch
from celery_dlq.errors import StoreUnavailable
from celery_dlq.metrics.snapshot import Snapshots
from celery_dlq.operation import OperationState
from celery_dlq.store.sql import SQLStore

#: Seconds that a loaded machine may take for what takes none.
SOON_S = 60


class Patient(Snapshots):
    """Waits for a new answer at each look, so that what is drawn is what there is."""

    def __init__(self, read, **options):
        super().__init__(read, **{**options, "fresh_s": 0.0})

    def look(self, wait_s):
        return super().look(SOON_S)


@pytest.fixture
def typed(monkeypatch, terminal):
    """Somebody in front of the screen: what they do, one thing for each time the screen is drawn."""
    acts: list[object] = []

    def key(within_s):
        act = acts.pop(0)
        return act() if callable(act) else act

    @contextlib.contextmanager
    def keys():
        yield key

    monkeypatch.setattr(watch, "pressed_keys", keys)
    monkeypatch.setattr(watch, "Snapshots", Patient)
    terminal.sit_down(width=110)
    monkeypatch.setenv("LINES", "40")
    return acts


def test_the_store_is_shown_until_q_is_pressed(run, three, typed):
    typed += ["", "x", "q"]
    result = run("watch", no_color=True)
    assert result.exit_code == 0
    for said in (
        "every 2s; q ends",
        "3 open letters",
        "charge",
        "Timeout",
        "No redrive is under way.",
    ):
        assert said in result.stdout
    assert typed == []


def test_ctrl_c_ends_it_as_well(run, store, typed):
    def interrupt():
        raise KeyboardInterrupt

    typed.append(interrupt)
    result = run("watch")
    assert result.exit_code == 0
    assert "No letter is open." in result.stdout


def test_redrives_that_may_still_send_are_shown(run, store, typed, operation):
    store.create_operation(operation("3fa91111aaaa", OperationState.PLANNED))
    typed.append("q")
    assert "3fa91111aaaa" in run("watch").stdout


def test_what_comes_is_shown(run, store, typed):
    def arrive():
        store.save([letter("new")])
        return ""

    typed += [arrive, "q"]
    before, _, after = run("watch", no_color=True).stdout.rpartition("q ends")
    assert "0 open letters" in before
    assert "1 open letter" in after


def test_a_store_that_goes_away_is_said_above_what_it_said_last(run, three, typed, monkeypatch):
    def fail(self, now):
        raise StoreUnavailable

    def go_away():
        monkeypatch.setattr(SQLStore, "stats", fail)
        return ""

    typed += [go_away, "q"]
    shown = run("watch", no_color=True).stdout.rpartition("q ends")[2]
    assert "The store does not answer. What follows is as it was at" in shown
    assert "3 open letters" in shown


def test_a_store_that_never_answered_ends_it(run, app, typed):
    app.conf.dlq_store_url = "postgresql+psycopg://nobody@127.0.0.1:1/none"
    app.conf.dlq_store_timeout = 0.5
    assert run("watch").exit_code == 3


def test_without_a_terminal_it_says_what_to_use(run, store):
    result = run("watch")
    assert result.exit_code == 2
    assert "elsewhere use: celery dlq stats" in " ".join(result.stderr.split())


@pytest.mark.parametrize("interval", ["0.1s", "often"])
def test_an_interval_that_is_none_is_refused(run, store, interval):
    assert run("watch", "--interval", interval).exit_code == 2
