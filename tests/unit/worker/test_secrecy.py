"""With a ring, the log of a worker has no contents: neither Celery's lines nor those of this package."""

from __future__ import annotations

import io
import logging
from types import SimpleNamespace

import pytest
from billiard.exceptions import WorkerLostError
from celery.app import trace
from celery.worker.consumer import consumer

from celery_dlq.base.sealing import Keyring
from celery_dlq.errors import StoreUnavailable, TaskAborted
from celery_dlq.worker import secrecy
from celery_dlq.worker.end.letters import safely
from celery_dlq.worker.secrecy import HIDDEN, hidden, keep_from_log, traceback_in_log

RING = Keyring({"one": b"o" * 32})
SECRET = "4929-1111"


@pytest.fixture
def keeps(monkeypatch):
    before = logging.getLogRecordFactory()
    monkeypatch.setattr(secrecy, "_ring", None)
    keep_from_log(
        RING,
        {"shop.charge": SimpleNamespace(_makes_letters=True), "shop.plain": SimpleNamespace()},
    )
    yield
    logging.setLogRecordFactory(before)


@pytest.fixture
def written():
    """What is in the log, as a handler formats it."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger().addHandler(handler)
    loggers = [
        logging.getLogger(name) for name in ("celery.app.trace", "celery.worker", "celery_dlq.x")
    ]
    for logger in loggers:
        logger.propagate, logger.disabled = True, False
    yield stream
    logging.getLogger().removeHandler(handler)


def raised(error=None):
    try:
        try:
            raise KeyError(SECRET)
        except KeyError as cause:
            raise error or ValueError(SECRET) from cause
    except Exception as exc:
        return exc


def test_celerys_line_about_a_failure_has_the_types_and_places_only(keeps, written):
    exc = raised()
    facts = {
        "name": "shop.charge", "id": "one", "exc": repr(exc), "traceback": f"ValueError: {SECRET}",
        "args": f"('{SECRET}',)", "kwargs": "{}", "description": "raised unexpected", "internal": False,
    }  # fmt: skip
    found = []
    trace.logger.addFilter(keep := lambda record: found.append(record) or True)
    trace.logger.log(
        logging.ERROR,
        trace.log_policy_unexpected.format,
        facts,
        exc_info=exc,
        extra={"data": facts},
    )
    trace.logger.removeFilter(keep)
    text = written.getvalue()
    assert SECRET not in text
    assert SECRET not in repr(vars(found[0])), "handlers of the user's own read these"
    assert f"Task shop.charge[one] raised unexpected: ValueError {HIDDEN}" in text
    assert "test_secrecy.py" in text
    assert f"KeyError: {HIDDEN}" in text
    assert f"ValueError: {HIDDEN}" in text


def test_a_task_that_makes_no_letters_keeps_its_lines(keeps, written):
    facts = {"name": "shop.plain", "id": "one", "exc": SECRET, "description": "raised unexpected"}
    trace.logger.log(
        logging.ERROR,
        trace.log_policy_unexpected.format,
        facts,
        exc_info=raised(),
        extra={"data": facts},
    )
    assert f"raised unexpected: {SECRET}" in written.getvalue()
    assert f"ValueError: {SECRET}" in written.getvalue()


@pytest.mark.parametrize("error", [raised(), raised(TaskAborted(f"ValueError: {SECRET}"))])
def test_our_own_lines_have_no_messages_of_exceptions(keeps, written, error):
    logging.getLogger("celery_dlq.x").error("a hook failed", exc_info=error)
    assert SECRET not in written.getvalue()
    assert f"{HIDDEN}\n" in written.getvalue()
    assert SECRET not in traceback_in_log(error)


def test_errors_of_the_store_and_of_the_pool_keep_their_messages(keeps, written):
    lost = WorkerLostError("signal 9")
    logging.getLogger("celery.worker.request").error("Task handler raised error: %r", lost)
    assert "signal 9" in written.getvalue()
    logging.getLogger("celery_dlq.x").error("no", exc_info=StoreUnavailable("it does not answer"))
    assert "StoreUnavailable: it does not answer" in written.getvalue()


def test_dumps_of_messages_have_no_contents(keeps, written):
    log, exc = consumer.logger, raised()
    log.error(consumer.UNKNOWN_TASK_ERROR, KeyError("shop.gone"), SECRET, {"id": SECRET}, {})
    log.critical(consumer.MESSAGE_DECODE_ERROR, exc, "json", "utf-8", SECRET, SECRET, exc_info=exc)
    log.warning(consumer.UNKNOWN_FORMAT, SECRET)
    log.error(consumer.INVALID_TASK_ERROR, exc, SECRET, exc_info=exc)
    logging.getLogger("celery.worker.request").error(
        "Task handler raised error: %r", KeyError(SECRET)
    )
    logging.getLogger("celery.worker.strategy").error("Couldn't convert %r", {"args": SECRET})
    assert SECRET not in written.getvalue()
    assert "unregistered task of type 'shop.gone'" in written.getvalue()


def test_other_lines_are_as_before(keeps, written):
    logging.getLogger("shop").error("no %s", SECRET, exc_info=raised())
    consumer.logger.error(
        consumer.CONNECTION_ERROR, "redis://", ConnectionError("refused"), "Again"
    )
    logging.getLogger("celery_dlq.x").warning("%s of %d", "one", 2)
    assert written.getvalue().count(SECRET) == 3
    assert "redis://: refused" in written.getvalue()
    assert "one of 2" in written.getvalue()


def test_a_message_whose_letter_cannot_be_made_is_in_the_log_encrypted(keeps, caplog):
    def fail():
        raise ValueError(SECRET)

    assert safely(SimpleNamespace(body=SECRET, headers={"a": 1}), fail) is None
    assert SECRET not in caplog.text
    token = caplog.records[0].getMessage().rpartition(" ")[2]
    assert RING.open(token, "log") == f"body='{SECRET}' headers={{'a': 1}}"


def test_without_a_ring_nothing_is_hidden():
    assert hidden(SECRET) == SECRET
    assert SECRET in traceback_in_log(raised())
