"""The lines that a run logged."""

import contextlib
import json
import logging
import sys
import types

import pytest
from celery.utils.log import LoggingProxy, get_task_logger
from support.workers.task_tracer import Run

from celery_dlq import DLQTask
from celery_dlq.base.redact import Redactor
from celery_dlq.settings import Settings
from celery_dlq.worker.body.ending import last_run
from celery_dlq.worker.body.log import LINE_LIMIT, TEXT_LIMIT, RunLog, RunLogHandler

LOGGER = logging.getLogger("tests.shop")
PRINTED = logging.getLogger("celery.redirected")


@pytest.fixture
def listen():
    """Keeps what runs log from now on."""
    handlers = []

    def listen(here=last_run, **settings):
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


def printing(act):
    """``act`` in a process of a worker, where Celery logs what is printed."""

    def printed():
        with contextlib.redirect_stdout(LoggingProxy(PRINTED, "WARNING")):
            act()

    return printed


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


def test_the_first_and_the_last_lines_are_kept(failing, listen):
    listen(log_lines=3)

    def act():
        for number in range(6):
            LOGGER.info("%d", number)

    assert logged_by(failing(act)) == [
        "INFO tests.shop: 0", "(3 lines were not kept)", "INFO tests.shop: 4", "INFO tests.shop: 5",
    ]  # fmt: skip


def test_with_one_line_the_last_one_is_kept(failing, listen):
    listen(log_lines=1)

    def act():
        LOGGER.info("first")
        LOGGER.info("second")

    assert logged_by(failing(act)) == ["(1 line was not kept)", "INFO tests.shop: second"]


def test_warnings_come_first_then_printed_lines(failing, listen):
    listen(log_lines=4)
    library = logging.getLogger("tests.chatty")

    def act():
        for number in range(100):
            library.info("request %d", number)
            if number == 10:
                LOGGER.warning("the bank is slow")
            if number == 50:
                print("order", 4711)
            if number == 60:
                LOGGER.error("the bank is away")

    assert logged_by(failing(printing(act))) == [
        "(11 lines were not kept)",
        "WARNING tests.shop: the bank is slow",
        "(40 lines were not kept)",
        "WARNING celery.redirected: order 4711",
        "(10 lines were not kept)",
        "ERROR tests.shop: the bank is away",
        "(38 lines were not kept)",
        "INFO tests.chatty: request 99",
    ]


def test_of_many_warnings_the_first_and_the_last_ones_are_kept(failing, listen):
    listen(log_lines=2)

    def act():
        for number in range(5):
            LOGGER.warning("%d", number)
        LOGGER.info("the last line")

    assert logged_by(failing(act)) == [
        "WARNING tests.shop: 0", "(3 lines were not kept)", "WARNING tests.shop: 4", "(1 line was not kept)",
    ]  # fmt: skip


@pytest.mark.parametrize("lines", [1, 7, 50])
def test_a_run_keeps_a_bounded_number_of_lines(lines):
    log = RunLog(lines, Redactor())
    for number in range(10_000):
        level = (logging.INFO, logging.WARNING)[number % 2]
        log.add(logging.LogRecord("shop", level, "", 0, str(number), (), None))
    assert max(map(len, log._kinds)) == lines
    assert len([line for line in log.text().splitlines() if "shop: " in line]) == lines


def print_pieces():
    print("order", 4711, "is late", sep=", ")
    for text in ("tea", "milk"):
        print(text)
    print()
    print("no end", end="")


@pytest.mark.parametrize(
    ("act", "printed"),
    [
        pytest.param(lambda: print("order", 4711), ["order 4711"], id="several arguments"),
        pytest.param(
            print_pieces, ["order, 4711, is late", "tea", "milk", "no end"], id="several calls"
        ),
        pytest.param(
            lambda: json.dump({"id": [1, 2]}, sys.stdout), ['{"id": [1, 2]}'], id="many writes"
        ),
        pytest.param(
            lambda: print("password=", "hunter2", sep=""), ["password=[redacted]"], id="a secret"
        ),
    ],
)
def test_one_print_is_one_line(failing, listen, act, printed):
    listen()
    assert logged_by(failing(printing(act))) == [
        f"WARNING celery.redirected: {line}" for line in printed
    ]


def test_a_printed_line_stands_where_it_began(failing, listen):
    listen()

    def act():
        print("sending", end=" ")
        LOGGER.info("connected")
        print("done")

    assert logged_by(failing(printing(act))) == [
        "WARNING celery.redirected: sending done", "INFO tests.shop: connected",
    ]  # fmt: skip


def test_a_print_without_an_end_becomes_another_line_when_it_is_long(failing, listen):
    listen()

    def act():
        for _ in range(3 * LINE_LIMIT // 8):
            print("01234567", end="")

    lines = logged_by(failing(printing(act)))
    assert len(lines) == 3
    assert all(line.startswith("WARNING celery.redirected: 01234567") for line in lines)


def test_a_worker_that_has_ended_leaves_celerys_proxy_as_it_was(listen):
    before = LoggingProxy.write
    handler = listen()
    assert LoggingProxy.write is not before
    handler.leave()
    assert LoggingProxy.write is before


def test_long_lines_are_cut_and_the_text_is_bounded(failing, listen):
    listen()

    def act():
        for _ in range(20):
            LOGGER.info("x" * 1_000_000)

    log = Run(failing(act)).failure.log
    assert len(log) <= TEXT_LIMIT
    first, remark, *lines = log.splitlines()
    assert remark == f"({19 - len(lines)} lines were not kept)"
    assert {len(line) for line in (first, *lines)} == {LINE_LIMIT}


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
