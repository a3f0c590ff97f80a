"""Redrives and workers go on while a server of their store fails: a primary, whose standby is promoted, or a
node of a Galera cluster."""

from __future__ import annotations

import os
import time

import pytest
from chaos.clusters import Galera, ReplicatedPostgres
from effects import effects, fill, resolved, with_effects
from project import wait_for
from support.servers.clusters import running
from support.workers.processes import kill_with_its_pool

from celery_dlq import Filter
from celery_dlq.errors import StoreError
from celery_dlq.model.operation import OperationState, Orders, Pacing

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.service, pytest.mark.timeout(400)]

LETTERS = int(os.environ.get("CELERY_DLQ_KILL_LETTERS", "600"))
FAILOVERS = int(os.environ.get("CELERY_DLQ_KILLS", "3"))
#: Sent in a second, so that each failover happens while letters are sent.
RATE = LETTERS / (4 * FAILOVERS)
PATIENCE_S = 120.0 + LETTERS / 20


@pytest.fixture(params=[ReplicatedPostgres, Galera])
def cluster(request):
    with running(request.param) as cluster:
        yield cluster


@pytest.fixture
def project(cluster, make_project, redis_url, postgres_url, monkeypatch):
    monkeypatch.setenv("PROJ_STORE_TIMEOUT", "1")
    project = make_project(f"{redis_url}/9", cluster.url, module="proj_effects")
    done = project.run("dlq", "db", "upgrade")
    assert done.returncode == 0, done.stdout + done.stderr
    project.environ["PROJ_EFFECTS"] = postgres_url
    return with_effects(project)


def in_the_end(question):
    """The answer to ``question``, or None while the store does not answer."""
    try:
        return question()
    except StoreError:
        return None


def wait_for_more_than(letters, sent, patience_s=PATIENCE_S):
    wait_for("letters to be sent", lambda: (in_the_end(sent) or 0) > letters, patience_s)


def test_a_redrive_goes_on_through_failovers(project, cluster):
    fill(project, LETTERS)
    orders = Orders(pacing=Pacing(batch=10, rate=RATE))
    wanted = Filter(queue=project.queue)
    operation = project.dlq.redrives.start(wanted, who="tester", orders=orders, detach=True).id

    def sent():
        return project.dlq.redrives.get(operation).counts.out

    with project.worker("-c", "2"), project.worker("-c", "2"):
        for failover in range(FAILOVERS):
            wait_for_more_than(failover * LETTERS / (2 * FAILOVERS), sent)
            cluster.kill()
            time.sleep(1)
            cluster.start()
        wait_for(
            "all to be resolved",
            lambda: in_the_end(lambda: resolved(project)) == LETTERS,
            PATIENCE_S,
        )
        wait_for(
            "the end", lambda: project.dlq.redrives.get(operation).state is OperationState.DONE
        )
    assert effects(project) == dict.fromkeys(range(LETTERS), 1)


def test_the_operation_of_a_killed_worker_is_taken_over_within_half_a_minute(project, cluster):
    """Its database server is killed at the same moment."""
    fill(project, 200)
    orders = Orders(pacing=Pacing(batch=5, rate=20.0))
    wanted = Filter(queue=project.queue)
    operation = project.dlq.redrives.start(wanted, who="tester", orders=orders, detach=True).id

    def sent():
        return project.dlq.redrives.get(operation).counts.out

    # It reads another queue: Redis would keep the messages of a killed worker for an hour.
    process, _ = project.start_worker("-c", "1", "-Q", "dlq-test-idle")
    wait_for_more_than(20, sent)
    cluster.kill()
    kill_with_its_pool(process)
    with project.worker("-c", "1"):
        cluster.start()
        wait_for("the store", lambda: in_the_end(sent) is not None)
        wait_for_more_than(sent(), sent, 30.0)
        wait_for("all", lambda: in_the_end(lambda: resolved(project)) == 200, PATIENCE_S)
    assert effects(project) == dict.fromkeys(range(200), 1)
