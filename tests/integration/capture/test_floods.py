"""Failures come faster than the store takes letters: memory stays bounded, and the worker answers."""

import contextlib
import sqlite3
import time

import pytest
from project import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.service]

#: As in ``proj_small_queue``.
QUEUE_SIZE, BATCH = 50, 10
#: Letters in addition to those that wait: a batch that is being written, and what the pool holds and runs.
UNDER_WAY = BATCH + 8 + 2


@pytest.fixture(params=["redis", "rabbitmq"])
def flooded(request, make_project, redis_url):
    redis = request.param == "redis"
    broker = f"{redis_url}/9" if redis else request.getfixturevalue("rabbitmq_url")
    return make_project(broker, module="proj_small_queue", settings={"dlq_store_timeout": 300.0})


@contextlib.contextmanager
def locked(project):
    """No one else can write to the store; a process that tries has to wait."""
    connection = sqlite3.connect(project.directory / "store.sqlite3", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


def test_a_stuck_store_stops_the_flood_and_not_the_worker(flooded):
    sent = 400
    with flooded.worker("-P", "prefork", "-c", "2"):
        flooded.wait_for_letter(flooded.send("terminal"))
        with locked(flooded):
            for number in range(sent):
                flooded.send("terminal", number)
            wait_for("the writer to be full", lambda: flooded.statistics()["held"])
            time.sleep(1)  # in which the flood would continue
            seen = flooded.statistics()
            assert QUEUE_SIZE <= seen["unwritten"] <= QUEUE_SIZE + UNDER_WAY
            assert seen["held"]
        wait_for("all letters", lambda: flooded.count() == sent + 1)


def test_a_store_that_is_still_stuck_at_the_shutdown_loses_nothing(flooded):
    sent = 200
    flooded.settings["dlq_store_timeout"] = 1.0
    with flooded.worker("-P", "prefork", "-c", "2"):
        flooded.wait_for_letter(flooded.send("terminal"))
        with locked(flooded):
            for number in range(sent):
                flooded.send("terminal", number)
            wait_for("the spool", lambda: list((flooded.directory / "spool").glob("*.jsonl")))
    with flooded.worker("-P", "prefork", "-c", "2"):
        wait_for("all letters", lambda: flooded.count() > sent)
    assert flooded.count() == sent + 1
