"""Workers that acknowledge early are killed with all their processes, again and again: each task that had
begun has ended, or has a letter.

``CELERY_DLQ_WORKER_KILLS`` and ``CELERY_DLQ_WORKER_TASKS`` set the numbers (``make kill-workers`` sets more),
and ``CELERY_DLQ_WORKER_PLAIN`` counts what plain Celery loses.
"""

from __future__ import annotations

import random
import time

import pytest
from killed import (
    IS_PLAIN,
    KILLS,
    LIFE_S,
    NOTICED_S,
    POOLS,
    TASKS,
    account_of,
    be_patient_with_the_broker,
    directories,
    send_noted,
    traces_of,
    wait_for_all,
    wait_for_recovery,
    worker,
    worker_with_a_run,
)

pytestmark = [
    pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(600 + 30 * KILLS + TASKS / 5),
]  # fmt: skip


@pytest.fixture(
    params=[
        "redis-sqlite",
        "rabbitmq-postgres",
        pytest.param("sqs-sqlite", marks=pytest.mark.nightly),
    ]
)
def project(request, make_project, urls_of):
    project = make_project(*urls_of(request.param), module="proj_recorded")
    be_patient_with_the_broker(project)
    if IS_PLAIN:
        project.environ["PROJ_PLAIN"] = "yes"
    return project


@pytest.mark.parametrize("pool", POOLS)
def test_a_task_that_had_begun_ends_or_has_a_letter(project, pool):
    chance = random.Random(f"{pool} {project.broker}")
    project.dlq.store.check_schema()
    send_noted(project, TASKS, chance)

    kills = []
    for _ in range(KILLS):
        with worker_with_a_run(project, *POOLS[pool], kills=kills):
            time.sleep(chance.uniform(0, LIFE_S))

    # On Redis, a worker with the gevent pool does not give back the messages of killed ones (celery#4976).
    with worker(project, *POOLS["prefork" if pool == "gevent" else pool]) as last:
        wait_for_all(project)
        wait_for_recovery(project, last)
        wait_for_all(project)
        last.terminate()
        last.wait(60)

    account = account_of(project, kills)
    print(f"\n{project.broker.partition(':')[0]} {pool}{' plain' * IS_PLAIN}: {account}")
    if IS_PLAIN:
        return
    assert not account.vanished, traces_of(project, account, account.vanished)
    assert not account.doubled
    assert {n: s for n, s in account.needless.items() if s > NOTICED_S} == {}
    assert not directories(project)
