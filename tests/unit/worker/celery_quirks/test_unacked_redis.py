"""Messages that a Redis channel has received and not acknowledged: kombu's own channels on a real Redis."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from kombu import Connection, Consumer, Exchange, Producer, Queue
from support.servers.own_redis import own_redis
from support.servers.ports import free_port

from celery_dlq.recorder.tags import Tags, noted_in
from celery_dlq.worker.celery_quirks.unacked import Whereabouts
from celery_dlq.worker.celery_quirks.unacked_redis import OnRedis
from celery_dlq.worker.celery_quirks.visibility import kind_of

ACKNOWLEDGED, GIVEN_BACK, ELSEWHERE = Whereabouts
PATIENCE_S = 30

QUEUES = (Queue("q"),)


@pytest.fixture(scope="module")
def url(tmp_path_factory, redis_url):
    with own_redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture
def client(url):
    with redis.Redis.from_url(url, decode_responses=True) as client:
        client.flushall()
        client.config_set("maxmemory", "0")
        yield client


class Worker:
    """A channel that receives messages, and the notes about them."""

    def __init__(self, url, directory, queues, **options):
        self.connection = Connection(url, transport_options=options)
        self.channel = self.connection.channel()
        self.broker, self.directory = OnRedis.broker_of(self.channel), directory
        self.tags = Tags(directory, self.broker)
        self.acknowledged = []
        self.unacknowledged = OnRedis(self.channel, self.tags, self.acknowledged.append)
        self.got = []
        self._consumer = Consumer(self.channel, queues, on_message=self.got.append)

    def receive(self, count):
        """Wait until it has received ``count`` messages more; returns their bodies."""
        before, deadline = len(self.got), time.monotonic() + PATIENCE_S
        self._consumer.consume()
        self.channel.qos.prefetch_count = len(self.channel.qos._delivered) + count
        while len(self.got) < before + count:
            assert time.monotonic() < deadline, "waited in vain for messages"
            self.connection.drain_events(timeout=PATIENCE_S)
        return [message.decode() for message in self.got[before:]]

    @property
    def noted(self):
        return [one.tag for one in noted_in(self.directory, self.broker)]

    def give_back(self, of, process="p1"):
        """Give back what the worker ``of`` has noted."""
        noted = noted_in(of.directory, of.broker)
        return [*OnRedis.give_back(self.channel, noted, process).values()]

    def end(self):
        """End as a killed process does: nothing is given back."""
        self.channel.qos._on_collect.cancel()
        self.channel.qos._delivered.clear()
        self.connection.close()


@pytest.fixture
def make(url, client, tmp_path):
    made = []

    def make(*, queues=QUEUES, url=url, **options):
        directory = tmp_path / str(len(made))
        directory.mkdir()
        made.append(Worker(url, directory, queues, **options))
        return made[-1]

    yield make
    for worker in made:
        worker.end()


def send(url, *bodies, exchange="", routing_key="q", options=None, **given):
    with Connection(url, transport_options=options or {}) as connection:
        producer = Producer(connection.channel())
        for body in bodies:
            producer.publish(
                body, exchange=exchange, routing_key=routing_key, serializer="json", **given
            )


def test_a_message_is_noted_until_redis_has_forgotten_it(url, make):
    worker = make()
    send(url, "a", "b", "c", "d")
    worker.receive(4)
    assert worker.noted == [message.delivery_tag for message in worker.got]
    acked, rejected, returned, kept = worker.got
    acked.ack()
    rejected.reject()
    returned.requeue()
    assert worker.noted == [kept.delivery_tag]
    assert worker.acknowledged == [acked.delivery_tag]
    worker.channel.qos.restore_unacked()
    assert worker.noted == []


def test_messages_come_back_first_in_their_order_and_marked(url, client, make):
    worker, other = make(), make()
    send(url, *"abc")
    worker.receive(3)
    send(url, "later")
    assert other.give_back(worker) == [GIVEN_BACK] * 3
    assert client.hlen("unacked") == client.zcard("unacked_index") == 0
    assert other.receive(4) == ["a", "b", "c", "later"]
    assert [message.headers.get("redelivered") for message in other.got] == [True, True, True, None]
    assert other.got[0].delivery_info["redelivered"] is True


def test_notes_are_found_by_a_worker_whose_connection_has_another_address(url, make):
    dead = f"redis://127.0.0.1:{free_port()}"
    # This one has connected to the second address, as after a failover.
    worker, other = make(url=f"{dead};{url}"), make(url=f"{url};{dead}")
    send(url, *"ab")
    worker.receive(2)
    assert worker.broker == other.broker
    assert other.give_back(worker) == [GIVEN_BACK] * 2


def test_a_worker_that_waits_gets_the_first_one_first(url, client, make):
    worker, other = make(), make()
    send(url, *(f"{number}" for number in range(20)))
    worker.receive(20)
    with ThreadPoolExecutor(1) as pool:
        received = pool.submit(other.receive, 20)
        deadline = time.monotonic() + PATIENCE_S
        while not client.info("clients")["blocked_clients"]:
            assert time.monotonic() < deadline
        assert make().give_back(worker) == [GIVEN_BACK] * 20
        assert received.result(PATIENCE_S) == [f"{number}" for number in range(20)]


def test_it_may_be_repeated_and_takes_nothing_from_another_worker(url, client, make):
    worker, other = make(), make()
    send(url, *"ab")
    worker.receive(2)
    worker.got[1].ack()
    worker.tags.add(worker.got[1].delivery_tag)  # killed before it was noted
    assert other.give_back(worker) == [ACKNOWLEDGED, GIVEN_BACK]
    other.receive(1)
    # A recovery that was killed begins again: another worker has the message by now.
    assert other.give_back(worker) == [ACKNOWLEDGED, GIVEN_BACK]
    assert client.hlen("unacked") == 1
    other.got[0].ack()
    assert other.give_back(worker) == [ACKNOWLEDGED, GIVEN_BACK]
    assert client.llen("q") == 0


def test_a_message_that_kombu_gave_to_another_worker_stays_there(url, client, make):
    worker, other = make(), make()
    send(url, "a")
    worker.receive(1)
    tag = worker.got[0].delivery_tag
    # The visibility timeout was over, and the other worker received it then.
    client.zadd("unacked_index", {tag: time.time() + 3_600})
    assert other.give_back(worker) == [ELSEWHERE]
    assert client.hlen("unacked") == 1


def test_a_renewed_message_is_not_given_back_by_kombu_and_comes_back_after_a_kill(
    url, client, make
):
    worker, other = make(visibility_timeout=100), make(visibility_timeout=100)
    send(url, "a", "b")
    worker.receive(2)
    tags = [message.delivery_tag for message in worker.got]
    client.zadd("unacked_index", dict.fromkeys(tags, 1.0))  # long ago
    worker.got[1].ack()
    worker.unacknowledged.renew()
    other.channel.qos.restore_visible(interval=1)
    assert client.hkeys("unacked") == client.zrange("unacked_index", 0, -1) == tags[:1]
    assert client.zscore("unacked_index", tags[0]) > time.time() - PATIENCE_S
    assert other.give_back(worker) == [GIVEN_BACK]


def test_nothing_is_sent_without_messages(client, make):
    worker = make()
    client.config_resetstat()
    worker.unacknowledged.renew()
    assert "cmdstat_zadd" not in client.info("commandstats")


def test_prefixes_priorities_and_other_keys(url, client, make):
    options = {
        "global_keyprefix": "shop:", "unacked_key": "mine", "unacked_index_key": "mine_index",
        "priority_steps": [0, 5],
    }  # fmt: skip
    worker, other = make(**options), make(**options)
    send(url, "low", options=options)
    send(url, "high", options=options, priority=5)
    worker.receive(2)
    assert other.give_back(worker) == [GIVEN_BACK] * 2
    assert client.hlen("shop:mine") == client.zcard("shop:mine_index") == 0
    assert client.llen("shop:q") == 1
    [other_list] = [key for key in client.keys("shop:q*") if key != "shop:q"]
    assert json.loads(client.lindex(other_list, 0))["properties"]["priority"] == 5
    assert make().give_back(worker) == [ACKNOWLEDGED] * 2  # another broker, as far as keys say


def test_a_message_of_a_topic_exchange_returns_to_its_queues(url, client, make):
    topic = Exchange("events", type="topic")
    queues = (Queue("all", topic, routing_key="#"), Queue("some", topic, routing_key="a.*"))
    worker, other = make(queues=queues[:1]), make(queues=queues[:1])
    send(url, "x", exchange=topic, routing_key="b.c", declare=queues)
    worker.receive(1)
    assert other.give_back(worker) == [GIVEN_BACK]
    assert client.llen("all") == 1


def test_a_message_without_a_queue_waits_for_the_visibility_timeout(url, client, make):
    queue = Queue("q", Exchange("e"), routing_key="q")
    worker, other = make(queues=(queue,)), make()
    send(url, "x", exchange=queue.exchange, declare=[queue])
    worker.receive(1)
    client.delete("_kombu.binding.e")
    assert other.give_back(worker) == [ELSEWHERE]
    assert client.hlen("unacked") == 1


def test_a_full_redis_changes_nothing(url, client, make):
    worker, other = make(), make()
    send(url, "a")
    worker.receive(1)
    client.config_set("maxmemory", "1")
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        other.give_back(worker)
    client.config_set("maxmemory", "0")
    assert (client.hlen("unacked"), client.zcard("unacked_index"), client.llen("q")) == (1, 1, 0)
    assert other.give_back(worker) == [GIVEN_BACK]


@pytest.mark.parametrize("command", ["expire", "hdel", "zrem", "rpush", "sadd"])
def test_a_user_without_the_right_to_a_command_changes_nothing(url, client, make, command):
    client.acl_setuser(
        "shop", enabled=True, nopass=True, keys=["*"], channels=["*"],
        commands=["+@all", f"-{command}"], reset=True,
    )  # fmt: skip
    worker, other = make(), make(url=url.replace("://", "://shop:no@"))
    send(url, *"abc")
    worker.receive(3)
    with pytest.raises(redis.exceptions.ResponseError):
        other.give_back(worker)
    assert (client.hlen("unacked"), client.zcard("unacked_index"), client.llen("q")) == (3, 3, 0)
    client.acl_setuser("shop", commands=["+@all"])
    assert other.give_back(worker) == [GIVEN_BACK] * 3
    assert (client.hlen("unacked"), client.llen("q")) == (0, 3)


@pytest.mark.parametrize("headers", [{}, {"headers": None}, {"headers": {"redelivered": None}}])
def test_a_message_of_another_program_comes_back_with_the_others(url, client, make, headers):
    worker, other = make(), make()
    send(url, "a")
    info = {"exchange": "", "routing_key": "q"}
    properties = {"delivery_tag": "t", "delivery_info": info}
    client.lpush("q", json.dumps({"body": "odd", "properties": properties, **headers}))
    send(url, "b")
    worker.receive(3)
    assert other.give_back(worker) == [GIVEN_BACK] * 3
    assert (client.hlen("unacked"), client.llen("q")) == (0, 3)
    other.receive(3)
    assert all(message.delivery_info["redelivered"] for message in other.got)


@pytest.mark.parametrize("note", ["no JSON", "[]", '["", "", "q"]', '[{"properties": 7}, "", "q"]'])
def test_a_note_that_cannot_be_read_is_named_and_the_others_come_back(
    url, client, make, caplog, note
):
    worker, other = make(), make()
    send(url, *"abc")
    worker.receive(3)
    odd = worker.got[1].delivery_tag
    client.hset("unacked", odd, note)
    assert other.give_back(worker) == [GIVEN_BACK, ELSEWHERE, GIVEN_BACK]
    assert client.hkeys("unacked") == [odd]
    assert f"message {odd} of a killed worker waits for the visibility timeout" in caplog.text


def test_one_that_redis_refuses_is_named_and_the_others_come_back(url, client, make, caplog):
    topic = Exchange("events", type="topic")
    queues = (Queue("all", topic, routing_key="#"), Queue("some", topic, routing_key="a.*"))
    worker, other = make(queues=queues[:1]), make(queues=queues[:1])
    for body, key in (("odd", "a.b"), ("x", "b.c")):
        send(url, body, exchange=topic, routing_key=key, declare=queues)
    worker.receive(2)
    client.set("some", "is not a list")
    assert other.give_back(worker) == [GIVEN_BACK, ELSEWHERE]
    assert (client.hlen("unacked"), client.llen("all")) == (1, 1)
    assert worker.got[0].delivery_tag in caplog.text
    assert "WRONGTYPE" in caplog.text


def test_the_name_of_a_broker_says_its_database_and_keys(make):
    names = {
        make().broker,
        make().broker,
        make(unacked_key="mine").broker,
        make(global_keyprefix="p").broker,
    }
    assert len(names) == 3


@pytest.mark.parametrize(
    ("scheme", "options", "kind"),
    [("", {}, OnRedis), ("", {"ack_emulation": False}, None), ("memory://", {}, None)],
)
def test_only_channels_that_note_messages_in_redis(url, scheme, options, kind):
    with Connection(scheme or url, transport_options=options) as connection:
        assert kind_of(connection.channel()) is kind
