"""A worker whose connection to the broker is dead for one side only: it lives, and receives nothing.

So it was in celery/celery#8030 and #8091. A proxy between the worker and the broker freezes the connection on
which the worker consumes; new connections are passed on.
"""

import contextlib
import re
import time
from urllib.parse import urlsplit

import pytest
from project import wait_for
from proxy import Proxy

from celery_dlq.worker.celery_quirks.redis_take import WAIT_S

pytestmark = [pytest.mark.slow, pytest.mark.service]

STALL_AFTER_S = 2
#: What a worker with one process takes at once.
PREFETCHED = 4
#: The bytes by which the connection is known on which a worker consumes: how long Redis waits for a message,
#: which no other command has, and the number of AMQP's method Basic.Consume in its frame.
MARKS = {"redis": f"\r\n{WAIT_S}\r\n".encode(), "rabbitmq": b"\x00\x3c\x00\x14"}
POOLS = {
    "prefork": ("-P", "prefork", "-c", "1"),
    "gevent": ("-P", "gevent", "-c", "1"),
    "solo": ("-P", "solo", "-c", "1"),
}
STALLED = "this worker is stalled"


@pytest.fixture
def proxies():
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def make(make_project, redis_url, request, proxies):
    """Makes a project whose workers reach the broker through a proxy."""

    def make(broker, **settings):
        url = f"{redis_url}/9" if broker == "redis" else request.getfixturevalue("rabbitmq_url")
        parts = urlsplit(url)
        proxy = Proxy(parts.hostname, parts.port, mark=MARKS[broker])
        proxies.callback(proxy.close)
        project = make_project(
            url, backend=f"{redis_url}/9", module="proj_stalled",
            settings={"dlq_stall_after": STALL_AFTER_S, **settings},
        )  # fmt: skip
        project.environ["PROJ_BROKER"] = url.replace(parts.netloc, _through(parts, proxy))
        return project, proxy

    return make


def _through(parts, proxy):
    who, at, _ = parts.netloc.rpartition("@")
    return f"{who}{at}127.0.0.1:{proxy.port}"


def wait_until_done(project, *tasks):
    for task in tasks:
        wait_for(f"{task} to end", lambda task=task: project.app.AsyncResult(task).successful())


def freeze(project, proxy):
    """Freeze the connection of a worker that has just run a task, and send more than it takes at once."""
    wait_until_done(project, project.send("succeed"))
    assert proxy.freeze()  # on RabbitMQ, with gevent, remote control has a connection of its own
    # Redis gives the command up after WAIT_S, and no other follows. A message that came before that is on its
    # way through the proxy.
    time.sleep(1.5)
    return [project.send("succeed", number) for number in range(PREFETCHED + 2)]


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("broker", MARKS)
def test_a_frozen_connection_is_noticed_and_so_is_its_end(make, broker, pool):
    project, proxy = make(broker, broker_heartbeat=0)
    with project.worker(*POOLS[pool]):
        sent = freeze(project, proxy)
        wait_for("the log line", lambda: STALLED in project.logged())
        [line] = re.findall(rf"{STALLED}: .*", project.logged())
        assert f"({project.queue}: " in line
        assert "restart it" in line
        [node] = project.nodes
        wait_for("the hook", lambda: project.lines("stalls") == [f"{node} {project.queue}"])
        proxy.thaw()
        wait_until_done(project, *sent)
        wait_for("the second line", lambda: "receives messages again" in project.logged())
    assert project.logged().count(STALLED) == 1


def test_a_stall_is_in_the_statistics_and_the_doctor_names_it(make):
    project, proxy = make("redis")
    with project.worker(*POOLS["prefork"]):
        assert project.statistics()["stalled"] is None
        freeze(project, proxy)
        wait_for("the log line", lambda: STALLED in project.logged())
        # Redis has other connections for remote control.
        assert project.statistics()["stalled"]["queues"] == [project.queue]
        told = " ".join(project.run("dlq", "doctor").stdout.split())
        assert f"{project.nodes[0]} has received nothing since" in told
        proxy.thaw()
        wait_for("its end", lambda: project.statistics()["stalled"] is None)


@pytest.mark.parametrize("broker", MARKS)
def test_a_connection_that_breaks_at_last_ends_the_stall(make, broker):
    project, proxy = make(broker, broker_heartbeat=0)
    with project.worker(*POOLS["prefork"]):
        sent = freeze(project, proxy)
        wait_for("the log line", lambda: STALLED in project.logged())
        proxy.sever()
        wait_until_done(project, *sent)
        wait_for("the second line", lambda: "receives messages again" in project.logged())
    assert project.logged().count(STALLED) == 1


