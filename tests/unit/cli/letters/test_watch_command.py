from __future__ import annotations

import pytest
from support.factories import letter

from celery_dlq.cli.letters import stats
from celery_dlq.errors import StoreUnavailable
from celery_dlq.model.operation import OperationState
from celery_dlq.store.letters.monitoring import Monitoring


@pytest.fixture
def between(monkeypatch, terminal):
    """What happens between the drawings of the screen, until Ctrl-C."""
    acts: list[object] = []

    def sleep(seconds):
        if not acts:
            raise KeyboardInterrupt
        acts.pop(0)()

    monkeypatch.setattr(stats, "sleep", sleep)
    terminal.sit_down(width=110)
    monkeypatch.setenv("LINES", "40")
    return acts


def test_the_store_is_shown_until_ctrl_c_is_pressed(run, three, between):
    result = run("watch", no_color=True)
    assert result.exit_code == 0
    for said in (
        "every 2s; press Ctrl-C to quit",
        "3 open letters",
        "charge",
        "Timeout",
    ):
        assert said in result.stdout


def test_an_empty_store_is_shown(run, store, between):
    assert "No group has open letters." in run("watch").stdout


def test_redrives_that_may_still_send_are_shown(run, store, between, operation):
    store.operations.create(operation("3fa91111aaaa", OperationState.PLANNED))
    assert "3fa91111aaaa" in run("watch").stdout


def test_new_letters_appear(run, store, between):
    def arrive():
        store.letters.save([letter("new")])

    between.append(arrive)
    before, _, after = run("watch", no_color=True).stdout.rpartition("press Ctrl-C to quit")
    assert "0 open letters" in before
    assert "1 open letter" in after


def test_an_unreachable_store_is_reported_above_its_last_data(run, three, between, monkeypatch):
    def fail(self, now):
        raise StoreUnavailable

    def go_away():
        monkeypatch.setattr(Monitoring, "stats", fail)

    between.append(go_away)
    shown = run("watch", no_color=True).stdout.rpartition("press Ctrl-C to quit")[2]
    assert "The data below is from" in shown
    assert "3 open letters" in shown


def test_a_store_that_never_answered_ends_it(run, app, between):
    app.conf.dlq_store_url = "postgresql+psycopg://nobody@127.0.0.1:1/none"
    app.conf.dlq_store_timeout = 0.5
    assert run("watch").exit_code == 3


def test_without_a_terminal_it_says_what_to_use(run, store):
    result = run("watch")
    assert result.exit_code == 2
    assert "elsewhere, use: celery dlq stats" in " ".join(result.stderr.split())
