"""Workers that take a message from Redis and note it in one step, and the gap if Redis refuses that.

``CELERY_DLQ_TAKE_KILLS`` sets how often workers are killed at random moments.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from functools import partial

import pytest
import redis
from killed import directories
from project import WORKER_OPTIONS, Project, wait_for
from queues import redis_options
from support.servers.own_redis import own_redis

KILLS = int(os.environ.get("CELERY_DLQ_TAKE_KILLS", "4"))
#: Messages of the test that kills at random, and a worker's longest life after its first task, in seconds.
TASKS, LIFE_S = 500, 0.3

POOLS = {
    "prefork": ("--pool", "prefork", "-c", "2"),
    "threads": ("--pool", "threads", "-c", "2"),
    "solo": ("--pool", "solo"),
    "gevent": ("--pool", "gevent", "-c", "2"),
}

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(300)]


@pytest.fixture
def project(make_project, redis_url):
    return take_project(make_project, f"{redis_url}/9")


def take_project(make_project, url: str) -> Project:
    """A project with late acknowledgement, so that a message can vanish only before it is noted."""
    project = make_project(url, module="proj_take")
    # Longer than any test waits, so that a message comes back only if it is given back.
    project.environ["PROJ_TRANSPORT"] = json.dumps({"visibility_timeout": 3_600})
    project.settings.update(task_acks_late=True, dlq_max_deliveries=1_000)
    project.dlq.store.check_schema()
    return project


@pytest.fixture
def own_url(tmp_path):
    """A Redis of the test's own; it outlives the test's projects."""
    with own_redis(tmp_path) as url:
        yield url


@pytest.fixture
def make_project_there(own_url, make_project):
    return partial(take_project, make_project)


@pytest.fixture
def client(project):
    with redis.Redis.from_url(project.broker, decode_responses=True) as client:
        yield client


@contextlib.contextmanager
def group_of(project: Project, *options: str, **environ: str):
    """A worker whose processes are a group of their own; they are killed at the end."""
    with (project.directory / "workers.log").open("ab") as log:
        process = subprocess.Popen(
            project.command("worker", "-n", f"{random.random()}@%h", *WORKER_OPTIONS, *options),
            env={**project.environment, **environ}, cwd=project.directory, stdout=log,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def send(project: Project, count: int, **options: object) -> None:
    with project.app.producer_or_acquire() as producer:
        for number in range(count):
            project.app.send_task("proj.ran", (number,), producer=producer, **options)


def ran(project: Project) -> set[int]:
    """The numbers of the tasks that have run."""
    return {int(line.split()[1]) for line in project.lines("notes")}


def held(client: redis.Redis, project: Project) -> int:
    """How many messages are noted as being with a worker."""
    return client.hlen(redis_options(project.queue)["unacked_key"])


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("is_atomic", [True, False])
def test_a_worker_that_dies_before_it_has_noted_a_message(project, client, pool, is_atomic):
    send(project, 1)
    refused = {} if is_atomic else {"PROJ_REFUSED": "yes"}
    with group_of(project, *POOLS[pool], PROJ_DIES="yes", **refused) as worker:
        wait_for("the worker to die", lambda: worker.poll() is not None)
    assert not client.exists(project.queue)
    assert held(client, project) == int(is_atomic), "if Redis refuses it, it is lost"
    if is_atomic:
        with project.worker(*POOLS[pool]):
            wait_for("the message to come back", lambda: ran(project) == {0})


@pytest.mark.parametrize("pool", ["prefork", "solo"])
def test_workers_that_are_killed_at_any_moment_lose_nothing(project, client, pool):
    chance = random.Random(pool)
    send(project, TASKS)
    for _ in range(KILLS):
        before = len(ran(project))
        if before == TASKS:
            break
        with group_of(project, *POOLS[pool]):
            wait_for("a task to run", lambda: len(ran(project)) > before)  # noqa: B023
            time.sleep(chance.uniform(0, LIFE_S))
    with project.worker(*POOLS[pool]):
        wait_for("all tasks to run", lambda: len(ran(project)) == TASKS)
        wait_for("all to be acknowledged", lambda: not held(client, project))
    assert not client.exists(project.queue)


@pytest.mark.parametrize("pool", POOLS)
def test_workers_work_as_before(project, client, pool):
    """Messages of each priority, with and without an ETA, come and are acknowledged, and the worker ends."""
    with project.worker(*POOLS[pool]):
        for number in range(40):
            project.app.send_task(
                "proj.ran", (number,), priority=number % 10, countdown=0.5 if number % 4 else None
            )
        wait_for("all tasks to run", lambda: ran(project) == set(range(40)))
    assert not held(client, project)
    assert directories(project) == set(), "a worker that has ended leaves nothing to recover"
    assert "takes messages from Redis in one step" in project.logged()


def test_a_worker_takes_no_more_than_it_may(project, client):
    with project.worker("-c", "1", "--prefetch-multiplier", "1"):
        for number in range(5):
            project.app.send_task("proj.gated", (number,))
        wait_for("the first to run", project.active)
        assert (held(client, project), client.llen(project.queue)) == (1, 4)
        project.fixed.touch()
        wait_for("all to be acknowledged", lambda: not held(client, project))


def test_a_worker_whose_connections_break_continues(own_url, make_project_there):
    project = make_project_there(own_url)
    with redis.Redis.from_url(own_url) as client, project.worker("-c", "1"):
        for number in range(5):
            client.client_kill_filter(_type="normal", skipme=True)
            project.app.send_task("proj.ran", (number,))
            wait_for("the task to run", lambda: number in ran(project))  # noqa: B023
        assert ran(project) == set(range(5))


def test_a_worker_that_may_not_says_so_and_works(own_url, make_project_there):
    with redis.Redis.from_url(own_url) as client:
        client.acl_setuser("shop", enabled=True, nopass=True, keys=["*"], channels=["*"],
                           categories=["+@all"], commands=["-blmove"])  # fmt: skip
    project = make_project_there(own_url.replace("redis://", "redis://shop:x@"))
    with project.worker("-c", "1"):
        send(project, 1)
        wait_for("the task to run", lambda: ran(project) == {0})
    said = "a killed worker can lose a message that Redis gives to it: Redis refuses it"
    assert said in project.logged()
