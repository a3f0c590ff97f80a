"""A redrive that is killed again and again, at random moments, and each time continues in another process.

The short form is the default of the environment variables: ``CELERY_DLQ_KILLS`` and
``CELERY_DLQ_KILL_LETTERS`` (``make kills`` sets them for the long one).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager

import pytest
from project import HERE, wait_for
from sqlalchemy import create_engine, text
from support.factories import envelope, letter
from support.processes import kill_with_its_pool

from celery_dlq import DLQTask, Filter
from celery_dlq.model.operation import Guard, OperationState, Orders, Pacing
from celery_dlq.model.states import State

KILLS = int(os.environ.get("CELERY_DLQ_KILLS", "10"))
LETTERS = int(os.environ.get("CELERY_DLQ_KILL_LETTERS", "400"))
BATCH = 10
PATIENCE_S = 60.0 + LETTERS / 20

pytestmark = [
    pytest.mark.slow,
    pytest.mark.service,
    pytest.mark.timeout(2 * PATIENCE_S + 2 * KILLS),
]


@pytest.fixture(params=["redis", "rabbitmq"])
def project(request, make_project, redis_url, postgres_url):
    broker = (
        f"{redis_url}/9" if request.param == "redis" else request.getfixturevalue("rabbitmq_url")
    )
    project = make_project(broker, postgres_url, module="proj_effects")
    project.dlq.store.check_schema()
    with database(project) as connection:
        connection.execute(
            text("CREATE TABLE IF NOT EXISTS effect (queue VARCHAR(64), number INTEGER)")
        )
    with project.app.connection_for_write() as connection:
        connection.SimpleQueue(project.queue).clear()
    return project


@contextmanager
def database(project):
    engine = create_engine(project.store_url)
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def effects(project) -> Counter[int]:
    """How often each letter's task has run, according to its effects."""
    mine = text("SELECT number FROM effect WHERE queue = :queue")
    with database(project) as connection:
        return Counter(connection.execute(mine, {"queue": project.queue}).scalars())


def fill(project, number: int, task: str = "proj.effect") -> None:
    """Save ``number`` dead letters of ``task``."""
    project.app.task(name=task, base=DLQTask, shared=False)(_not_here)
    for start in range(0, number, 500):
        numbers = range(start, min(start + 500, number))
        project.dlq.store.letters.save([sendable(project, one, task) for one in numbers])


def _not_here(number):
    raise AssertionError("runs in a worker only")


def sendable(project, number: int, task: str):
    task_id = f"{project.queue}-{number}"
    sent = envelope(
        task_id,
        body=json.dumps([[number], {}, {}]).encode(),
        headers={"id": task_id, "task": task, "retries": 0, "lang": "py"},
        routing_key=project.queue,
        queue=project.queue,
    )
    return letter(task_id, task=task, envelope=sent)


def resolved(project) -> int:
    return project.count(states=frozenset({State.RESOLVED}))


@contextmanager
def redriver(project):
    """Continues an operation in a process of its own; returns whether that was killed."""
    process = subprocess.Popen(
        [sys.executable, str(HERE / "proj_effects.py")], env=project.environment,
        cwd=project.directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip

    def go_on(operation_id: str, claims: int | None = None) -> bool:
        process.stdin.write(f"{operation_id} {'' if claims is None else claims}\n")
        process.stdin.flush()
        status = int(process.stdout.readline())
        assert status in (0, -9), status
        return status == -9

    with process:
        yield go_on
        process.stdin.close()


def make_operation(project) -> str:
    orders = Orders(pacing=Pacing(batch=BATCH))
    wanted = Filter(queue=project.queue)
    operation = project.dlq.redrives.make(wanted, orders, who="tester", detached=False)
    assert operation.counts.planned == LETTERS
    return operation.id


def test_every_letter_is_resolved_and_none_runs_twice(project):
    fill(project, LETTERS)
    project.environ["PROJ_LOOK_S"] = "3600"  # the worker leaves it to the redrivers
    most = max(1, LETTERS // (KILLS * BATCH))
    operation_id, killed = make_operation(project), 0
    with project.worker("-c", "2"), redriver(project) as go_on:
        while killed < KILLS and go_on(operation_id, random.randint(1, most)):
            killed += 1
        assert not go_on(operation_id)
        wait_for("all to be resolved", lambda: resolved(project) == LETTERS, PATIENCE_S)
    assert effects(project) == dict.fromkeys(range(LETTERS), 1)
    operation = project.dlq.operation(operation_id)
    assert operation.state is OperationState.DONE
    assert (operation.counts.succeeded, operation.counts.left) == (LETTERS, 0)
    assert killed > KILLS / 2, "it was done before it could be killed"


def test_a_worker_that_is_killed_leaves_its_operation_to_another(project):
    """On a queue that no worker reads, so that the killed worker has sent messages and run none."""
    fill(project, 200)
    # So slow that it is not done before it is killed.
    orders = Orders(pacing=Pacing(batch=5, rate=40.0))
    made = project.dlq.redrive(
        Filter(queue=project.queue), who="tester", orders=orders, detach=True
    )
    process, log = project.start_worker("-c", "1", "-Q", "dlq-test-idle")
    wait_for("it to be under way", lambda: project.dlq.operation(made.id).counts.out >= 20)
    kill_with_its_pool(process)
    assert process.returncode == -9, log.read_text()
    assert project.dlq.operation(made.id).state is OperationState.RUNNING
    with project.worker("-c", "2"):
        wait_for("all to be resolved", lambda: resolved(project) == 200, PATIENCE_S)
        wait_for("the end", lambda: project.dlq.operation(made.id).state is OperationState.DONE)
    assert effects(project) == dict.fromkeys(range(200), 1)


def test_a_redrive_with_half_a_fix_is_stopped_within_canary_and_window(project):
    fill(project, 300, "proj.half_fixed")
    # With fewer outcomes to judge by, successes that come before the failures would make room for more.
    guard = Guard(window=40, least=40)
    orders = Orders(pacing=Pacing(canary=1, batch=10), guard=guard)
    with project.worker("-c", "2"):
        ended = project.dlq.redrive(Filter(queue=project.queue), who="tester", orders=orders)
    assert ended.state is OperationState.ABORTED
    assert "ValueError: odd" in ended.cause
    assert ended.counts.out <= 1 + 40
    assert ended.counts.left == 300 - ended.counts.out
    assert project.count(states=frozenset({State.DEAD})) >= ended.counts.left
