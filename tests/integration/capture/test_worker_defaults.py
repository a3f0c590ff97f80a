"""Workers with Celery's default options: they ask their neighbours who they are before they take messages."""

from pathlib import Path

import pytest
from project import wait_for
from support.workers.processes import children

POOLS = {
    "prefork": ("-c", "2"),
    "threads": ("-P", "threads", "-c", "2"),
    "solo": ("-P", "solo"),
    "gevent": ("-P", "gevent", "-c", "2"),
}
SENT = range(5)

pytestmark = [pytest.mark.slow, pytest.mark.service]


# With names by which the gate runs both.
@pytest.fixture(params=["redis", "rabbitmq"], ids=["Redis", "RabbitMQ"])
def broker(request):
    url = request.getfixturevalue(f"{request.param}_url")
    return f"{url}/9" if request.param == "redis" else url


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("neighbours", [0, 1])
def test_a_worker_takes_what_was_sent_before_it_started(make_project, broker, pool, neighbours):
    project = make_project(broker)
    project.worker_options = ("-l", "INFO")
    failed = project.send("terminal", 17)
    for number in SENT:
        project.send("succeed", number)
    with project.worker(*POOLS[pool]) as first:
        project.wait_for_letter(failed)
        if neighbours:
            with project.worker(*POOLS[pool]):
                project.wait_for_letter(project.send("terminal", 18))
        wait_for("the others to run", lambda: project.logged().count("succeeded in") == len(SENT))
    assert first.returncode == 0


def test_a_worker_with_an_embedded_beat(project):
    with project.worker("-c", "1", "-B", "-s", str(project.directory / "schedule")) as worker:
        project.wait_for_letter(project.send("terminal", 17))
        wait_for("beat", lambda: "beat: Starting" in project.logged())
        [lock] = project.directory.glob("spool/recorder/*/pool.lock")
        having = [pid for pid in children(worker.pid) if lock in opened_by(pid)]
    # Its messages are recovered only when no process has the lock.
    assert len(having) == 1, "a process of the pool has it, and beat does not"
    assert "Bad file descriptor" not in project.logged()


def opened_by(pid):
    """The files that a process has open."""
    return {file.resolve() for file in Path(f"/proc/{pid}/fd").iterdir() if file.exists()}
