"""A redrive that is killed again and again, at random moments, and each time continues in another process."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from effects import (
    BATCH,
    KILLS,
    LETTERS,
    PATIENCE_S,
    effects,
    fill,
    redriver,
    resolved,
    with_effects,
)
from project import wait_for
from support.workers.processes import kill_with_its_pool

from celery_dlq import Filter
from celery_dlq.model.operation import Guard, OperationState, Orders, Pacing
from celery_dlq.model.states import State

pytestmark = [
    pytest.mark.slow,
    pytest.mark.service,
    pytest.mark.timeout(2 * PATIENCE_S + 2 * KILLS),
]


@pytest.fixture(params=["redis", "rabbitmq", pytest.param("sqs", marks=pytest.mark.nightly)])
def project(request, make_project, redis_url, postgres_url):
    broker = (
        f"{redis_url}/9"
        if request.param == "redis"
        else request.getfixturevalue(f"{request.param}_url")
    )
    return with_effects(make_project(broker, postgres_url, module="proj_effects"))


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
    operation = project.dlq.redrives.get(operation_id)
    assert operation.state is OperationState.DONE
    assert (operation.counts.succeeded, operation.counts.left) == (LETTERS, 0)
    assert killed > KILLS / 2, "it was done before it could be killed"


def test_two_redrives_of_the_same_letters_that_are_killed_run_none_twice(project):
    fill(project, LETTERS)
    project.environ["PROJ_LOOK_S"] = "3600"
    most = max(1, LETTERS // (KILLS * BATCH))
    operations = [make_operation(project), make_operation(project)]

    def carry(go_on, operation_id) -> int:
        """Let it be killed again and again, and then end; returns how often it was killed."""
        killed = 0
        while killed < KILLS // 2 and go_on(operation_id, random.randint(1, most)):
            killed += 1
        assert not go_on(operation_id)
        return killed

    with (
        project.worker("-c", "2"),
        redriver(project) as one,
        redriver(project) as other,
        ThreadPoolExecutor(2) as beside,
    ):
        killed = sum(beside.map(carry, (one, other), operations))
        wait_for("all to be resolved", lambda: resolved(project) == LETTERS, PATIENCE_S)
    assert effects(project) == dict.fromkeys(range(LETTERS), 1)
    ended = [project.dlq.redrives.get(operation_id) for operation_id in operations]
    assert {one.state for one in ended} == {OperationState.DONE}
    assert sum(one.counts.succeeded for one in ended) >= LETTERS
    assert killed > KILLS / 4, "they were done before they could be killed"


def test_a_worker_that_is_killed_leaves_its_operation_to_another(project):
    """On a queue that no worker reads, so that the killed worker has sent messages and run none."""
    fill(project, 200)
    # So slow that it is not done before it is killed; the guard would wait for outcomes.
    orders = Orders(pacing=Pacing(batch=5, rate=40.0), guard=Guard(enabled=False))
    made = project.dlq.redrives.start(
        Filter(queue=project.queue), who="tester", orders=orders, detach=True
    )
    process, log = project.start_worker("-c", "1", "-Q", "dlq-test-idle")
    wait_for("it to be under way", lambda: project.dlq.redrives.get(made.id).counts.out >= 20)
    kill_with_its_pool(process)
    assert process.returncode == -9, log.read_text()
    assert project.dlq.redrives.get(made.id).state is OperationState.RUNNING
    with project.worker("-c", "2"):
        wait_for("all to be resolved", lambda: resolved(project) == 200, PATIENCE_S)
        wait_for("the end", lambda: project.dlq.redrives.get(made.id).state is OperationState.DONE)
    assert effects(project) == dict.fromkeys(range(200), 1)


def test_a_redrive_with_half_a_fix_is_stopped_within_canary_and_window(project):
    fill(project, 300, "proj.half_fixed")
    # With fewer outcomes to judge by, successes that come before the failures would make room for more.
    guard = Guard(window=40, least=40)
    orders = Orders(pacing=Pacing(canary=1, batch=10), guard=guard)
    with project.worker("-c", "2"):
        ended = project.dlq.redrives.start(Filter(queue=project.queue), who="tester", orders=orders)
    assert ended.state is OperationState.ABORTED
    assert "ValueError: odd" in ended.cause
    assert ended.counts.out <= 1 + 40
    assert ended.counts.left == 300 - ended.counts.out
    assert project.count(states=frozenset({State.DEAD})) >= ended.counts.left
