"""Messages that an SQS channel has received and not acknowledged: kombu's own channels on a server that
answers as Amazon SQS does."""

from __future__ import annotations

import json
import time

import boto3
import pytest
from kombu import Connection, Consumer, Producer, Queue

from celery_dlq.recorder.tags import Tags, noted_in
from celery_dlq.worker.celery_quirks.unacked import Whereabouts
from celery_dlq.worker.celery_quirks.unacked_sqs import OnSQS, delete_if_rejected
from celery_dlq.worker.celery_quirks.visibility import kind_of

server = pytest.importorskip("moto.server")
pytest.importorskip("pycurl")

# The server and boto3 leave connections to the collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

PATIENCE_S = 30


@pytest.fixture(scope="module")
def endpoint():
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def sqs(endpoint):
    client = boto3.client(
        "sqs", endpoint_url=endpoint, region_name="eu-west-1", aws_access_key_id="shop",
        aws_secret_access_key="s3cret",
    )  # fmt: skip
    for url in client.list_queues().get("QueueUrls", ()):
        client.delete_queue(QueueUrl=url)
    yield client
    client.close()


class Worker:
    """A channel that receives messages, and the notes about them."""

    def __init__(self, endpoint, directory, now=time.time, **options):
        place = endpoint.removeprefix("http://")
        self.connection = Connection(
            f"sqs://shop:s3cret@{place}",
            transport_options={
                "region": "eu-west-1", "is_secure": False, "wait_time_seconds": 1,
                "polling_interval": 0.1, **options,
            },
        )  # fmt: skip
        self.channel = self.connection.channel()
        self.directory, self.broker = directory, OnSQS.broker_of(self.channel)
        self.tags = Tags(directory, self.broker, OnSQS.longest, now=now)
        self.unacknowledged = OnSQS(self.channel, self.tags, now=now)
        self.got = []
        self._consumer = Consumer(self.channel, [Queue("q")], on_message=self.got.append)

    def send(self, *bodies):
        producer = Producer(self.channel)
        for body in bodies:
            producer.publish(body, routing_key="q", serializer="json", declare=[Queue("q")])

    def receive(self, count):
        before, deadline = len(self.got), time.monotonic() + PATIENCE_S
        self._consumer.consume()
        while len(self.got) < before + count:
            assert time.monotonic() < deadline, "waited in vain for messages"
            self.connection.drain_events(timeout=PATIENCE_S)
        return sorted(message.decode() for message in self.got[before:])

    @property
    def noted(self):
        return noted_in(self.directory, self.broker)

    def end(self):
        """End as a killed process does: nothing is given back."""
        self.channel.qos._on_collect.cancel()
        self.channel.qos._delivered.clear()
        self.channel.sqs(queue="q").close()
        self.connection.close()


@pytest.fixture
def make(endpoint, sqs, tmp_path):
    made = []

    def make(**options):
        directory = tmp_path / str(len(made))
        directory.mkdir()
        made.append(Worker(endpoint, directory, **options))
        return made[-1]

    yield make
    for worker in made:
        worker.end()


def waiting(sqs):
    """Messages that can be received, and messages that are with workers."""
    [url] = sqs.list_queues()["QueueUrls"]
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return tuple(int(found[name]) for name in names)


def test_a_message_is_noted_until_sqs_has_deleted_it(make):
    worker = make()
    assert kind_of(worker.channel) is OnSQS
    worker.send("a", "b", "c")
    worker.receive(3)
    assert len(worker.noted) == 3
    acked, rejected, kept = worker.got
    acked.ack()
    rejected.reject()
    [noted] = worker.noted
    assert noted.tag.split("\n")[-1] == kept.delivery_tag


def test_a_message_without_kombus_fields_is_noted_and_given_back(make, sqs):
    worker, other = make(), make()
    worker.send("a")
    worker.receive(1)
    [url] = sqs.list_queues()["QueueUrls"]
    sqs.send_message(QueueUrl=url, MessageBody="no JSON")
    worker.receive(1)
    assert len(worker.noted) == 2
    worker.unacknowledged.renew()
    assert len(OnSQS.give_back(other.channel, worker.noted, "p1")) == 2
    assert waiting(sqs) == (2, 0)


