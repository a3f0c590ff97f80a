"""Tasks that kill their process, or the whole worker: stopped after three deliveries, and no other task
is blamed."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from project import stop, wait_for

from celery_dlq import Filter, Reason
from celery_dlq.worker.admission.deliveries import HOPELESS

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(900)]

INNOCENTS = int(os.environ.get("CELERY_DLQ_INNOCENTS", "1000"))

#: Broker, type of the queue, store.
PLACES = {
    "redis-postgres": ("redis", "classic", "postgres"),
    "rabbitmq-classic-mysql": ("rabbitmq", "classic", "mysql"),
    "rabbitmq-quorum-mysql": ("rabbitmq", "quorum", "mysql"),
}

#: Redis hands out what a dead worker held only after this. A worker that is killed while it looks for such
#: messages leaves its lock behind.
QUICK = {"PROJ_TRANSPORT": '{"visibility_timeout": 12, "unacked_mutex_expire": 5}'}


@pytest.fixture(params=PLACES)
def project(request, make_project, redis_url):
    broker, queue_type, store = PLACES[request.param]
    url = request.getfixturevalue(f"{broker}_url")
    project = make_project(
        f"{url}/9" if broker == "redis" else url,
        request.getfixturevalue(f"{store}_url"),
        backend=f"{redis_url}/9",
        queue_type=queue_type,
        environ=QUICK if broker == "redis" else {},
    )
    project.dlq.store.check_schema()
    return project


def the_one_letter(project):
    [letter] = project.dlq.store.letters.find(Filter(queue=project.queue)).letters
    return project.letter(letter.task_id)


def test_a_segfault_among_a_thousand_innocents_is_one_letter(project):
    with project.worker("-c", "2"), project.worker("-c", "2"):
        for number in range(INNOCENTS // 2):
            project.send("innocent", number)
        poison = project.send("segfaults")
        for number in range(INNOCENTS // 2, INNOCENTS):
            project.send("innocent", number)
        project.wait_for_letter(poison)
        wait_for(
            "all innocents", lambda: len(set(project.lines("done"))) == INNOCENTS, patience_s=300
        )
    letter = the_one_letter(project)
    assert (letter.task_id, letter.reason) == (poison, Reason.POISON)
    assert len(project.lines("segfaulted")) == 3
    assert [attempt.exception_type for attempt in letter.attempts] == [
        "billiard.exceptions.WorkerLostError"
    ] * 3
    assert "SIGSEGV" in letter.message
    assert "delivery 2 started" in letter.explanation.evidence
    assert set(project.lines("done")) == {str(number) for number in range(INNOCENTS)}
    assert project.dlq.store.deliveries.find(poison, "proj.segfaults") == ()
    assert project.app.AsyncResult(poison).state == "FAILURE"


def run_until_it_is_over(project, pool):
    """Starts a worker again whenever it dies, until the killer is a letter and the innocent is done."""
    project.module = "proj_patient"
    poison = project.send("kills_its_worker", 7)
    innocent = project.send("patient", 7)

    def over():
        return project.lines("done") and project.letter(poison)

    for _life in range(6):
        worker, log = project.start_worker("-P", pool, "-c", "2")
        try:
            wait_for(
                "the worker's end, or peace",
                lambda worker=worker: worker.poll() is not None or over(),
                patience_s=300,
            )
            if over():
                return poison, innocent
        finally:
            stop(worker, log)
    raise AssertionError("it should have been stopped by now")


def assert_only_the_killer_was_stopped(project, poison, innocent):
    letter = the_one_letter(project)
    assert (letter.task_id, letter.reason) == (poison, Reason.POISON)
    assert len(project.lines("killed")) == 3, "run three times, and stopped"
    assert letter.explanation.evidence.count("alone") == 1
    wait_for("the innocent's result", lambda: project.app.AsyncResult(innocent).successful())
    assert project.dlq.store.deliveries.find(innocent, "proj.patient") == ()
    starts = Counter(line.split()[0] for line in project.lines("started"))
    assert starts["7"] >= 3, "the innocent died twice together with it"


def test_a_task_that_kills_the_whole_worker_is_told_from_one_that_ran_with_it(project):
    assert_only_the_killer_was_stopped(project, *run_until_it_is_over(project, "prefork"))


def test_a_message_that_shut_down_workers_gave_back_is_not_blamed_for_it(
    make_project, rabbitmq_url, redis_url
):
    project = make_project(rabbitmq_url, backend=f"{redis_url}/9", queue_type="quorum")
    with project.app.connection_for_write() as connection:
        project.app.amqp.queues[project.queue](connection.default_channel).declare()
    task_id = project.send("dies_once")
    for _ in range(HOPELESS * project.dlq.settings.max_deliveries):
        give_back(project)
    with project.worker("-c", "1"):
        wait_for("its result", lambda: project.app.AsyncResult(task_id).successful())
    assert project.letter(task_id) is None
    assert (project.directory / "count-dies_once").stat().st_size == 2


def give_back(project):
    """Take the message, and end the connection without running it."""
    with project.app.connection_for_read() as connection:
        channel = connection.default_channel
        assert wait_for("the message", lambda: channel.basic_get(project.queue, no_ack=False))


def test_with_threads_where_a_segfault_kills_the_whole_worker(
    make_project, rabbitmq_url, redis_url
):
    project = make_project(rabbitmq_url, backend=f"{redis_url}/9")
    assert_only_the_killer_was_stopped(project, *run_until_it_is_over(project, "threads"))
