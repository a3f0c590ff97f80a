"""A bad deploy: every message of a task dies. Each worker opens a circuit, and the rest stays in the
broker."""

import pytest
from project import wait_for
from support.workers.processes import kill_with_its_pool

pytestmark = [pytest.mark.slow, pytest.mark.service]

#: What the pool may have taken when the circuit opens: two run, and eight wait for a process.
LIMIT, TAKEN = 5, 2 + 8
STREAK = {"dlq_breaker_streak": LIMIT, "dlq_breaker_window": 60, "dlq_breaker_recovery": 600}
POOLS = {"prefork": ("-P", "prefork", "-c", "2"), "threads": ("-P", "threads", "-c", "2")}
BROKERS = {"redis": "classic", "rabbitmq": "classic", "quorum": "quorum"}


@pytest.fixture(params=BROKERS)
def make(request, make_project, redis_url):
    def make(module="proj", **settings):
        redis = request.param == "redis"
        broker = f"{redis_url}/9" if redis else request.getfixturevalue("rabbitmq_url")
        return make_project(
            broker, module=module, backend=f"{redis_url}/9", queue_type=BROKERS[request.param],
            settings={**STREAK, **settings},
        )  # fmt: skip

    return make


def waiting(project):
    with project.app.connection_for_write() as connection:
        if connection.transport.driver_type == "redis":
            return connection.default_channel._size(project.queue)
        return connection.default_channel.queue_declare(project.queue, passive=True).message_count


def wait_until_none_runs(project, sent):
    """Until each message is a letter, held, or in the queue."""
    # In the order of its way from its end: a message that moves meanwhile is missed, and not counted twice.
    wait_for("those in the pool to end", lambda: (
        project.count() + project.statistics()["held"] + waiting(project) == len(sent)
    ))  # fmt: skip


def runs(project):
    """How often each message of ``late`` was run."""
    return {
        path.name: len(path.read_text()) for path in project.directory.glob("count-late-*")
    }  # fmt: skip


@pytest.mark.parametrize(("pool", "task"), [("prefork", "late"), ("threads", "terminal")])
def test_messages_of_a_task_that_only_fails_stay_in_the_broker_and_other_tasks_run(
    make, pool, task
):
    project = make()
    with project.worker(*POOLS[pool]):
        sent = [project.send(task, number) for number in range(40)]
        wait_for("the circuit to open", lambda: "open in this worker" in project.logged())
        if project.queue_type == "classic":
            after = project.send("add", 1, 2)
            assert project.app.AsyncResult(after).get(timeout=60) == 3, (
                "it came after them in the queue"
            )
        # A message that is not acknowledged when the worker ends is a letter, and is delivered again.
        wait_until_none_runs(project, sent)
    letters = project.count()
    assert LIMIT <= letters <= LIMIT + TAKEN
    wait_for("the rest to be back in the queue", lambda: waiting(project) + letters >= len(sent))
    assert waiting(project) + letters == len(sent)
    project.fixed.touch()
    with project.worker(*POOLS[pool]):
        left = [task_id for task_id in sent if project.letter(task_id) is None]
        for task_id in left:
            project.app.AsyncResult(task_id).get(timeout=60)
    assert project.count() == letters, "no other task died"
    if task == "late":
        assert runs(project) == {f"count-late-{number}": 1 for number in range(40)}


def test_a_probe_finds_that_the_task_works_again(make):
    project = make(dlq_breaker_recovery=0.2)
    with project.worker("-c", "2"):
        sent = [project.send("late", number) for number in range(40)]
        wait_for("a failed probe", lambda: "circuit of proj.late still open" in project.logged())
        project.fixed.touch()
        wait_for("it to close", lambda: "circuit of proj.late closed" in project.logged())
        for task_id in sent:
            wait_for(f"the end of {task_id}", lambda task_id=task_id: (
                project.app.AsyncResult(task_id).ready()
            ))  # fmt: skip
    assert project.count() < len(sent) / 2
    assert runs(project) == {f"count-late-{number}": 1 for number in range(40)}


def test_a_service_that_is_away_is_left_alone_before_its_tasks_are_exhausted(project):
    project.settings.update(STREAK, dlq_breaker_recovery=0.2)
    sent = [project.send("exhausted", number) for number in range(40)]
    with project.worker("-c", "2"):
        wait_for(
            "a failed probe", lambda: "circuit of proj.exhausted still open" in project.logged()
        )
        project.fixed.touch()
        for number, task_id in enumerate(sent):
            assert project.app.AsyncResult(task_id).get(timeout=60) == number
    assert project.count() == 0


def test_a_message_held_too_long_goes_back_and_comes_again_without_harm(make):
    project = make("proj_held")
    with project.worker("-c", "2"):
        sent = [project.send("late", number) for number in range(20)]
        wait_for("the circuit to open", lambda: "open in this worker" in project.logged())
        received = [f"proj.late[{task_id}] received" for task_id in sent]
        wait_for("a message to come again", lambda: any(
            project.logged().count(line) > 2 for line in received
        ))  # fmt: skip
    letters = project.count()
    wait_for("the rest to be back in the queue", lambda: waiting(project) + letters >= len(sent))
    assert waiting(project) + letters == len(sent)
    assert set(runs(project).values()) == {1}


def test_a_revoked_message_is_discarded_while_it_is_held(project):
    project.settings.update(STREAK)
    with project.worker("-c", "1"):
        for number in range(20):
            project.send("late", number)
        wait_for("the circuit to open", lambda: "open in this worker" in project.logged())
        task_id = project.send("late", 99)
        wait_for("its arrival", lambda: f"proj.late[{task_id}] received" in project.logged())
        project.app.control.revoke(task_id)
        wait_for(
            "the end", lambda: f"Discarding revoked task: proj.late[{task_id}]" in project.logged()
        )
    assert "count-late-99" not in runs(project)


def test_a_killed_worker_loses_nothing_that_it_held(make_project, rabbitmq_url):
    project = make_project(rabbitmq_url, settings=STREAK)
    with project.worker("-c", "1") as process:
        sent = [project.send("late", number) for number in range(20)]
        wait_for("the circuit to open", lambda: "open in this worker" in project.logged())
        wait_for("all to be held", lambda: waiting(project) == 0)
        # A message that is not acknowledged when the worker ends is a letter, and is delivered again.
        wait_until_none_runs(project, sent)
        kill_with_its_pool(process)
    letters = project.count()
    wait_for("the rest to be back in the queue", lambda: waiting(project) + letters >= len(sent))
    assert waiting(project) + letters == len(sent)


def test_the_workers_statistics_show_its_circuits(project):
    project.settings.update(STREAK)
    with project.worker("-c", "1"):
        for number in range(20):
            project.send("terminal", number)
        wait_for("the circuit to open", lambda: "open in this worker" in project.logged())
        seen = wait_for(
            "messages to be held", lambda: (now := project.statistics())["held"] and now
        )
    assert seen["circuits"]["proj.terminal"] == {
        "state": "open", "failures": LIMIT, "probes": 0, "messages": "held",
    }  # fmt: skip
