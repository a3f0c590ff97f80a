"""A message on its way through a real broker and worker, as ``dlq where`` finds it."""

import json
import signal

import pytest
from project import wait_for

from celery_dlq.cli.doctor import broker

pytestmark = [pytest.mark.slow, pytest.mark.service]


@pytest.fixture
def find(project, monkeypatch):
    def find(task_id, answers_s=0.1):
        """Where a message is, according to ``dlq where``, which waits this long for workers."""
        monkeypatch.setattr(broker, "_ANSWERS_S", answers_s)
        done = project.invoke("where", task_id, "--format", "json")
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)

    return find


def test_a_message_is_found_from_its_queue_to_its_letter(project, find):
    project.dlq.store.check_schema()
    first, second = (
        project.app.send_task("proj.waits_for", (1, name)).id for name in ("first", "second")
    )
    assert find(first)["place"] == "queued"
    with project.worker("-c", "1") as worker:
        wait_for("the first to run", lambda: first in project.active())
        wait_for("its answer", lambda: find(first, 1.0)["place"] == "running")
        wait_for("the other", lambda: find(second, 1.0)["place"] in ("reserved", "queued"))
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    # It was acknowledged before it began, so only the recorder of the killed worker knows it.
    found = find(first)
    assert found["place"] == "recorded"
    assert found["next"].endswith("recover")
    with project.worker("-c", "1"):
        project.wait_for_letter(first)
        assert find(first)["place"] == "dead letter"
        (project.directory / "second").touch()
        wait_for("the second to end", project.app.AsyncResult(second).successful)
        assert find(second)["place"] == "done"
