from __future__ import annotations

import contextlib
import io
import os
import pty
import termios

import pytest
from support.factories import letter

from celery_dlq.cli.letters import stats
from celery_dlq.errors import StoreUnavailable
from celery_dlq.metrics.snapshot import Snapshots
from celery_dlq.model.operation import OperationState
from celery_dlq.store.letters.monitoring import Monitoring

#: Seconds that a loaded machine may take for what takes none.
SOON_S = 60


class Patient(Snapshots):
    """Waits for a new answer at each look, so that the screen shows the current data."""

    def __init__(self, read, **options):
        super().__init__(read, **{**options, "fresh_s": 0.0})

    def look(self, wait_s):
        return super().look(SOON_S)


@pytest.fixture
def typed(monkeypatch, terminal):
    """The acts of a person at the screen, one per drawing of the screen."""
    acts: list[object] = []

    def key(within_s):
        act = acts.pop(0)
        return act() if callable(act) else act

    @contextlib.contextmanager
    def keys():
        yield key

    monkeypatch.setattr(stats, "pressed_keys", keys)
    monkeypatch.setattr(stats, "Snapshots", Patient)
    terminal.sit_down(width=110)
    monkeypatch.setenv("LINES", "40")
    return acts


def test_the_store_is_shown_until_q_is_pressed(run, three, typed):
    typed += ["", "x", "q"]
    result = run("watch", no_color=True)
    assert result.exit_code == 0
    for said in (
        "every 2s; press q to quit",
        "3 open letters",
        "charge",
        "Timeout",
        "No redrive is running.",
    ):
        assert said in result.stdout
    assert typed == []


def test_ctrl_c_ends_it(run, store, typed):
    def interrupt():
        raise KeyboardInterrupt

    typed.append(interrupt)
    result = run("watch")
    assert result.exit_code == 0
    assert "There are no open letters." in result.stdout


def test_redrives_that_may_still_send_are_shown(run, store, typed, operation):
    store.operations.create(operation("3fa91111aaaa", OperationState.PLANNED))
    typed.append("q")
    assert "3fa91111aaaa" in run("watch").stdout


def test_new_letters_appear(run, store, typed):
    def arrive():
        store.letters.save([letter("new")])
        return ""

    typed += [arrive, "q"]
    before, _, after = run("watch", no_color=True).stdout.rpartition("press q to quit")
    assert "0 open letters" in before
    assert "1 open letter" in after


def test_an_unreachable_store_is_reported_above_its_last_data(run, three, typed, monkeypatch):
    def fail(self, now):
        raise StoreUnavailable

    def go_away():
        monkeypatch.setattr(Monitoring, "stats", fail)
        return ""

    typed += [go_away, "q"]
    shown = run("watch", no_color=True).stdout.rpartition("press q to quit")[2]
    assert "The store does not answer. The data below is from" in shown
    assert "3 open letters" in shown


def test_a_store_that_never_answered_ends_it(run, app, typed):
    app.conf.dlq_store_url = "postgresql+psycopg://nobody@127.0.0.1:1/none"
    app.conf.dlq_store_timeout = 0.5
    assert run("watch").exit_code == 3


def test_without_a_terminal_it_says_what_to_use(run, store):
    result = run("watch")
    assert result.exit_code == 2
    assert "elsewhere, use: celery dlq stats" in " ".join(result.stderr.split())


@pytest.mark.parametrize("interval", ["0.1s", "often"])
def test_an_invalid_interval_is_refused(run, store, interval):
    assert run("watch", "--interval", interval).exit_code == 2


@pytest.fixture
def keyboard():
    """The two ends of a terminal: one to type on, one to read from."""
    typing, typed_on = pty.openpty()
    with os.fdopen(typed_on) as terminal:
        yield typing, terminal
    os.close(typing)


def test_a_key_is_read_without_enter(keyboard):
    typing, terminal = keyboard
    with stats.pressed_keys(terminal) as key:
        os.write(typing, b"xq")
        assert [key(60), key(60), key(0)] == ["x", "q", ""]


def test_the_terminal_is_restored(keyboard):
    _, terminal = keyboard
    before = termios.tcgetattr(terminal)
    within = []

    def interrupted():
        with stats.pressed_keys(terminal):
            within.append(termios.tcgetattr(terminal))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert within != [before]
    assert termios.tcgetattr(terminal) == before


def test_without_a_keyboard_it_only_waits(monkeypatch):
    slept = []
    monkeypatch.setattr(stats.time, "sleep", slept.append)
    with stats.pressed_keys(io.StringIO("q")) as key:
        assert key(0.7) == ""
    assert slept == [0.7]
