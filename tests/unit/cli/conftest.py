"""A command line over a real store: SQLite in the test's own directory, and a fixed clock."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from celery.bin.base import CLIContext
from click.testing import CliRunner
from support.factories import T0, attempt, envelope, letter

from celery_dlq.api import groups
from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.cli import dlq, selection
from celery_dlq.cli.doctor import broker
from celery_dlq.cli.letters import inspect
from celery_dlq.cli.screens import progress, render
from celery_dlq.model.operation import Counts, OperationState, Orders
from celery_dlq.model.states import State
from celery_dlq.redrive.letter import functions
from celery_dlq.store.base import Filter, Operation
from celery_dlq.store.letters import pages
from celery_dlq.store.sql import SQLStore
from celery_dlq.view import times

#: The present, as the commands see it.
NOW = T0 + timedelta(hours=1)


def operation(
    operation_id="3fa91111aaaa",
    state=OperationState.DONE,
    *,
    planned=3,
    sent=0,
    succeeded=0,
    failed=0,
    unknown=0,
    skipped=0,
    sending=0,
    **changes,
):
    """An operation with these numbers of letters in each state; ``sent`` ones have no outcome yet."""
    counts = Counts(
        planned=planned, sending=sending, sent=sent, succeeded=succeeded, failed=failed,
        unknown=unknown, skipped=skipped,
    )  # fmt: skip
    values = {
        "wanted": Filter(states=frozenset({State.DEAD}), until=NOW), "orders": Orders(), "who": "ada",
        "host": "desk:7", "created_at": T0, **changes,
    }  # fmt: skip
    return Operation(id=operation_id, state=state, counts=counts, **values)


@pytest.fixture(name="operation")
def operation_maker():
    return operation


@pytest.fixture
def held(store):
    """Lets another operator's redrive hold this many letters until a moment; returns it."""

    def held(limit, until=T0 + timedelta(days=9_999)):
        other = operation("77aa00000000", OperationState.PLANNED, planned=limit, who="bob")
        store.operations.create(other)
        running = store.operations.move(other.id, OperationState.RUNNING, who="bob", now=T0)
        store.claims.take(running, token="other", lease_until=until, limit=limit, now=T0)
        return running

    return held


@pytest.fixture(autouse=True)
def still_clock(monkeypatch):
    monkeypatch.setattr(times, "utc_now", lambda: NOW)
    monkeypatch.setattr(SQLStore, "now", lambda _store: NOW)
    monkeypatch.setenv("TZ", "UTC")


#: Seconds after which a command answers with what it has, or gives up. A busy machine may need more.
PATIENCE = [
    (functions, "TIMEOUT_S"), (groups, "_MOVE_FOR_S"), (inspect, "_PATIENCE_S"),
    (inspect, "_CLOSED_PATIENCE_S"), (pages, "QUICK_S"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def time_enough(monkeypatch):
    """Each command has the time that it needs. None pauses, or waits for workers, which do not run here."""
    for module, name in PATIENCE:
        monkeypatch.setattr(module, name, 60.0)
    # With 0 seconds, Celery would wait for its default.
    monkeypatch.setattr(broker, "_ANSWERS_S", 0.01)
    monkeypatch.setattr("celery_dlq.store.base.SHARE", 1.0)


@pytest.fixture
def app(shop_app):
    return shop_app


@pytest.fixture
def queue(app):
    return DeadLetterQueue.of(app)


@pytest.fixture
def store(queue):
    return queue.store


@pytest.fixture
def three(store):
    """Three open letters of two causes, the newest last; returns their ids."""
    timeout = attempt(minutes=30, exception_type="requests.exceptions.Timeout", message="too slow")
    store.letters.save(
        [
            letter("0d3f1111-aaaa", attempt(1, delay_s=0.4), attempt(2, minutes=10)),
            letter("0d3f2222-bbbb", attempt(minutes=20)),
            letter(
                "77e1",
                timeout,
                exception_type="requests.exceptions.Timeout",
                message="too slow",
                fingerprint="aaaa000000000000",
                task="shop.mail",
                envelope=envelope("77e1", queue="mail", routing_key="mail"),
            ),
        ]
    )
    return ["0d3f1111-aaaa", "0d3f2222-bbbb", "77e1"]


class Terminal:
    """Makes stdin, stdout and stderr a terminal of some width."""

    def __init__(self, monkeypatch):
        self._monkeypatch = monkeypatch

    def sit_down(self, *, width=120, stdin=True, stdout=True, stderr=True):
        answers = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
        names = {"<stdin>": "stdin", "<stdout>": "stdout", "<stderr>": "stderr"}

        def is_terminal(stream):
            return answers[names.get(getattr(stream, "name", ""), "stdin")]

        for module in (render, selection, progress):
            self._monkeypatch.setattr(module, "is_terminal", is_terminal)
        self._monkeypatch.setenv("COLUMNS", str(width))
        self._monkeypatch.setenv("TERM", "xterm-256color")
        self._monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.fixture
def terminal(monkeypatch):
    return Terminal(monkeypatch)


@pytest.fixture
def while_asked(monkeypatch, terminal):
    """Does something while a person is asked, who then says yes."""

    def while_asked(act):
        def confirm(*_args, **_options):
            act()
            return True

        terminal.sit_down(stderr=False)
        monkeypatch.setattr(selection.click, "confirm", confirm)

    return while_asked


@pytest.fixture
def run(app):
    """Runs a command; the result of click's runner."""

    def run(*args, no_color=False, quiet=False, answer=None, color=False):
        context = CLIContext(app=app, no_color=no_color, workdir=None, quiet=quiet)
        result = CliRunner().invoke(
            dlq, [str(arg) for arg in args], obj=context, input=answer, color=color
        )
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@pytest.fixture
def read(run):
    """Runs a command with ``--format json``; returns its output."""

    def read(*args):
        result = run(*args, "--format", "json")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    return read
