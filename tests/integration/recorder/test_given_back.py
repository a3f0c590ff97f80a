"""On Redis, the messages that a killed worker had received and not acknowledged come back at once, and
none is taken from a worker that lives."""

from __future__ import annotations

import base64
import json
import os
import signal
import time
import uuid
from urllib.parse import urlsplit

import pytest
import redis
from killed import kill, letters_of, read_notes, worker
from project import Project, wait_for
from proxy import Proxy
from queues import redis_options

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(300)]

#: Seconds that a message waits without this package.
LONG_S = 600
#: Seconds after which Redis gives out again what no living worker has renewed, where a test waits for that.
SHORT_S = 4
#: How often another worker looks while one is frozen.
LOOKS = 15
#: More than Python's stack has room for, if each of them calls the next one.
MANY = 150
#: Seconds within which messages are given back, also on a busy machine.
SOON_S = 120.0


@pytest.fixture
def make_released(make_project):
    return lambda broker: with_late_tasks(make_project(broker, module="proj_released"))


@pytest.fixture
def project(make_released, redis_url):
    return make_released(f"{redis_url}/9")


def with_late_tasks(project: Project) -> Project:
    project.settings.update(task_acks_late=True, dlq_max_deliveries=1_000)
    with_timeout(project, LONG_S)
    project.dlq.store.check_schema()
    return project


def with_timeout(project: Project, seconds: float) -> None:
    project.environ["PROJ_TRANSPORT"] = json.dumps({"visibility_timeout": seconds})


def send(project: Project, released: int, quick: int) -> None:
    """Send tasks that run until :func:`release`, and others after them."""
    with project.app.producer_or_acquire() as producer:
        for number in range(released):
            project.app.send_task("proj.released", (number,), producer=producer)
        for number in range(released, released + quick):
            project.app.send_task("proj.noted", (number, 0.0), producer=producer)


def release(project: Project) -> None:
    (project.directory / "release").touch()


def began(project: Project) -> dict[int, list[float]]:
    return read_notes(project).began


def ended(project: Project) -> set[int]:
    return read_notes(project).ended.keys()


def held(project: Project) -> int:
    """How many messages are with workers, according to Redis."""
    with redis.Redis.from_url(project.broker) as client:
        return client.hlen(redis_options(project.queue)["unacked_key"])


@pytest.mark.parametrize("is_late", [True, False])
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_messages_of_a_killed_worker_run_soon(project, pool, is_late):
    project.settings["task_acks_late"] = is_late
    with worker(project, "--pool", pool, "-c", "2", "--prefetch-multiplier", "5") as killed:
        send(project, released=2, quick=8)
        wait_for("two tasks to run", lambda: len(began(project)) == 2)
        wait_for("messages to be reserved", lambda: held(project) == (10 if is_late else 8))
        with project.worker("--pool", pool, "-c", "1"):
            kill(killed)
            killed_at = time.time()
            release(project)
            wait_for(
                "the other tasks to end", lambda: len(ended(project)) >= (10 if is_late else 8)
            )
    again = {n: times[-1] for n, times in began(project).items() if times[-1] > killed_at}
    assert again.keys() == set(range(0 if is_late else 2, 10))
    assert min(again.values()) < killed_at + SOON_S
    assert sorted(again, key=again.__getitem__) == sorted(again)
    lost = {int(letter.args[0]) for letter in letters_of(project)}
    assert lost == (set() if is_late else {0, 1})
    assert held(project) == 0


@pytest.mark.nightly  # the unit tests of isolation and of slots hold it in the gate
def test_hundreds_that_must_each_run_alone_run_all(project):
    """Each waits for a slot, gets it, and gives it back while another one is alone."""
    project.settings.update(dlq_max_deliveries=2, worker_prefetch_multiplier=MANY)
    send(project, released=2, quick=MANY)
    with worker(project, "--pool", "prefork", "-c", "2"):
        wait_for("two tasks to run", lambda: len(began(project)) == 2)
        wait_for("the others to be reserved", lambda: held(project) == MANY + 2)
    release(project)
    with project.worker("--pool", "prefork", "-c", "2"):
        wait_for("all tasks to end", lambda: len(ended(project)) == MANY + 2)
        wait_for("all to be acknowledged", lambda: held(project) == 0)
    assert letters_of(project) == []


