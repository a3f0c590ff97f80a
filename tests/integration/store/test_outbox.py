"""Messages that are written in the transactions of an application, whose processes are killed at random."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from project import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.service]

#: By night, 5,000 transactions of four processes, as the promise says.
ALL = bool(os.environ.get("CELERY_DLQ_TEST_ALL"))
TRANSACTIONS, PROCESSES = (5_000, 4) if ALL else (60, 2)

#: The longest life of a process after its first transaction, in seconds.
LIFE_S = 1.5 if ALL else 0.3


@pytest.fixture(params=["redis-postgres", "rabbitmq-postgres", "rabbitmq-mysql"])
def shop(request, make_project, urls_of):
    """A project whose store also has the shop's orders."""
    project = make_project(*urls_of(request.param), module="proj_outbox")
    project.dlq.store.check_schema()
    statements = (
        "DROP TABLE IF EXISTS shop_order",
        "CREATE TABLE shop_order (id INTEGER PRIMARY KEY)",
    )
    for statement in statements:
        run_sql(project, statement)
    yield project
    run_sql(project, statements[0])


def run_sql(project, statement):
    database = project.dlq.store.database
    return database.write(lambda one: [*map(tuple, _rows(one.execute(sa.text(statement))))])


def _rows(result):
    return result.all() if result.returns_rows else ()


def place_orders(project, kind, first, last, chance):
    """Place the orders from ``first`` to ``last`` by one process after another, each of which is killed;
    returns how many were."""
    kills = 0
    while first < last:
        command = [sys.executable, "-m", "proj_outbox", kind, str(first), str(last)]
        with subprocess.Popen(
            command, env=project.environment, cwd=project.directory, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            placed = [int(process.stdout.readline())]
            end = threading.Timer(chance.uniform(0, LIFE_S), process.kill)
            end.start()
            placed += map(int, process.stdout)
            end.cancel()
        assert process.returncode in (0, -9)
        kills += process.returncode == -9
        # The next one was perhaps placed, and perhaps not.
        first = placed[-1] + 2
    return kills


@pytest.mark.parametrize("kind", ["session", "django"])
def test_each_message_of_a_commit_runs_once_and_none_of_a_rollback(shop, kind):
    share = TRANSACTIONS // PROCESSES
    starts = [1 + number * share for number in range(PROCESSES)]
    with shop.worker("-c", "2"), ThreadPoolExecutor(PROCESSES) as threads:
        kills = sum(
            threads.map(
                lambda first: place_orders(shop, kind, first, first + share, random.Random(first)),
                starts,
            )
        )
        orders = {number for (number,) in run_sql(shop, "SELECT id FROM shop_order")}
        wait_for("the messages of all orders", lambda: orders <= delivered(shop).keys())
        wait_for("the releases", lambda: shop.parked() == 0)

    [(again,)] = run_sql(shop, "SELECT COUNT(*) FROM celery_dlq_parked WHERE copies > 1")
    print(f"{kills} processes killed, {len(orders)} orders, {again} sent again by a worker")
    assert kills
    assert not any(number % 3 == 0 for number in orders)
    assert len(orders) > TRANSACTIONS * 0.4
    assert delivered(shop) == Counter(orders)


def delivered(project) -> Counter[int]:
    return Counter(map(int, project.lines("delivered")))
