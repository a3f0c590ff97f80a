"""The doctor about the queues that RabbitMQ 4.3 does not let workers declare."""

import amqp
import pytest
from kombu import Connection, Queue

pytestmark = pytest.mark.service


@pytest.fixture
def found(app, run, rabbitmq_url):
    """Gives the level and text of each of the check's lines."""
    app.conf.broker_url = rabbitmq_url

    def found():
        lines = [line.split(maxsplit=2) for line in run("doctor").stdout.splitlines()[1:]]
        return [(level, text) for name, level, text in lines if name == "broker"]

    return found


@pytest.fixture
def is_strict(rabbitmq_url):
    """Whether the broker refuses such queues."""
    with Connection(rabbitmq_url) as connection:
        queue = Queue("celery_dlq-test-transient", durable=False, auto_delete=True)
        bound = queue(connection.default_channel)
        try:
            bound.queue_declare()
        except amqp.InternalError:
            return True
        bound.delete()
        return False


def test_exclusive_queues_are_declared_everywhere(app, found):
    app.conf.update(control_queue_exclusive=True, event_queue_exclusive=True)
    [(level, text)] = found()
    assert (level, text.rpartition(" ")[2]) == ("ok", "answers")


@pytest.mark.parametrize("kind", ["control", "event"])
def test_others_are_reported_if_the_broker_refuses_them(app, found, is_strict, kind):
    app.conf[f"{kind}_queue_exclusive"] = False
    levels = [level for level, _ in found()]
    assert levels == (["ok", "error"] if is_strict else ["ok"])


def test_a_refusal_names_the_versions_to_install(app, found, monkeypatch):
    app.conf.control_queue_exclusive = False

    def refuse(*_given, **_options):
        raise amqp.InternalError("Feature `transient_nonexcl_queues` is deprecated")

    monkeypatch.setattr(Queue, "queue_declare", refuse)
    [_, (level, text)] = found()
    assert level == "error"
    assert text.startswith("no worker can start: RabbitMQ, as 4.3 does, refuses queues")
    assert "pip install 'celery>=5.7' 'kombu>=5.7'" in text
    assert "transient_nonexcl_queues" in text
