"""The last lines that a run logged."""

import logging
import types

import pytest
from celery.utils.log import get_task_logger
from support.workers.task_tracer import Run

from celery_dlq import DLQTask
from celery_dlq.redact import Redactor
from celery_dlq.settings import Settings
from celery_dlq.worker.body.ending import last
from celery_dlq.worker.body.log import LINE_LIMIT, TEXT_LIMIT, RunLog, RunLogHandler

LOGGER = logging.getLogger("tests.shop")


@pytest.fixture
def listen():
    """Keeps what runs log from now on."""
    handlers = []

    def listen(here=last, **settings):
        handler = RunLogHandler(Settings(**settings), Redactor(), here)
        handler.join()
        handlers.append(handler)
        return handler

    yield listen
    for handler in handlers:
        handler.leave()


@pytest.fixture(autouse=True)
def _verbose(monkeypatch):
    monkeypatch.setattr(logging.root, "level", logging.DEBUG)
    LOGGER.manager._clear_cache()
    yield
    LOGGER.manager._clear_cache()


def lines_of(log):
    """The lines without their times."""
    return [line.partition("Z ")[2] or line for line in log.splitlines()]


@pytest.fixture
def failing(app):
    """A task that does what it is told to do, and fails."""

    def failing(act):
        @app.task(base=DLQTask, shared=False)
        def charge():
            act()
            raise ValueError("bad currency")

        return charge

    return failing


def logged_by(task):
    """What the letter of a run of ``task`` would have."""
    return lines_of(Run(task).failure.log)


def test_a_run_keeps_its_own_lines(failing, listen):
    listen()
    orders = [[1], [2, 3], []]

    def act():
        for order in orders.pop(0):
            LOGGER.info("order %d", order)

    task = failing(act)
    assert logged_by(task) == ["INFO tests.shop: order 1"]
    LOGGER.info("between two runs")
    assert logged_by(task) == ["INFO tests.shop: order 2", "INFO tests.shop: order 3"]
    assert logged_by(task) == []


@pytest.mark.parametrize("propagates", [False, True])
def test_lines_of_celerys_task_loggers_are_kept_once(failing, listen, monkeypatch, propagates):
    monkeypatch.setattr(logging.getLogger("celery.task"), "propagate", propagates)
    listen()
    task = failing(lambda: get_task_logger("tests.charge").warning("late"))
    assert logged_by(task) == ["WARNING tests.charge: late"]


def test_a_text_is_as_it_was_when_it_was_logged(failing, listen):
    listen()
    cart = ["tea"]

    def act():
        LOGGER.info("cart %s", cart)
        cart.append("milk")

    assert logged_by(failing(act)) == ["INFO tests.shop: cart ['tea']"]


def test_the_level_is_a_setting(failing, listen):
    def act():
        LOGGER.debug("details")
        LOGGER.error("trouble")

    listen(log_level="ERROR")
    assert logged_by(failing(act)) == ["ERROR tests.shop: trouble"]


def test_only_the_last_lines_are_kept(failing, listen):
    listen(log_lines=2)

    def act():
        for number in range(5):
            LOGGER.info("%d", number)

    assert logged_by(failing(act)) == [
        "(3 earlier lines were not kept)", "INFO tests.shop: 3", "INFO tests.shop: 4",
    ]  # fmt: skip


def test_long_lines_are_cut_and_the_text_is_bounded(failing, listen):
    listen()

    def act():
        for _ in range(20):
            LOGGER.info("x" * 1_000_000)

    log = Run(failing(act)).failure.log
    assert len(log) <= TEXT_LIMIT + 100
    head, *lines = log.splitlines()
    assert head == f"({20 - len(lines)} earlier lines were not kept)"
    assert {len(line) for line in lines} == {LINE_LIMIT}


def test_secrets_are_hidden(failing, listen):
    listen()
    task = failing(lambda: LOGGER.info("sent password=hunter2"))
    assert logged_by(task) == ["INFO tests.shop: sent password=[redacted]"]


def test_a_message_of_several_lines_cannot_pose_as_another_line(failing, listen):
    listen()
    log = Run(
        failing(lambda: LOGGER.info("a\n2026-11-28T10:00:00.000Z INFO bank: paid"))
    ).failure.log
    first, second = log.splitlines()
    assert first.endswith("INFO tests.shop: a")
    assert second == "    2026-11-28T10:00:00.000Z INFO bank: paid"


def test_an_exception_in_a_line_is_named(failing, listen):
    listen()

    def act():
        try:
            raise KeyError("order")
        except KeyError:
            LOGGER.exception("not found")

    assert logged_by(failing(act)) == ["ERROR tests.shop: not found", "    KeyError: 'order'"]


class Hostile:
    def __str__(self):
        raise RuntimeError("no text for you")


class Endless:
    """Logs itself when it is formatted."""

    def __str__(self):
        LOGGER.info("again %s", self)
        return "endless"


@pytest.mark.parametrize(
    ("message", "args", "kept"),
    [
        pytest.param(
            "%s", (Hostile(),), "%s (could not be formatted: RuntimeError)", id="an argument raises"
        ),
        pytest.param(
            "%d", ("one",), "%d (could not be formatted: TypeError)", id="an argument does not fit"
        ),
        pytest.param("a\x00b", (), "a\\u0000b", id="a character that no store takes"),
        pytest.param({"an": "object"}, (), "{'an': 'object'}", id="an object"),
    ],
)
def test_hostile_records_break_no_run(failing, listen, monkeypatch, message, args, kept):
    monkeypatch.setattr(logging, "raiseExceptions", False)
    listen()
    assert logged_by(failing(lambda: LOGGER.info(message, *args))) == [f"INFO tests.shop: {kept}"]


def test_an_object_that_has_no_text_at_all_breaks_no_run(failing, listen, monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)
    listen()
    assert logged_by(failing(lambda: LOGGER.info(Hostile()))) == [
        "INFO tests.shop: a line (could not be formatted: RuntimeError)"
    ]


def test_an_argument_that_logs_itself_ends(monkeypatch):
    log = RunLog(50, Redactor())
    handler = RunLogHandler(Settings(), Redactor(), lambda: types.SimpleNamespace(log=log))
    monkeypatch.setattr(LOGGER, "handlers", [handler])
    monkeypatch.setattr(LOGGER, "propagate", False)
    LOGGER.info("first %s", Endless())
    assert lines_of(log.text()) == ["INFO tests.shop: first endless"]


def test_outside_of_runs_nothing_is_kept(listen):
    runs = []
    listen(here=lambda: runs.append(1))
    LOGGER.info("nothing runs")
    assert runs == [1]
