"""Letters whose tasks leave their effects in a table, and processes that redrive them and can be killed.

The short form of the tests is the default of the environment variables: ``CELERY_DLQ_KILLS`` and
``CELERY_DLQ_KILL_LETTERS`` (``make kills`` sets them for the long one).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager

from project import PROJECTS
from sqlalchemy import create_engine, text
from support.factories import envelope, letter

from celery_dlq import DLQTask
from celery_dlq.model.states import State

KILLS = int(os.environ.get("CELERY_DLQ_KILLS", "6"))
LETTERS = int(os.environ.get("CELERY_DLQ_KILL_LETTERS", "240"))
BATCH = 10
PATIENCE_S = 60.0 + LETTERS / 20


def with_effects(project):
    """The project with a schema, the table of effects, and an empty queue."""
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
    """The database with the table of effects."""
    engine = create_engine(project.environ.get("PROJ_EFFECTS", project.store_url))
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
        [sys.executable, str(PROJECTS / "proj_effects.py")], env=project.environment,
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
