"""A warm shutdown of prefork waits for no result that its parent has forgotten."""

from __future__ import annotations

import signal
import time

import pytest
from project import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.service]

#: Seconds. A process waits for 30; without that, the shutdown takes about two.
AT_MOST_S = 25


@pytest.mark.parametrize("task", ["plain", "fails_long"])
def test_a_worker_that_has_just_handed_out_a_task_ends_soon(make_project, redis_url, task):
    project = make_project(f"{redis_url}/9", module="proj_deaf")
    with project.worker("-c", "2") as process:
        project.send(task)
        wait_for("the task to run", lambda: project.fixed.with_name("runs").exists())
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
        assert time.monotonic() - began < AT_MOST_S
        assert process.returncode == 0
    with project.app.connection_for_read() as connection:
        waiting = connection.default_channel._size(project.queue)
    assert waiting == 1, "Celery forgot that it runs, and gives it back"
