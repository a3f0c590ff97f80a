"""Workers that acknowledge early are killed with all their processes, again and again: each task that had
begun has ended, or has a letter.

``CELERY_DLQ_WORKER_KILLS`` and ``CELERY_DLQ_WORKER_TASKS`` set the numbers (``make kills`` sets more), and
``CELERY_DLQ_WORKER_PLAIN`` counts what plain Celery loses.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from amqp.exceptions import ChannelError
from project import WORKER_OPTIONS, Project, wait_for

from celery_dlq import Filter
from celery_dlq.model.states import Reason, State

KILLS = int(os.environ.get("CELERY_DLQ_WORKER_KILLS", "6"))
TASKS = int(os.environ.get("CELERY_DLQ_WORKER_TASKS", "600"))
#: A test of what plain Celery loses would assert nothing.
IS_PLAIN = bool(os.environ.get("CELERY_DLQ_WORKER_PLAIN"))

#: The longest body, in seconds, and the longest life of a worker after its first task has begun.
BODY_S, LIFE_S = 0.05, 1.0
#: How long the parent may take to notice that a body has ended, in seconds. Beside other tests it takes
#: longer than alone, as `make kills` runs it.
NOTICED_S = float(os.environ.get("CELERY_DLQ_WORKER_NOTICED_S", "1.0"))
#: Seconds after which Redis gives unacknowledged messages back.
VISIBLE_AFTER_S = 5

POOLS = {
    "prefork": ("--pool", "prefork", "-c", "4"),
    "threads": ("--pool", "threads", "-c", "4"),
    "solo": ("--pool", "solo"),
}

pytestmark = [
    pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(300 + 15 * KILLS + TASKS / 10),
]  # fmt: skip


@dataclass
class Notes:
    """What the tasks have noted."""

    began: Counter[int] = field(default_factory=Counter)
    #: When a body ended first, in seconds since the epoch.
    ended: dict[int, float] = field(default_factory=dict)


def read_notes(path: Path) -> Notes:
    notes = Notes()
    for line in path.read_text().splitlines() if path.exists() else ():
        what, number, at = line.split()
        if what == "began":
            notes.began[int(number)] += 1
        else:
            notes.ended.setdefault(int(number), float(at))
    return notes


@pytest.fixture(params=["redis-sqlite", "rabbitmq-postgres"])
def project(request, make_project, urls_of):
    project = make_project(*urls_of(request.param), module="proj_recorded")
    transport = {"visibility_timeout": VISIBLE_AFTER_S} if "redis" in request.param else {}
    project.environ["PROJ_TRANSPORT"] = json.dumps(transport)
    # The test recovers files, too, and waits for the broker as long as the workers do.
    project.app.conf.broker_transport_options = {
        **project.app.conf.broker_transport_options,
        **transport,
    }
    if IS_PLAIN:
        project.environ["PROJ_PLAIN"] = "yes"
    return project


@contextlib.contextmanager
def worker(project: Project, *options: str):
    """A worker whose processes are a group of their own; they are killed at the end."""
    with (project.directory / "workers.log").open("ab") as log:
        process = subprocess.Popen(
            project.command("worker", "-n", f"{random.random()}@%h", *WORKER_OPTIONS, *options),
            env=project.environment, cwd=project.directory, stdout=log, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def has_begun_more(path: Path, before: int) -> bool:
    return read_notes(path).began.total() > before


def number_of(letter) -> int:
    return int(letter.args[0])


def lost_letters(project: Project) -> list:
    found, after = [], None
    while True:
        page = project.dlq.store.letters.find(
            Filter(states=frozenset(State), reason=Reason.LOST), limit=500, after=after
        )
        found += page.letters
        after = page.next
        if after is None:
            return found


@pytest.mark.parametrize("pool", POOLS)
def test_a_task_that_had_begun_ends_or_has_a_letter(project, pool):
    chance = random.Random(f"{pool} {project.broker}")
    path = project.directory / "notes"
    project.dlq.store.check_schema()
    with project.app.pool.acquire(block=True) as connection, connection.Producer() as producer:
        for number in range(TASKS):
            project.app.send_task(
                "proj.noted", (number, chance.uniform(0, BODY_S)), producer=producer
            )

    kills = []
    for _ in range(KILLS):
        before = read_notes(path).began.total()
        with worker(project, *POOLS[pool]):
            wait_for("a task to begin", partial(has_begun_more, path, before))
            time.sleep(chance.uniform(0, LIFE_S))
            kills.append(time.time())

    with worker(project, *POOLS[pool]) as last:

        def is_over():
            notes = read_notes(path)
            time.sleep(1)
            return notes.began.total() == read_notes(path).began.total() and queue_is_empty(project)

        wait_for("all tasks to end", is_over)
        wait_for(
            "the files to be recovered",
            lambda: list(project.dlq.recover()) is not None and len(files(project)) <= 1,
        )
        wait_for("all tasks to end", is_over)
        last.terminate()
        last.wait(60)

    notes, letters = read_notes(path), lost_letters(project)
    by_number = {number_of(letter): letter for letter in letters}
    open_ones = {n for n, one in by_number.items() if one.state is State.DEAD}
    vanished = set(notes.began) - set(notes.ended) - set(by_number)
    late = {
        number: kill - notes.ended[number]
        for number in by_number.keys() & notes.ended.keys()
        for kill in [min((k for k in kills if k > notes.ended[number]), default=0.0)]
    }
    print(
        f"\n{project.broker.partition(':')[0]} {pool}: {len(kills)} kills, {TASKS} tasks: "
        f"{len(notes.began)} began, {len(notes.ended)} ended, {len(by_number)} letters "
        f"({len(open_ones)} open), {len(vanished)} lost, "
        f"{sum(n > 1 for n in notes.began.values())} ran twice, "
        f"{TASKS - len(notes.began)} never began, "
        f"{len(late)} letters of ended tasks, at most {max(late.values(), default=0):.3f} s before the kill"
    )
    if IS_PLAIN:
        return
    assert not vanished
    assert {n: s for n, s in late.items() if s > NOTICED_S} == {}
    assert len(by_number) == len(letters)
    assert not files(project)


def files(project: Project) -> list[Path]:
    """The recorder's directories."""
    return list((project.directory / "spool" / "recorder").glob("*"))


def queue_is_empty(project: Project) -> bool:
    with project.app.connection_for_write() as connection:
        try:
            return (
                connection.default_channel.queue_declare(project.queue, passive=True).message_count
                == 0
            )
        except ChannelError:  # on Redis, an empty queue does not exist
            return True
