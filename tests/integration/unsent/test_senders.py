"""A sender whose broker is away, full, slow, or known by several addresses."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import kombu
import pytest
import redis
from amqp import AccessRefused
from kombu import Exchange, Queue
from kombu.exceptions import EncodeError, OperationalError
from support.servers.own_redis import own_redis

pytestmark = pytest.mark.service

#: Seconds that a sender may take, on a busy machine, for what takes it no time.
AT_ONCE_S = 0.4
AFTER_S = 0.5


@pytest.fixture
def broker(project, make_proxy):
    """The proxy before the broker of the project, and its address."""
    return make_proxy(project.broker)


@pytest.fixture
def sender(project, broker, make_sender):
    return make_sender(project, broker[1])


def seconds(call, *args, **options):
    began = time.monotonic()
    call(*args, **options)
    return time.monotonic() - began


def messages(project):
    with kombu.Connection(project.broker) as connection:
        return connection.default_channel.queue_declare(project.queue, passive=True).message_count


def test_messages_are_sent_again_once_the_broker_is_back(sender, broker, project):
    proxy, _ = broker
    sender.send(0)
    proxy.cut()
    for number in range(1, 4):
        sender.send(number)
    assert [letter.args[0] for letter in sender.letters()] == [1, 2, 3]
    assert sender.doubts == 0, "the connection was refused"
    proxy.restore()
    sender.dlq.sending.circuit._try_at = 0.0
    sender.send(4)
    assert (messages(project), len(sender.letters())) == (2, 3)


def test_a_connection_that_the_broker_has_closed_is_opened_again(sender, broker, project):
    """RabbitMQ closes an idle one without heartbeats. What is written to it vanishes."""
    sender.send(0)
    broker[0].sever()
    sender.send(1)
    assert (messages(project), sender.letters()) == (2, [])


@pytest.mark.parametrize("first", ["a message", "a message without the option", "nothing"])
def test_a_broker_that_does_not_answer_holds_one_message_for_a_while(sender, broker, first):
    proxy, _ = broker
    if first == "a message":
        sender.send(0)
    elif first != "nothing":
        with sender.app.producer_or_acquire() as producer:
            producer.publish({}, routing_key=sender.project.queue)
    proxy.hold()
    assert seconds(sender.send, 1) < AFTER_S + AT_ONCE_S
    assert seconds(sender.send, 2) < AT_ONCE_S
    assert seconds(sender.send, 3) < AT_ONCE_S
    assert [letter.args[0] for letter in sender.letters()] == [1, 2, 3]
    assert sender.doubts == (first == "a message"), "before the connection, nothing is sent"
    proxy.flow()


@pytest.mark.parametrize("how", ["cut", "hold"])
def test_another_address_of_the_broker_is_tried(project, make_proxy, make_sender, how):
    (one, one_url), (two, two_url) = make_proxy(project.broker), make_proxy(project.broker)
    sender = make_sender(project, f"{one_url};{two_url}")
    getattr(one, how)()
    sender.send(1)
    assert messages(project) == 1
    getattr(two, how)()
    sender.send(2)
    sender.send(3)
    one.flow() if how == "hold" else one.restore()
    sender.dlq.sending.circuit._try_at = 0.0
    sender.send(4)
    assert [letter.args[0] for letter in sender.letters()] == [2, 3]
    two.flow() if how == "hold" else two.restore()


def test_a_message_that_cannot_be_serialised_is_raised_whether_the_broker_is_away(sender, broker):
    with pytest.raises(EncodeError):
        sender.send(object())
    broker[0].cut()
    for _ in range(2):
        with pytest.raises(EncodeError):
            sender.send(object())
    assert sender.letters() == []


def test_a_connection_of_the_caller_is_used_and_lost(sender, broker, project):
    with sender.app.connection_for_write() as connection:
        sender.send(0, connection=connection)
        broker[0].cut()
        sender.send(1, connection=connection)
        broker[0].restore()
        sender.dlq.sending.circuit._try_at = 0.0
        sender.send(2, connection=connection)
    assert (messages(project), len(sender.letters())) == (2, 1)


def test_threads_lose_and_double_nothing(sender, broker, project):
    proxy, _ = broker
    sender.send(0)

    def send(thread):
        for number in range(10):
            sender.send(100 * thread + number)
            if (thread, number) == (0, 3):
                proxy.cut()
            elif (thread, number) == (0, 6):
                proxy.restore()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(send, range(8)))
    # The broker may have one in doubt, too.
    assert 81 <= messages(project) + len(sender.letters()) <= 81 + sender.doubts


def test_a_full_queue_of_rabbitmq_keeps_the_message(make_project, rabbitmq_url, make_sender):
    project = make_project(rabbitmq_url)
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    queue = Queue(project.queue, Exchange(""), project.queue, queue_arguments=full)
    sender = make_sender(project, task_queues=[queue])
    for number in range(3):
        assert seconds(sender.send, number) < AFTER_S
    assert messages(project) == 1
    assert [letter.args[0] for letter in sender.letters()] == [1, 2]


@pytest.fixture
def server(tmp_path):
    """A Redis of the test's own, and its address."""
    with own_redis(tmp_path) as url, redis.Redis.from_url(url) as client:
        yield client, f"{url}/0"


def test_a_redis_that_is_full_or_read_only_keeps_the_message(server, make_project, make_sender):
    client, url = server
    sender = make_sender(make_project(url))
    sender.send(0)
    client.config_set("maxmemory", "1mb")
    sender.send(1)
    client.config_set("maxmemory", "0")
    client.replicaof("127.0.0.1", "1")
    sender.send(2)
    client.replicaof("NO", "ONE")
    sender.send(3)
    assert [letter.args[0] for letter in sender.letters()] == [1, 2]
    assert sender.doubts == 0, "Redis has said no"


def test_a_wrong_password_of_redis_is_raised(server, make_project, make_sender, caplog):
    client, url = server
    sender = make_sender(make_project(url), url.replace("//", "//:wrong@"))
    client.config_set("requirepass", "right")
    with pytest.raises(OperationalError, match="password"):
        sender.send(0)
    client.config_set("requirepass", "")
    assert sender.letters() == []
    assert "messages are kept" not in caplog.text, "the broker is not away"


def test_a_wrong_password_of_rabbitmq_is_raised(make_project, rabbitmq_url, make_sender, caplog):
    wrong = rabbitmq_url.replace("guest:guest", "guest:wrong")
    sender = make_sender(make_project(rabbitmq_url), wrong)
    with pytest.raises(AccessRefused):
        sender.send(0)
    assert sender.letters() == []
    assert "messages are kept" not in caplog.text, "the broker is not away"
