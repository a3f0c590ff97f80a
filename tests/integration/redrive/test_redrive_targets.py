"""The queues to which a redrive may send, according to real brokers."""

import pytest

from celery_dlq.redrive.checks import Targets

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
