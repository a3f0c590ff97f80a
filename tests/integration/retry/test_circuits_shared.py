"""A service is away: its tasks are parked by all workers, one at a time looks, and then each runs once."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from celery import chain
from project import wait_for
from queues import redis_options
from support.workers.processes import kill_with_its_pool

from celery_dlq import Filter
from celery_dlq.model.states import Reason, State

pytestmark = [pytest.mark.slow, pytest.mark.service]

ONE = ("-c", "2")

#: On Redis; and the lock of a worker that is killed while it looks for such messages does not last longer.
SOON_HANDED_OUT_AGAIN = json.dumps({"visibility_timeout": 8, "unacked_mutex_expire": 5})


@pytest.fixture(params=["redis-sqlite", "redis-postgres", "rabbitmq-mysql"])
def pair(request, make_project, urls_of, redis_url):
    """The brokers and databases, in the pairs that people run."""
    return breaker_project(make_project, *urls_of(request.param), f"{redis_url}/9")


def breaker_project(make_project, broker_url, store_url, backend):
    project = make_project(broker_url, store_url, module="proj_breaker", backend=backend)
    project.dlq.store.check_schema()
    with project.app.connection_for_write() as connection:
        connection.SimpleQueue(project.queue).clear()
    return project


def unsettled(project) -> int:
    """Messages that the broker has, with a worker or not."""
    with project.app.connection_for_read() as connection:
        channel = connection.default_channel
        if connection.transport.driver_type == "redis":
            held = channel.client.hlen(redis_options(project.queue)["unacked_key"])
            return channel._size(project.queue) + held
        return channel.queue_declare(project.queue, passive=True).message_count


def send_until_open(project, task) -> list[int]:
    numbers = list(range(6))
    for number in numbers:
        project.send(task, number)
    wait_for("the circuit to open", lambda: project.logged().count(f"circuit of proj.{task} open"))
    return numbers


@pytest.mark.parametrize("task", ["calls", "calls_late"])
def test_a_circuit_that_one_worker_opens_is_open_for_all_and_each_message_runs_once(pair, task):
    with pair.worker(*ONE):
        numbers = send_until_open(pair, task)
        with pair.worker(*ONE):
            wait_for("the other worker to see it", lambda: (
                sum(f"circuit of proj.{task} open" in log for log in pair.logs()) == 2
            ))  # fmt: skip
            numbers += range(6, 30)
            for number in range(6, 30):
                pair.send(task, number)
            wait_for("all to be parked", lambda: pair.parked() == len(numbers))
            wait_for("a probe to fail", lambda: pair.logged().count("still open: probe 1 failed"))
            pair.fixed.touch()
            wait_for("all to run", lambda: len(pair.lines("done")) >= len(numbers))
            wait_for("nothing to be parked", lambda: pair.parked() == 0)
    assert Counter(pair.lines("done")) == Counter(map(str, numbers))
    assert all(count == 1 for count in Counter(pair.lines("calls")).values()), "no run twice"
    assert pair.count() == 0, "no letters"


@pytest.mark.parametrize("pool", ["threads", "solo", "gevent"])
def test_each_message_runs_once_in_other_pools(make_project, redis_url, tmp_path, pool):
    store_url, broker_url = f"sqlite:///{tmp_path}/store.sqlite3", f"{redis_url}/9"
    project = breaker_project(make_project, broker_url, store_url, broker_url)
    with project.worker("-P", pool, "-c", "2"):
        numbers = send_until_open(project, "calls")
        wait_for("a probe to fail", lambda: project.logged().count("still open: probe 1 failed"))
        project.fixed.touch()
        wait_for("all to run", lambda: len(project.lines("done")) >= len(numbers))
        wait_for("nothing to be parked", lambda: project.parked() == 0)
    assert Counter(project.lines("done")) == Counter(map(str, numbers))


def test_with_both_limits_and_a_budget_each_message_runs_once_or_is_a_letter(
    make_project, redis_url, tmp_path
):
    store_url, broker_url = f"sqlite:///{tmp_path}/store.sqlite3", f"{redis_url}/9"
    project = breaker_project(make_project, broker_url, store_url, broker_url)
    project.settings.update(dlq_breaker_streak=3, dlq_retry_budget=1.0)
    project.environ["PROJ_RECOVERY_S"] = "0.3"
    with project.worker(*ONE):
        numbers = send_until_open(project, "calls")
        wait_for("its worker to open one, too", lambda: (
            project.logged().count("circuit of proj.calls open in this worker")
        ))  # fmt: skip
        project.fixed.touch()
        wait_for("all to end", lambda: (
            len(project.lines("done")) + project.count() >= len(numbers)
        ))  # fmt: skip
        wait_for("nothing to be held", lambda: not project.statistics()["held"])
        wait_for("nothing to be parked", lambda: project.parked() == 0)
        wait_for("no message to be left", lambda: unsettled(project) == 0)
    done = Counter(project.lines("done"))
    assert set(done.values()) == {1}
    assert len(done) + project.count(reason=Reason.BUDGET) == len(numbers)


def test_while_it_is_open_only_probes_call(pair):
    pair.environ["PROJ_RECOVERY_S"] = "1.0"
    with pair.worker(*ONE), pair.worker(*ONE):
        numbers = send_until_open(pair, "calls")
        wait_for("both to know", lambda: pair.logged().count("circuit of proj.calls open") == 2)
        wait_for("all to be parked", lambda: pair.parked() == len(numbers))
        before = len(pair.lines("calls"))
        wait_for("two probes to fail", lambda: pair.logged().count("still open: probe 2 failed"))
        called, probes = len(pair.lines("calls")), pair.logged().count("runs as the probe")
    assert called - before <= probes
    assert probes <= 3, "1 s, 2 s and 4 s after each other"
    wait_for("all to be somewhere", lambda: pair.parked() + unsettled(pair) == len(numbers))


def test_one_customer_is_parked_and_the_others_run(pair):
    with pair.worker(*ONE):
        for number in range(6):
            pair.send("calls_one_of", number, customer="acme")
        wait_for(
            "the circuit", lambda: pair.logged().count("circuit of proj.calls_one_of[acme] open")
        )
        for number in range(6):
            pair.send("calls_one_of", number, customer="zeta")
        wait_for("the others to run", lambda: len(pair.lines("done")) == 6)
        wait_for("acme's to be parked", lambda: pair.parked() == 6)
        seen_by_stats = pair.statistics()["circuits"]
        assert seen_by_stats["proj.calls_one_of[acme]"]["state"] in ("open", "half_open")
        assert "circuit" in pair.run("dlq", "doctor").stdout
        pair.fixed.touch()
        wait_for("acme's to run", lambda: len(pair.lines("done")) == 12)
    assert Counter(pair.lines("done")).most_common(1)[0][1] == 1


def test_a_parked_message_keeps_its_place_in_a_chain(pair):
    with pair.worker(*ONE):
        send_until_open(pair, "calls")
        first = pair.app.signature("proj.calls", (100,))
        result = chain(first, pair.app.signature("proj.add", (11,)), app=pair.app)()
        pair.sent += [result.id, result.parent.id]
        wait_for("it to be parked", lambda: pair.parked() == 7)
        pair.fixed.touch()
        assert result.get(timeout=60) == 111


def test_a_redriven_message_that_is_parked_resolves_its_letter(pair):
    """It runs out of attempts first, and is sent back while the circuit is open."""
    pair.environ["PROJ_RECOVERY_S"] = "300"  # or it might be the probe
    task_id = pair.send("calls_once", 1)
    with pair.worker(*ONE):
        pair.wait_for_letter(task_id)
        send_until_open(pair, "calls_once")
        pair.dlq.redrives.start(Filter(ids=(task_id,)), who="tester")
        wait_for(
            "it to be parked", lambda: pair.logged().count(f"proj.calls_once[{task_id}] is parked")
        )
        pair.fixed.touch()
        pair.dlq.store.circuits.prune(older_than_s=-3_600)
        # Released earlier, they would be parked again by a worker that still sees the circuit open.
        wait_for(
            "it to be closed", lambda: pair.logged().count("circuit of proj.calls_once closed")
        )
        pair.dlq.unpark(Filter(queue=pair.queue), who="tester")
        assert pair.wait_for_letter(task_id, State.RESOLVED).redrive_count == 1


def test_a_worker_killed_before_it_acknowledged_what_it_parked_doubles_nothing(pair):
    pair.environ["PROJ_TRANSPORT"] = SOON_HANDED_OUT_AGAIN
    pair.environ["PROJ_RECOVERY_S"] = "300"
    with pair.worker(*ONE) as first:
        numbers = [*send_until_open(pair, "calls_late"), 100]
        wait_for("all to be parked", lambda: pair.parked() == len(numbers) - 1)
        task_id = pair.send("calls_late", 100)
        first.wait(timeout=60)
    # Another one may be on its way again, if its worker had it for longer than the visibility timeout.
    waiting = Filter(ids=(task_id,), states=frozenset({State.PARKED}))
    assert pair.dlq.store.counts.letters(waiting) == 1, "it was killed when this one was parked"
    wait_for("it to be back, because it was not acknowledged", lambda: unsettled(pair) >= 1)

    pair.fixed.touch()
    pair.dlq.store.circuits.prune(older_than_s=-3_600)
    pair.dlq.unpark(Filter(queue=pair.queue), who="tester")
    with pair.worker(*ONE):
        wait_for("all to run", lambda: len(set(pair.lines("done"))) == len(numbers))
        wait_for("no message to be left", lambda: unsettled(pair) == 0)
        wait_for("nothing to be parked", lambda: pair.parked() == 0)
    done = Counter(pair.lines("done"))
    if pair.broker.startswith("amqp"):
        # There, a message that comes back after its parked copy has run is run once more, as the how-to says.
        done["100"] = min(done["100"], 1)
    assert done == Counter(map(str, numbers))


def test_a_worker_killed_with_the_probe_lets_another_one_look(pair):
    pair.environ["PROJ_TRANSPORT"] = SOON_HANDED_OUT_AGAIN
    with pair.worker(*ONE) as first:
        numbers = send_until_open(pair, "calls_late")
        wait_for("all to be parked", lambda: pair.parked() == len(numbers))
        # RabbitMQ delivers a message again that was parked and not acknowledged. It would be another message
        # than its parked copy, because RabbitMQ gives messages no name.
        wait_for("all to be acknowledged", lambda: not pair.active())
        kill_with_its_pool(first)
    pair.fixed.touch()
    with pair.worker(*ONE):
        wait_for("all to run", lambda: len(pair.lines("done")) >= len(numbers))
    assert Counter(pair.lines("done")) == Counter(map(str, numbers))
