"""Messages whose own code sends them again and again: their runs have an end, in each pool."""

import pytest
from kombu import Connection

from celery_dlq import Reason

POOLS = {
    "prefork": ("-P", "prefork", "-c", "2"),
    "threads": ("-P", "threads", "-c", "2"),
    "solo": ("-P", "solo"),
    "gevent": ("-P", "gevent", "-c", "2"),
}

pytestmark = [pytest.mark.slow, pytest.mark.service]


@pytest.fixture(params=["redis", "rabbitmq"])
def project(request, make_project):
    url = request.getfixturevalue(f"{request.param}_url")
    return make_project(f"{url}/9" if request.param == "redis" else url)


def runs(project, name):
    return (project.directory / f"count-{name}").stat().st_size


@pytest.mark.parametrize("pool", POOLS)
def test_a_message_that_its_own_code_gives_back_is_stopped(pool, project):
    project.settings["dlq_max_deliveries"] = 1
    with project.worker(*POOLS[pool]):
        body, hook = (project.send("gives_back", name, name == "body") for name in ("body", "hook"))
        letters = [project.wait_for_letter(task_id) for task_id in (body, hook)]
    assert [letter.reason for letter in letters] == [Reason.REJECTED, Reason.TERMINAL]
    assert letters[1].message == "not mine"
    assert [runs(project, f"gives_back-{name}") for name in ("body", "hook")] == [30, 30]


def test_a_message_that_is_given_back_is_a_letter_before_a_quorum_queue_drops_it(
    make_project, rabbitmq_url
):
    project = make_project(rabbitmq_url, queue_type="quorum")
    with Connection(rabbitmq_url) as connection:
        version = connection.connection.server_properties["version"]
    with project.worker(*POOLS["prefork"]):
        letter = project.wait_for_letter(project.send("gives_back", "body", True))
    assert letter.reason is Reason.REJECTED
    assert runs(project, "gives_back-body") == (20 if int(version.split(".")[0]) >= 4 else 90)


@pytest.mark.parametrize("pool", POOLS)
def test_a_run_that_asks_for_a_retry_and_fails_is_retried_once(pool, project):
    with project.worker(*POOLS[pool]):
        letter = project.wait_for_letter(project.send("retries_twice"))
    assert letter.reason is Reason.EXHAUSTED
    assert [attempt.number for attempt in letter.attempts] == [*range(1, 10)]
    assert runs(project, "retries_twice") == 9
