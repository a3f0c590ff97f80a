"""One of the copies of a redrive runs, whichever process was killed, and when."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from effects import sendable
from project import wait_for
from stepwise import StepwiseRedrive
from support.workers.processes import kill_with_its_pool

from celery_dlq.model.states import State

pytestmark = [pytest.mark.slow, pytest.mark.service]


def once_project(make_project, broker_url, store_url):
    project = make_project(broker_url, store_url, module="proj_once")
    if broker_url.startswith("redis"):
        # A worker that is killed while it looks for messages to deliver again leaves the mutex behind.
        options = {"visibility_timeout": 5, "unacked_mutex_expire": 5}
        project.environ["PROJ_TRANSPORT"] = json.dumps(options)
    project.dlq.store.check_schema()
    # RabbitMQ has no queue before a worker declares it.
    with project.app.connection_for_write() as connection:
        connection.SimpleQueue(project.queue).clear()
    return project


@pytest.fixture(params=["redis-postgres", "rabbitmq-mysql"])
def pair(request, make_project, urls_of):
    """Each broker, with one of the databases that people run it with."""
    return once_project(make_project, *urls_of(request.param))


def dead(project, count: int) -> list[str]:
    """Letters of a task that now succeeds."""
    letters = [sendable(project, number, "proj.held") for number in range(count)]
    project.dlq.store.letters.save(letters)
    project.fixed.touch()
    return [letter.task_id for letter in letters]


def runs(project) -> Counter[str]:
    return Counter(project.lines("runs"))


def times(count: int, often: int) -> Counter[str]:
    return Counter({str(number): often for number in range(count)})


def dropped(project) -> int:
    return project.logged().count("this copy is dropped")


def publish_twice(project) -> None:
    """A redrive that is killed between publication and mark, and continues in another process."""
    redriving = StepwiseRedrive(project)
    killed = redriving.claim(lease_s=0.0)
    redriving.publish(killed)
    repeated = redriving.claim()
    redriving.publish(repeated)
    redriving.mark(repeated)


def test_one_of_two_copies_runs(pair):
    ids = dead(pair, 5)
    publish_twice(pair)
    with pair.worker("-c", "2"):
        wait_for("a copy of each to be dropped", lambda: dropped(pair) == 5)
        for task_id in ids:
            pair.wait_for_letter(task_id, State.RESOLVED)
    assert runs(pair) == times(5, 1)


@pytest.mark.parametrize("pool", ["threads", "solo", "gevent"])
def test_one_of_two_copies_runs_in_other_pools(make_project, redis_url, tmp_path, pool):
    store_url = f"sqlite:///{tmp_path}/store.sqlite3"
    project = once_project(make_project, f"{redis_url}/9", store_url)
    [task_id] = dead(project, 1)
    publish_twice(project)
    with project.worker("-P", pool, "-c", "1"):
        wait_for("a copy to be dropped", lambda: dropped(project) == 1)
        project.wait_for_letter(task_id, State.RESOLVED)
    assert runs(project) == times(1, 1)


def test_the_copy_that_was_accepted_runs_again_when_its_worker_is_killed(pair):
    [task_id] = dead(pair, 1)
    hold = pair.fixed.with_name("hold")
    hold.touch()
    redriving = StepwiseRedrive(pair)
    first = redriving.claim(lease_s=0.0)
    redriving.publish(first)
    process, _ = pair.start_worker("-c", "1")
    wait_for("it to run", lambda: runs(pair) == times(1, 1))
    kill_with_its_pool(process)
    hold.unlink()

    # A transaction of the killed worker may hold the letter until the server has noticed.
    second = wait_for("the letter to be free", lambda: (one := redriving.claim()).letters and one)
    redriving.publish(second)
    redriving.mark(second)
    with pair.worker("-c", "1"):
        pair.wait_for_letter(task_id, State.RESOLVED)
        wait_for("the other copy to be dropped", lambda: dropped(pair) == 1)
    assert runs(pair) == times(1, 2)


def test_a_copy_of_an_old_redrive_does_not_run_after_a_newer_one(pair):
    [task_id] = dead(pair, 1)
    old = StepwiseRedrive(pair)
    late = old.claim()
    old.mark(late)
    new = StepwiseRedrive(pair, State.REDRIVEN)
    newer = new.claim()
    new.publish(newer)
    new.mark(newer)
    old.publish(late)
    with pair.worker("-c", "1"):
        wait_for("the old copy to be dropped", lambda: dropped(pair) == 1)
        letter = pair.wait_for_letter(task_id, State.RESOLVED)
    assert "redrive 2 succeeded" in letter.closed_reason
    assert runs(pair) == times(1, 1)
