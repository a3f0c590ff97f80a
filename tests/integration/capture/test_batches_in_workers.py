"""celery-batches together with DLQTask, in a real worker whose batches run in processes of their own."""

import pytest
from project import _not_here

from celery_dlq import Filter, Reason
from celery_dlq.model.states import State

pytest.importorskip("celery_batches")
pytestmark = [pytest.mark.slow, pytest.mark.service]


@pytest.fixture
def project(make_project, redis_url):
    project = make_project(f"{redis_url}/9", backend=f"{redis_url}/9", module="proj_batches")
    for name in ("bulk", "bulk_kills"):
        project.app.task(name=f"proj.{name}", shared=False)(_not_here)
    return project


def test_each_message_of_a_batch_that_fails_or_dies_is_a_letter(project):
    # Before there is a worker, which takes them together: a batch that is not full is run after a second.
    sent = [project.send("bulk", number) for number in range(3)]
    with project.worker("-P", "prefork", "-c", "2"):
        letters = [project.wait_for_letter(one) for one in sent]
        assert {letter.reason for letter in letters} == {Reason.TERMINAL}
        assert {letter.message for letter in letters} == {"bad currency in 3 orders"}
        assert [letter.args for letter in letters] == [[0], [1], [2]]
        assert len({letter.fingerprint for letter in letters}) == 1

        killers = [project.send("bulk_kills", number) for number in range(3)]
        for letter in map(project.wait_for_letter, killers):
            assert letter.reason is Reason.POISON
            assert len(letter.attempts) == 3, "as often as dlq_max_deliveries says"

        project.fixed.touch()
        done = project.dlq.redrives.start(Filter(task="proj.bulk"), who="tester")
        assert done.counts.out == 3
        for one in sent:
            project.wait_for_letter(one, State.RESOLVED)
    [log] = project.directory.glob("worker-*.log")
    logged = [line for line in log.read_text().splitlines() if "not captured" in line]
    assert len(logged) == 1
    assert "WARNING" in logged[0]
    assert "task proj.odd: its Request class dict cannot be combined with celery_dlq's" in logged[0]


def test_the_doctor_says_what_a_worker_says(project):
    done = project.run("dlq", "doctor")
    assert done.returncode == 1
    assert "proj.odd: its Request class dict cannot be combined" in " ".join(done.stdout.split())
