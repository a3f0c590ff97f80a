"""The queues to which a redrive may send, according to real brokers."""

import pytest
import redis
from kombu import Exchange, Queue
from support.factories import envelope, letter

from celery_dlq import Filter
from celery_dlq.model.operation import OperationState, Orders, SendingState
from celery_dlq.redrive.letter.checks import Targets

pytestmark = pytest.mark.service


@pytest.fixture
def rabbit(make_project, rabbitmq_url):
    return make_project(rabbitmq_url)


def declare(project):
    with project.app.connection_for_write() as connection:
        connection.default_channel.queue_declare(project.queue, durable=True, auto_delete=False)


def test_rabbitmq_says_which_queues_there_are(rabbit):
    targets = Targets(rabbit.app)
    declare(rabbit)
    assert targets.why_not(rabbit.queue) is None
    missing = f"{rabbit.queue}-away"
    assert targets.why_not(missing) == (
        f"queue {missing} does not exist on the broker; start a worker that reads it first"
    )
    assert targets.why_not("") is None


def test_a_queue_that_it_refuses_for_another_reason_is_there(rabbit):
    with rabbit.app.connection_for_write() as connection:
        name = f"{rabbit.queue}-exclusive"
        connection.default_channel.queue_declare(name, exclusive=True)
        assert Targets(rabbit.app).why_not(name) is None


def test_a_redis_queue_is_there_if_it_holds_messages_or_the_app_knows_it(project):
    away = f"{project.queue}-away"
    assert Targets(project.app, elsewhere=project.queue).why_not(project.queue) is None
    assert "does not exist" in Targets(project.app, elsewhere=away).why_not(away)
    assert Targets(project.app).why_not(away) is None
    with project.app.connection_for_write() as connection:
        queue = connection.SimpleQueue(away)
        queue.put("something")
        assert Targets(project.app, elsewhere=away).why_not(away) is None
        queue.clear()
        queue.close()


@pytest.fixture
def exchange(rabbit):
    """The name of an exchange with a queue."""
    declare(rabbit)
    here = Exchange(f"{rabbit.queue}-here", type="topic")
    with rabbit.app.connection_for_write() as connection:
        channel = connection.default_channel
        here(channel).declare()
        Queue(rabbit.queue, here, routing_key="orders")(channel).queue_bind()
        yield here.name
        here(channel).delete()


def made(name, exchange="", queue="", routing_key="orders", properties=None, **headers):
    headers = {"id": name, "task": "proj.add", **headers}
    sent = envelope(
        name, queue=queue, exchange=exchange, routing_key=routing_key, headers=headers,
        properties=properties or {},
    )  # fmt: skip
    return letter(name, task="proj.add", envelope=sent)


def test_letters_that_rabbitmq_refuses_are_skipped_by_name_and_the_others_are_sent(
    rabbit, exchange
):
    """RabbitMQ closes the channel for such a message, and does not say which one it was."""

    odd = [
        (made("gone 1", "gone"), "no exchange 'gone'"),
        (made("gone 2", "gone"), "no exchange 'gone'"),
        (made("internal", "amq.rabbitmq.trace"), "ACCESS_REFUSED"),
        (made("unbound", exchange, routing_key="nowhere"), "no queue takes it"),
        (made("another user", "", rabbit.queue, properties={"user_id": "ann"}), "user_id property"),
        (made("copies", "", rabbit.queue, CC=7), "CC"),
    ]
    fine = [
        made(f"fine {number}", *(("", rabbit.queue) if number % 2 else (exchange,)))
        for number in range(40)
    ]
    rabbit.dlq.store.letters.save([*fine[:1], *(one for one, _ in odd), *fine[1:]])
    done = redrive_all(rabbit)
    assert (done.state, done.cause) == (OperationState.DONE, "")
    assert (done.counts.out, done.counts.skipped) == (len(fine), len(odd))
    why = why_skipped(rabbit, done)
    assert why.keys() == {one.task_id for one, _ in odd}
    for one, reason in odd:
        assert reason in why[one.task_id]
    with rabbit.app.connection_for_write() as connection:
        queue = connection.default_channel.queue_declare(rabbit.queue, passive=True)
    assert queue.message_count == len(fine)


def redrive_all(project):
    redrives = project.dlq.redrives
    made = redrives.make(Filter(), Orders(), who="ann", detached=False)
    return redrives.resume(
        made.id, who="ann", on_progress=lambda _: None, should_stop=lambda: False
    )


def why_skipped(project, operation):
    skipped = project.dlq.store.sendings.of_operation(
        operation.id, states=frozenset({SendingState.SKIPPED})
    )
    return {row.task_id: row.why for row in skipped.rows}


def test_letters_that_redis_refuses_are_skipped_by_name_and_the_others_are_sent(project):
    odd = f"{project.queue}-odd"
    letters = [made("a", queue=project.queue), made("b", queue=odd), made("c", queue=project.queue)]
    project.dlq.store.letters.save(letters)
    with redis.Redis.from_url(project.broker) as client:
        client.set(odd, "is not a list")
        done = redrive_all(project)
        client.delete(odd)
        assert client.llen(project.queue) == 2
    assert (done.state, done.counts.out) == (OperationState.DONE, 2)
    [(task_id, why)] = why_skipped(project, done).items()
    assert task_id == "b"
    assert why.startswith("Redis refuses it (ResponseError: WRONGTYPE")
