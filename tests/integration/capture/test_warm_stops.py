"""Workers that are asked to stop, again and again, while tasks wait: a message whose body has ended is
acknowledged, and one whose body has not begun is given back.

``CELERY_DLQ_WARM_STOPS`` sets how often each pair of broker and pool is stopped (``make warm-stops`` sets
more), and ``CELERY_DLQ_WORKER_PLAIN`` counts what plain Celery does.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest
from killed import (
    IS_PLAIN,
    POOLS,
    Notes,
    letters_of,
    read_notes,
    send_noted,
    wait_for_all,
    waiting,
    worker,
    worker_with_a_run,
)
from project import PATIENCE_S, Project, wait_for
from proxy import Proxy

STOPS = int(os.environ.get("CELERY_DLQ_WARM_STOPS", "3"))

#: Messages that are sent before each stop, more than a worker runs until then; the longest body; the longest
#: life of a worker after its first task has begun. In seconds; short bodies are handed out more often.
TASKS, BODY_S, LIFE_S = 120, 0.02, 0.25
#: Seconds in which a worker stops, even on a busy machine.
AT_MOST_S = 25

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(600 + 30 * STOPS)]


@dataclass
class Account:
    """What the tasks have noted when all is over, and what a warm stop must not do."""

    notes: Notes
    stops: int
    sent: int
    letters: set[int]
    #: Seconds.
    took: list[float]

    @property
    def ended_twice(self) -> list[int]:
        return sorted(number for number, times in self.notes.ended.items() if len(times) > 1)

    @property
    def lost(self) -> list[int]:
        """Tasks that have not ended, and have no letter."""
        return sorted(set(range(self.sent)) - self.notes.ended.keys() - self.letters)

    @property
    def cut_off(self) -> int:
        """Runs that began and did not end."""
        return self.notes.runs - sum(map(len, self.notes.ended.values()))

    def __str__(self) -> str:
        return (
            f"{self.stops} stops, {self.sent} tasks: {len(self.ended_twice)} ended twice, "
            f"{len(self.lost)} lost, {self.cut_off} runs cut off, {len(self.letters)} letters, "
            f"the slowest stop took {max(self.took):.1f} s"
        )


@pytest.fixture(params=["late", pytest.param("early", marks=pytest.mark.nightly)])
def acknowledges_late(request):
    return request.param == "late"


@pytest.fixture(params=["redis-sqlite", pytest.param("rabbitmq-sqlite", marks=pytest.mark.nightly)])
def project(request, make_project, urls_of, acknowledges_late):
    settings = {"task_acks_late": acknowledges_late, "worker_soft_shutdown_timeout": 0.1}
    project = make_project(*urls_of(request.param), module="proj_recorded", settings=settings)
    if IS_PLAIN:
        project.environ["PROJ_PLAIN"] = "yes"
    return project


@pytest.mark.parametrize(
    "pool",
    [pytest.param(pool, marks=() if pool == "prefork" else pytest.mark.nightly) for pool in POOLS],
)
def test_no_task_that_has_ended_runs_again(project, pool, acknowledges_late):
    account = stop_again_and_again(project, *POOLS[pool])

    broker, when = project.broker.partition(":")[0], "late" if acknowledges_late else "early"
    print(f"\n{broker} {pool} {when}{' plain' * IS_PLAIN}: {account}")
    if not IS_PLAIN:
        assert (account.ended_twice, account.lost, account.cut_off) == ([], [], 0)


@pytest.mark.nightly
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("way", ["soft", "cold", "short_lived"])
def test_no_task_that_has_ended_runs_again_whatever_ends_its_process(
    project, pool, way, acknowledges_late
):
    number = signal.SIGTERM if way == "short_lived" else signal.SIGQUIT
    if way == "cold":
        project.settings["worker_soft_shutdown_timeout"] = 0.0
    elif way == "short_lived":
        project.settings["worker_max_tasks_per_child"] = 3
    account = stop_again_and_again(project, *POOLS[pool], number=number)

    broker, when = project.broker.partition(":")[0], "late" if acknowledges_late else "early"
    print(f"\n{broker} {pool} {when} {way}{' plain' * IS_PLAIN}: {account}")
    if not IS_PLAIN:
        assert (account.ended_twice, account.lost) == ([], [])


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_a_task_that_runs_when_the_connection_is_lost_runs_once(project, pool, acknowledges_late):
    """One ends before the worker has a new connection, and one after it. Solo is left out: it notices only
    when its task has ended."""
    address = urlsplit(project.broker)
    proxy = Proxy(address.hostname, address.port)
    through = address._replace(netloc=address.netloc.replace(str(address.port), str(proxy.port)))
    project.environ["PROJ_BROKER"] = through.geturl()
    # Otherwise Celery fails to acknowledge on gevent: another greenlet reads the socket.
    project.settings["worker_enable_prefetch_count_reduction"] = False
    try:
        with project.worker(*POOLS[pool]):
            for number, name in enumerate(("sooner", "later")):
                project.send("noted_until", number, name)
            wait_for("both to begin", lambda: read_notes(project).runs == 2)
            if not acknowledges_late:
                wait_for("their acknowledgement", lambda: not waiting(project))
            proxy.cut()
            wait_for("the loss", lambda: "Connection to broker lost" in project.logged())
            project.fixed.with_name("sooner").touch()
            wait_for("one to end", lambda: read_notes(project).ended)
            proxy.restore()
            wait_for("a new connection", lambda: project.logged().count("Connected to ") == 2)
            project.fixed.with_name("later").touch()
            wait_for("both to end", lambda: len(read_notes(project).ended) == 2)
            wait_for_all(project)
    finally:
        proxy.close()
    assert [len(times) for times in read_notes(project).began.values()] == [1, 1]


@pytest.mark.parametrize("task", ["plain", "fails_long"])
def test_a_task_that_was_just_handed_out_ends_once(make_project, redis_url, task):
    project = make_project(f"{redis_url}/9", module="proj_deaf")
    with project.worker("-c", "2") as process:
        task_id = project.send(task)
        wait_for("the task to run", lambda: project.lines("runs"))
        # A process waits for 30 s if its results are not read; without that, the shutdown takes about two.
        assert _stop(process) < AT_MOST_S
    assert waiting(project) == 0, "Celery forgot that it runs, and gives it back"
    if task == "fails_long":
        project.wait_for_letter(task_id)


def test_a_task_that_was_partly_handed_out_ends_once(make_project, redis_url):
    """With plain Celery, the worker never ends."""
    project = make_project(f"{redis_url}/9", module="proj_deaf")
    with project.worker("-c", "1") as process:
        project.send("takes_text", "more than a pipe holds" * 50_000)
        wait_for("a full pipe", lambda: project.lines("partly"))
        assert _stop(process) < AT_MOST_S
    assert project.lines("runs") == [str(len("more than a pipe holds" * 50_000))]
    assert waiting(project) == 0


def stop_again_and_again(project: Project, *options: str, number: int = signal.SIGTERM) -> Account:
    """Stop a worker :data:`STOPS` times, and let a last one run what is left."""
    chance = random.Random(f"{options} {project.broker}")
    project.dlq.store.check_schema()
    took: list[float] = []
    for first in range(0, STOPS * TASKS, TASKS):
        send_noted(project, TASKS, chance, first=first, body_s=BODY_S)
        with worker_with_a_run(project, *options, kills=[]) as process:
            time.sleep(chance.uniform(0, LIFE_S))
            took.append(_stop(process, number))
    with worker(project, *options) as process:
        wait_for_all(project)
        took.append(_stop(process))
    letters = {int(letter.args[0]) for letter in letters_of(project)}
    return Account(read_notes(project), STOPS, STOPS * TASKS, letters, took)


def _stop(process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> float:
    """How long it takes to stop after signal ``number``, in seconds."""
    began = time.monotonic()
    process.send_signal(number)
    process.wait(PATIENCE_S)
    assert process.returncode == 0
    return time.monotonic() - began
