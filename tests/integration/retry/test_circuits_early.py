"""A service refuses at once, faster than workers exchange news: few calls reach it, and no task is
exhausted by them."""

from __future__ import annotations

from collections import Counter

import pytest
from project import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.service]

#: As in ``proj_bank``, and in the command lines below.
LIMIT, WORKERS, PROCESSES, TASKS = 5, 2, 2, 200


def test_a_bank_that_refuses_at_once_gets_the_limit_for_each_worker_and_exhausts_no_task(
    make_project, redis_url, postgres_url
):
    project = make_project(f"{redis_url}/9", postgres_url, module="proj_bank")
    options = ("-c", str(PROCESSES))
    with project.worker(*options), project.worker(*options):
        for number in range(TASKS):
            project.send("calls", number)
        wait_for("all to be parked", lambda: project.parked() + project.count() >= TASKS)
        calls = len(project.lines("calls"))
        probes = project.logged().count("runs as the probe")  # each is told before it calls
        assert calls <= WORKERS * (LIMIT + PROCESSES) + probes
        project.fixed.touch()
        wait_for("all to run", lambda: len(project.lines("done")) + project.count() >= TASKS)
        wait_for("nothing to be parked", lambda: project.parked() == 0)
    assert Counter(project.lines("done")) == Counter(str(number) for number in range(TASKS))
    assert project.count() == 0


def test_the_failure_that_opens_the_circuit_and_those_of_probes_exhaust_no_task(
    make_project, redis_url, tmp_path
):
    """Its second attempt is its last one, and opens the circuit: a process of the pool has to know that."""
    project = make_project(f"{redis_url}/9", module="proj_bank", backend=f"{redis_url}/9")
    with project.worker("-c", "2"):
        task_id = project.send("calls_twice", 1)
        wait_for("two probes to fail", lambda: project.logged().count("still open: probe 2 failed"))
        assert project.count() == 0
        assert project.app.AsyncResult(task_id).state == "RETRY"
        project.fixed.touch()
        wait_for("it to run", lambda: project.lines("done"))
        wait_for("it not to be parked", lambda: project.parked() == 0)
    assert project.app.AsyncResult(task_id).state == "SUCCESS"
    assert project.count() == 0
    assert project.lines("done") == ["1"]
