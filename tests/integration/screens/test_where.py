"""A message on its way through a real broker and worker, as ``dlq where`` finds it."""

import json
import signal

import pytest
from project import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.service]


@pytest.fixture
def find(project):
    def find(task_id):
        done = project.run("dlq", "where", task_id, "--format", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return find


def test_a_message_is_found_from_its_queue_to_its_letter(project, find):
    assert project.run("dlq", "db", "upgrade").returncode == 0
    first, second = (
        project.app.send_task("proj.waits_for", (1, name)).id for name in ("first", "second")
    )
    assert find(first)["place"] == "queued"
    with project.worker("-c", "1") as worker:
        wait_for("the first to run", lambda: find(first)["place"] == "running")
        assert find(second)["place"] in ("reserved", "queued")
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    # It was acknowledged before it began, so only the recorder of the killed worker knows it.
    found = find(first)
    assert found["place"] == "recorded"
    assert found["next"].endswith("recover workers")
    with project.worker("-c", "1"):
        wait_for("its letter", lambda: find(first)["place"] == "dead letter")
        (project.directory / "second").touch()
        wait_for("the second to end", lambda: find(second)["place"] in ("done", "unknown"))
