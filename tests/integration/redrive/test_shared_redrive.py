"""Several processes carry an operation, and each may be killed at a random moment."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest
from amqp.exceptions import ChannelError
from effects import (
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

from celery_dlq import Filter
from celery_dlq.model.operation import Guard, OperationState, Orders, Pacing
from celery_dlq.redrive.flow.pace import STEP_S
from celery_dlq.store.base import Operation

PROCESSES = 4
#: So small that there are many claims at which a process may be killed.
BATCH = 5

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
    return with_effects(make_project(broker, postgres_url, module="proj_effects"))


on_redis = pytest.mark.parametrize("project", ["redis"], indirect=True)


def leave(project, *, guard=None, **pacing) -> str:
    """Leave an operation over all letters to workers; returns its id."""
    orders = Orders(pacing=Pacing(processes=PROCESSES, **pacing), guard=guard or Guard())
    wanted = Filter(queue=project.queue)
    return project.dlq.redrive(wanted, who="tester", orders=orders, detach=True).id


@contextmanager
def redrivers(project):
    """Processes that carry operations together. Gives a function that lets each call another function with
    the one that continues an operation in it, and returns the results."""
    project.environ["PROJ_LOOK_S"] = "3600"  # workers leave the operation to them
    with ExitStack() as stack, ThreadPoolExecutor(PROCESSES) as beside:
        each = [stack.enter_context(redriver(project)) for _ in range(PROCESSES)]
        list(beside.map(lambda go_on: go_on(""), each))  # all have started
        yield lambda act: beside.map(act, each)


def waiting(project) -> int:
    """Messages in the queue, which no worker reads."""
    with project.app.connection_for_write() as connection:
        try:
            declared = connection.default_channel.queue_declare(project.queue, passive=True)
        except ChannelError:  # on Redis, an empty queue does not exist
            return 0
    return declared.message_count


def acts(project, name: str) -> int:
    return len(project.dlq.store.audit.find(act=name).rows)


def test_processes_that_are_killed_lose_no_letter_and_run_none_twice(project):
    fill(project, LETTERS)
    operation_id = leave(project, batch=BATCH)
    # A few of the claims, because the others go on while one process is killed and started again.
    most = max(1, LETTERS // (PROCESSES * KILLS * BATCH))
    killed: list[bool] = []

    def be_killed(go_on) -> None:
        while len(killed) < KILLS and go_on(operation_id, random.randint(1, most)):
            killed.append(True)

    with redrivers(project) as all_of_them, project.worker("-c", "2"):
        list(all_of_them(be_killed))
        assert not any(all_of_them(lambda go_on: go_on(operation_id)))
        wait_for("all to be resolved", lambda: resolved(project) == LETTERS, PATIENCE_S)
    assert effects(project) == dict.fromkeys(range(LETTERS), 1)
    operation = project.dlq.operation(operation_id)
    assert operation.state is OperationState.DONE
    assert (operation.counts.succeeded, operation.counts.left) == (LETTERS, 0)
    assert len(killed) > KILLS / 2, "it was done before they could be killed"


@on_redis
def test_one_canary_and_one_guard_stop_all_processes(project):
    fill(project, 300, "proj.half_fixed")
    with redrivers(project) as all_of_them, project.worker("-c", "2"):

        def stopped(**orders) -> Operation:
            operation_id = leave(project, **orders)
            assert not any(all_of_them(lambda go_on: go_on(operation_id)))
            return project.dlq.operation(operation_id)

        canary = stopped(canary=8, batch=2)
        assert "canary" in canary.cause
        assert canary.counts.out <= 8
        guard = stopped(limit=200, batch=BATCH, guard=Guard(window=40, least=40))
    assert "of the last" in guard.cause
    assert guard.counts.out <= 40
    assert acts(project, "abort") == 2


@on_redis
def test_rate_limit_and_pause_hold_for_all_together(project):
    fill(project, 300)
    rate, limit = 60.0, 200
    operation_id = leave(project, rate=rate, limit=limit, guard=Guard(enabled=False))
    seen = list[tuple[float, int]]()

    def carry() -> None:
        """Let all processes carry it until it has ended, or is paused."""
        assert not any(all_of_them(lambda go_on: go_on(operation_id)))

    def watch() -> None:
        while not carried.done():
            seen.append((time.monotonic(), waiting(project)))

    with redrivers(project) as all_of_them, ThreadPoolExecutor(1) as beside:
        carried = beside.submit(carry)
        wait_for("all processes", lambda: project.dlq.operation(operation_id).carriers == PROCESSES)
        project.dlq.pause(operation_id, who="tester")
        carried.result(PATIENCE_S)
        paused = project.dlq.operation(operation_id)
        assert (paused.state, paused.carriers) == (OperationState.PAUSED, 0)
        assert waiting(project) == paused.counts.out < limit
        project.dlq.resume(operation_id, who="tester", detach=True)
        carried = beside.submit(carry)
        watch()
    assert project.dlq.operation(operation_id).state is OperationState.DONE
    assert waiting(project) == limit
    # As with one process: a batch that is late by one step is followed by the next one at once, and the
    # broker may have got the one before late, too.
    at_once = 3 * STEP_S * rate
    assert not [
        (before, after)
        for number, before in enumerate(seen)
        for after in seen[number:]
        if after[1] - before[1] > rate * (after[0] - before[0]) + at_once
    ]