@pytest.mark.nightly
@pytest.mark.parametrize("pool", POOLS)
def test_a_worker_that_is_only_deaf_is_noticed_and_a_restart_helps(make, pool):
    project, _ = make("redis")
    with project.worker(*POOLS[pool]):
        project.directory.joinpath("deaf").touch()
        time.sleep(1.5)
        sent = [project.send("succeed", number) for number in range(3)]
        wait_for("the log line", lambda: STALLED in project.logged())
    project.directory.joinpath("deaf").unlink()
    with project.worker(*POOLS[pool]):
        wait_until_done(project, *sent)


# -- No false alarm --------------------------------------------------------------------------------


@pytest.fixture
def make_directly(make_project, redis_url, request):
    """Makes a project on Redis, on RabbitMQ, or on a quorum queue of it."""

    def make(broker, **settings):
        url = f"{redis_url}/9" if broker == "redis" else request.getfixturevalue("rabbitmq_url")
        return make_project(
            url, backend=f"{redis_url}/9", module="proj_stalled",
            queue_type="quorum" if broker == "quorum" else "classic",
            settings={"dlq_stall_after": STALL_AFTER_S, **settings},
        )  # fmt: skip

    return make


def waiting(project):
    with project.app.connection_for_write() as connection:
        if connection.transport.driver_type == "redis":
            return connection.default_channel._size(project.queue)
        return connection.default_channel.queue_declare(project.queue, passive=True).message_count


def assert_not_stalled(project, *, waits=True):
    """In several times the time for it, the worker does not count as stalled.

    :param waits: whether messages wait.
    """
    time.sleep(4 * STALL_AFTER_S)
    assert (waiting(project) > 0) is waits
    assert project.statistics()["stalled"] is None
    assert STALLED not in project.logged()


@pytest.mark.nightly
@pytest.mark.parametrize("broker", ["redis", "rabbitmq", "quorum"])
def test_tasks_that_wait_for_their_rate_limit_are_no_stall(make_directly, broker):
    limits = {"proj.succeed": {"rate_limit": "1/h"}}
    project = make_directly(broker, task_annotations=limits)
    sent = [project.send("succeed", number) for number in range(20)]
    with project.worker("-P", "prefork", "-c", "2"):
        wait_until_done(project, sent[0])
        assert_not_stalled(project)


@pytest.mark.nightly
@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_tasks_with_an_eta_are_no_stall(make_directly, broker):
    project = make_directly(broker)
    for number in range(20):
        project.app.send_task("proj.succeed", (number,), countdown=3_600)
    with project.worker(*POOLS["prefork"]):
        wait_for("the worker to hold them all", lambda: not waiting(project))
        assert_not_stalled(project, waits=False)
        wait_until_done(project, project.send("succeed"))


@pytest.mark.nightly
@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_a_paused_consumer_is_no_stall(make_directly, broker):
    project = make_directly(broker)
    with project.worker(*POOLS["prefork"]):
        control = project.app.control
        assert control.cancel_consumer(project.queue, destination=project.nodes, reply=True)
        if broker == "redis":
            time.sleep(1.5)  # its last command still takes one message
        sent = [project.send("succeed", number) for number in range(3)]
        assert_not_stalled(project)
        assert control.add_consumer(project.queue, destination=project.nodes, reply=True)
        wait_until_done(project, *sent)


@pytest.mark.parametrize("pool", POOLS)
def test_a_long_task_is_no_stall(make_directly, pool):
    project = make_directly("redis", worker_prefetch_multiplier=1)
    sent = [project.send("waits_for", number, "go") for number in range(4)]
    with project.worker(*POOLS[pool]):
        wait_for("the first task", lambda: waiting(project) < len(sent))
        time.sleep(4 * STALL_AFTER_S)
        assert waiting(project) > 0
        assert STALLED not in project.logged()
        project.directory.joinpath("go").touch()
        wait_until_done(project, *sent)


@pytest.mark.nightly
def test_two_workers_that_share_a_queue_are_no_stall(make_directly):
    project = make_directly("redis", worker_prefetch_multiplier=1)
    with project.worker("-P", "prefork", "-c", "1"), project.worker("-P", "prefork", "-c", "1"):
        deadline = time.monotonic() + 4 * STALL_AFTER_S
        sent = []
        while time.monotonic() < deadline:
            sent.append(project.send("succeed", len(sent)))
            time.sleep(0.05)
        wait_until_done(project, *sent[-3:])
        assert STALLED not in project.logged()
