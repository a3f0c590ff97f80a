"""Retries that wait in the store: released once, whichever process is killed."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from kombu.exceptions import ChannelError
from project import wait_for
from sqlalchemy.engine import make_url
from stepwise import StepwiseRedrive

from celery_dlq import Filter
from celery_dlq.model.operation import SendingState
from celery_dlq.model.states import Reason, State

pytestmark = [pytest.mark.slow, pytest.mark.service]


#: Seconds: a retry that waits longer is parked; and the wait of a retry that is parked and soon due.
PARK_AFTER_S, WAIT_S = 0.3, 0.5
#: The options of a worker that takes none of the project's tasks.
IDLE = ("-c", "1", "-Q", "dlq-test-idle")


@pytest.fixture(params=["redis-sqlite", "redis-postgres", "rabbitmq-mysql"])
def pair(request, make_project, urls_of):
    """The brokers and databases, in the pairs that people run."""
    return parking_project(make_project, *urls_of(request.param))


def parking_project(make_project, broker_url, store_url, **options):
    project = make_project(
        broker_url, store_url, module="proj_parking", settings={"dlq_park_after": 1.0}, **options
    )
    project.environ["PROJ_PARK_AFTER_S"] = str(PARK_AFTER_S)
    project.dlq.store.check_schema()
    with project.app.connection_for_write() as connection:
        connection.SimpleQueue(project.queue).clear()
    return project


def runs(project) -> Counter[str]:
    """How often each run took place, as ``x retries``."""
    return Counter(project.lines("runs"))


def dropped(project) -> int:
    return project.logged().count("this copy is dropped")


def messages(project) -> int:
    with project.app.connection_for_read() as connection:
        try:
            return connection.default_channel.queue_declare(project.queue, passive=True)[1]
        except ChannelError:  # on Redis there is no empty queue
            return 0


def once(numbers, retries=(0, 1)) -> Counter[str]:
    return Counter(f"{x} {number}" for x in numbers for number in retries)


def park_all(project, numbers) -> None:
    """Let ``numbers`` run once and be parked, while no worker releases them."""
    for number in numbers:
        project.send("waits", number, 3_600.0)
    with project.worker("-c", "2"):
        wait_for("all to be parked", lambda: project.parked() == len(numbers))
    assert runs(project) == once(numbers, (0,))
    assert messages(project) == 0


def make_due(project) -> None:
    project.dlq.unpark(Filter(queue=project.queue), who="tester")


def test_a_long_wait_is_parked_released_and_leaves_nothing(pair):
    del pair.environ["PROJ_PARK_AFTER_S"]  # the setting decides
    ids = [pair.send("waits", n, 3_600.0) for n in range(5)]
    with pair.worker("-c", "2"):
        wait_for("all to be parked", lambda: pair.parked() == 5)
        letter = pair.letter(ids[0])
        assert (letter.state, letter.reason) == (State.PARKED, Reason.PARKED)
        assert [a.exception_type for a in letter.attempts] == ["ConnectionError"]
        assert pair.count() == 0, "no dead letters"
        make_due(pair)
        wait_for("all to run again", lambda: runs(pair) == once(range(5)))
    assert pair.parked() == 0
    assert pair.letter(ids[0]) is None


def test_a_retry_that_fails_for_good_after_its_release_is_one_letter_with_its_history(pair):
    task_id = pair.send("waits_late", 1, WAIT_S, 2, "badly")
    with pair.worker("-c", "1"):
        letter = pair.wait_for_letter(task_id)
    assert [(a.number, a.exception_type) for a in letter.attempts] == [
        (1, "ConnectionError"), (2, "ConnectionError"), (3, "ValueError"),
    ]  # fmt: skip
    assert runs(pair) == once([1], (0, 1, 2))
    assert (pair.parked(), pair.count()) == (0, 1)

    pair.fixed.touch()
    with pair.worker("-c", "1"):
        pair.dlq.redrives.start(Filter(queue=pair.queue), who="tester")
        pair.wait_for_letter(task_id, State.RESOLVED)


@pytest.mark.parametrize("ends", ["well", "badly"])
def test_a_redriven_task_that_waits_reports_under_its_redrive(pair, ends):
    task_id = pair.send("waits_late", 1, WAIT_S, 2, "badly")
    with pair.worker("-c", "1"):
        pair.wait_for_letter(task_id)
    if ends == "well":
        pair.fixed.touch()
    redriving = StepwiseRedrive(pair)
    claim = redriving.claim()
    redriving.publish(claim)
    redriving.mark(claim)

    def outcome():
        [sending] = pair.dlq.store.sendings.of_letter(task_id)
        return sending.ended_at and sending

    with pair.worker("-c", "1"):
        sending = wait_for("the outcome", outcome)
    assert runs(pair) == once([1, 1], (0, 1, 2))
    letter = pair.letter(task_id)
    if ends == "well":
        assert sending.state is SendingState.SUCCEEDED
        assert letter.closed_reason == "redrive 1 succeeded"
    else:
        assert (sending.state, letter.state) == (SendingState.FAILED, State.DEAD)
        assert [(a.redrive, a.number) for a in letter.attempts[3:]] == [(1, 1), (1, 2), (1, 3)]


@pytest.mark.parametrize("kill_at", ["taken", "publishing", "published", "marked"])
def test_a_killed_holder_loses_no_release_and_doubles_none_that_runs(pair, kill_at):
    numbers = range(20)
    park_all(pair, numbers)
    make_due(pair)

    pair.environ.update(PROJ_KILL_AT=kill_at, PROJ_HALF="10")
    process, log = pair.start_worker(*IDLE)
    assert process.wait(timeout=60) == -9, log.read_text()
    sent = {"taken": 0, "publishing": 10, "published": 20, "marked": 20}[kill_at]
    assert messages(pair) <= sent, "a message that was in no packet yet cannot be there"

    pair.environ.update(PROJ_KILL_AT="")
    again = 0 if kill_at == "marked" else len(numbers)
    with pair.worker(*IDLE):  # another one takes over, and no worker runs tasks yet
        wait_for("all to be marked", lambda: pair.parked() == 0)
    # By now RabbitMQ has read whatever the one that was killed had written.
    copies = messages(pair)
    assert (0 if kill_at == "publishing" else sent) <= copies - again <= sent
    with pair.worker("-c", "2"):
        wait_for("all to run", lambda: runs(pair) == once(numbers))
        doubled = copies - len(numbers)
        wait_for("the copies to be dropped", lambda: dropped(pair) == doubled)
    assert runs(pair) == once(numbers)


def test_a_copy_that_ran_before_it_was_marked_is_not_sent_again(pair):
    park_all(pair, range(3))
    make_due(pair)
    pair.environ.update(PROJ_KILL_AT="published")
    process, log = pair.start_worker(*IDLE)
    assert process.wait(timeout=60) == -9, log.read_text()

    pair.environ.update(PROJ_KILL_AT="", PROJ_HOLD_S="60")
    with pair.worker("-c", "2"):
        wait_for("all to run", lambda: runs(pair) == once(range(3)))
        assert pair.parked() == 0, "the worker that runs it marks it"


def test_with_the_store_away_the_retry_waits_in_the_spool(pair):
    if pair.store_url.startswith("sqlite"):
        pytest.skip("a file is not away")
    unreachable = make_url(pair.store_url).set(port=1).render_as_string(hide_password=False)
    away = {**pair.environ, "PROJ_STORE": unreachable}
    pair.send("waits", 1, WAIT_S)
    with_store = dict(pair.environ)
    pair.environ.update(away)
    with pair.worker("-c", "1"):
        wait_for("the spool", lambda: any(pair.dlq.spool.files()))
    assert runs(pair) == once([1], (0,))

    pair.environ.clear()
    pair.environ.update(with_store)
    with pair.worker("-c", "1"):
        wait_for("it to be drained, released and run", lambda: runs(pair) == once([1]))


def test_a_visibility_timeout_shorter_than_the_wait_runs_nothing_twice(
    make_project, redis_url, tmp_path
):
    store_url = f"sqlite:///{tmp_path}/store.sqlite3"
    project = parking_project(make_project, f"{redis_url}/9", store_url)
    project.environ["PROJ_TRANSPORT"] = json.dumps({"visibility_timeout": 4})
    project.settings["dlq_park_after"] = 3_600.0
    del project.environ["PROJ_PARK_AFTER_S"]
    with project.worker("-c", "2"):
        for number in range(5):
            project.send("waits_late", number, 9.0)
        wait_for("all to run again", lambda: runs(project) >= once(range(5)))
    assert runs(project) == once(range(5))