@pytest.mark.parametrize("requeue", [False, True])
def test_a_rejected_message_that_has_a_letter_is_deleted(make, sqs, requeue):
    """Without this, kombu leaves it in a queue that has a redrive policy."""
    worker = make()
    worker.send("a")
    [url] = sqs.list_queues()["QueueUrls"]
    dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]
    policy = {"deadLetterTargetArn": arn["QueueArn"], "maxReceiveCount": 9}
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": json.dumps(policy)})
    worker.receive(1)
    [message] = worker.got
    delete_if_rejected(message)
    message.reject_log_error(None, (), requeue=requeue)
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    assert sum(map(int, found.values())) == requeue


def test_messages_of_a_killed_worker_can_be_received_at_once(make, sqs):
    worker, other = make(), make()
    worker.send("a", "b")
    worker.receive(2)
    assert waiting(sqs) == (0, 2)
    given = OnSQS.give_back(other.channel, worker.noted, "p1")
    assert {*given} == {message.delivery_tag for message in worker.got}
    assert {*given.values()} == {Whereabouts.GIVEN_BACK}
    assert waiting(sqs) == (2, 0)
    assert other.receive(2) == ["a", "b"]


def test_nothing_is_given_back_that_another_worker_may_have(make, sqs):
    worker, other = make(visibility_timeout=100), make(visibility_timeout=100)
    worker.send("a", "b")
    worker.receive(2)
    first, second = worker.noted
    late = second._replace(renewed_at=second.received_at + 1)
    assert OnSQS.give_back(other.channel, [first], "p", lambda: first.received_at + 21) == {}
    assert OnSQS.give_back(other.channel, [late], "p", lambda: late.renewed_at + 51) == {}
    assert waiting(sqs) == (0, 2)
    assert len(OnSQS.give_back(other.channel, [late], "p", lambda: late.renewed_at + 49)) == 1


def test_a_message_that_was_deleted_is_not_given_back(make, sqs):
    worker, other = make(), make()
    worker.send("a", "b")
    worker.receive(2)
    noted = worker.noted
    worker.got[0].ack()
    given = OnSQS.give_back(other.channel, noted, "p1")
    assert worker.got[1].delivery_tag in given
    assert waiting(sqs) == (1, 0)


def test_messages_are_renewed_when_it_is_time(make, monkeypatch):
    clock = [1_000.0]
    worker = make(now=lambda: clock[0], visibility_timeout=40)
    worker.send("a", "b", "c")
    worker.receive(3)
    client = worker.channel.sqs(queue="q")
    calls, change = [], client.change_message_visibility_batch
    monkeypatch.setattr(
        client, "change_message_visibility_batch",
        lambda **given: calls.append(given["Entries"]) or change(**given),
    )  # fmt: skip
    worker.got[0].ack()
    worker.channel.qos._flush()
    sizes = []
    for clock[0] in (1_001.0, 1_005.0, 1_011.0, 1_012.0):
        calls.clear()
        worker.unacknowledged.renew()
        sizes.append([len(entries) for entries in calls])
    assert sizes == [[2], [], [2], []]
    assert {one.renewed_at for one in worker.noted} == {1_011.0}


def test_a_long_run_is_not_received_by_another_worker(make, sqs, monkeypatch):
    clock = [time.time()]
    # The server runs in this process.
    monkeypatch.setattr("moto.sqs.models.unix_time_millis", lambda: 1_000 * clock[0])
    worker = make(now=lambda: clock[0], visibility_timeout=40)
    worker.send("a")
    worker.receive(1)
    for _ in range(20):
        clock[0] += 4
        worker.unacknowledged.renew()
        assert waiting(sqs) == (0, 1)
    clock[0] += 41  # the worker was killed
    assert waiting(sqs) == (1, 0)