def test_no_message_is_taken_from_a_worker_that_lives(project):
    with_timeout(project, SHORT_S)
    send(project, released=1, quick=4)
    with worker(project, "--pool", "solo", "--prefetch-multiplier", "9"):
        wait_for("the task to run", lambda: began(project))
        with project.worker("--pool", "threads", "-c", "4"):
            # One runs, and others wait in the worker, for twice as long as the timeout.
            [began_at] = began(project)[0]
            time.sleep(max(SHORT_S, began_at + 2 * SHORT_S - time.time()))
            release(project)
            wait_for("the task to end", lambda: 0 in ended(project))
            wait_for("all tasks to end", lambda: len(ended(project)) == 5)
    assert [len(times) for times in began(project).values()] == [1] * 5


def test_a_frozen_worker_keeps_its_messages(project):
    send(project, released=1, quick=4)
    with worker(project, "--pool", "prefork", "-c", "1", "--prefetch-multiplier", "9") as frozen:
        wait_for("the task to run", lambda: began(project))
        wait_for("the others to be reserved", lambda: held(project) == 5)
        os.killpg(frozen.pid, signal.SIGSTOP)
        with project.worker("--pool", "solo"):
            release(project)
            looks = len(project.lines("rounds")) + LOOKS
            wait_for(f"{LOOKS} looks", lambda: len(project.lines("rounds")) >= looks)
            assert not ended(project)
            os.killpg(frozen.pid, signal.SIGCONT)
            wait_for("all tasks to end", lambda: len(ended(project)) == 5)
    assert [len(times) for times in began(project).values()] == [1] * 5


def test_a_parent_that_is_killed_alone_takes_its_pool_along(project):
    send(project, released=1, quick=1)
    with worker(project, "--pool", "prefork", "-c", "1") as killed:
        wait_for("the task to run", lambda: began(project))
        wait_for("the other to be reserved", lambda: held(project) == 2)
        with project.worker("--pool", "solo"):
            killed.kill()
            killed.wait()
            killed_at = time.time()
            wait_for("the task to run again", lambda: len(began(project)[0]) == 2)
            release(project)
            wait_for("both tasks to end", lambda: len(ended(project)) == 2)
    first, again = began(project)[0]
    assert first < killed_at < again < killed_at + SOON_S
    assert len(read_notes(project).ended[0]) == 1


@pytest.fixture
def proxy(redis_url):
    parts = urlsplit(redis_url)
    proxy = Proxy(parts.hostname, parts.port)
    yield proxy
    proxy.close()


@pytest.mark.nightly
def test_messages_come_back_soon_after_redis_was_away_at_the_kill(proxy, make_released):
    project = make_released(f"redis://127.0.0.1:{proxy.port}/9")
    # Only the looks between two whole rounds can give them back.
    project.environ["PROJ_ROUND_S"] = "100000"
    send(project, released=1, quick=4)
    with worker(project, "--pool", "prefork", "-c", "1", "--prefetch-multiplier", "9") as killed:
        wait_for("the task to run", lambda: began(project))
        wait_for("the others to be reserved", lambda: held(project) == 5)
        with project.worker("--pool", "solo"):
            # Stopped first: it must not try to give back any message itself.
            os.killpg(killed.pid, signal.SIGSTOP)
            proxy.cut()
            kill(killed)
            release(project)
            time.sleep(5)
            proxy.restore()
            wait_for("all tasks to end", lambda: len(ended(project)) == 5)
    assert [len(times) for times in began(project).values()] == [2, 1, 1, 1, 1]


@pytest.mark.nightly
@pytest.mark.parametrize("headers", [{}, {"headers": None}])
def test_a_message_of_another_program_keeps_no_other_from_coming_back(project, headers):
    send(project, released=1, quick=2)
    lpush(project, headers)
    with worker(project, "--pool", "prefork", "-c", "1", "--prefetch-multiplier", "9") as killed:
        wait_for("the task to run", lambda: began(project))
        wait_for("the others to be reserved", lambda: held(project) == 4)
        with project.worker("--pool", "solo"):
            kill(killed)
            release(project)
            wait_for("all tasks to end", lambda: len(ended(project)) == 4)
    assert [len(times) for times in began(project).values()] == [2, 1, 1, 1]


def lpush(project: Project, headers: dict[str, object]) -> None:
    """Send a message of Celery's first protocol, which has no headers."""
    task_id = str(uuid.uuid4())
    body = {"id": task_id, "task": "proj.noted", "args": [3, 0.0], "kwargs": {}, "retries": 0}
    message = {
        "body": base64.b64encode(json.dumps(body).encode()).decode(),
        "content-type": "application/json", "content-encoding": "utf-8",
        "properties": {
            "body_encoding": "base64", "delivery_tag": task_id,
            "delivery_info": {"exchange": "", "routing_key": project.queue},
        },
        **headers,
    }  # fmt: skip
    with redis.Redis.from_url(project.broker) as client:
        client.lpush(project.queue, json.dumps(message))
