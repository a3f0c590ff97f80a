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
def version(rabbitmq_url):
    """The version of the broker."""
    with Connection(rabbitmq_url) as connection:
        said = connection.connection.server_properties["version"]
    return tuple(int(part) for part in said.split(".")[:2])


def test_exclusive_queues_are_declared_everywhere(app, found):
    app.conf.update(control_queue_exclusive=True, event_queue_exclusive=True)
    [(level, text)] = found()
    assert (level, text.rpartition(" ")[2]) == ("ok", "answers")


@pytest.mark.parametrize("kind", ["control", "event"])
def test_others_are_declared_up_to_4_2(app, found, version, kind):
    app.conf[f"{kind}_queue_exclusive"] = False
    levels = [level for level, _ in found()]
    assert levels == (["ok"] if version < (4, 3) else ["ok", "error"])


def test_a_refusal_names_the_versions_to_install(app, found, monkeypatch):
    app.conf.control_queue_exclusive = False

    def refuse(*_given, **_options):
        raise amqp.InternalError("Feature `transient_nonexcl_queues` is deprecated")

    monkeypatch.setattr(Queue, "queue_declare", refuse)
    [_, (level, text)] = found()
    assert level == "error"
    assert text.startswith("no worker can start: RabbitMQ 4.3 and newer refuse queues")
    assert "pip install 'celery>=5.7' 'kombu>=5.7'" in text
    assert "transient_nonexcl_queues" in text
