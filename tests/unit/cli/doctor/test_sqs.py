"""The doctor's findings about queues on Amazon SQS."""

import json

import pytest
from celery.app.control import Inspect
from celery.bin.base import CLIContext

from celery_dlq import Filter, Leave
from celery_dlq.cli.doctor import sqs
from celery_dlq.cli.doctor.app import check_handlers
from celery_dlq.cli.doctor.broker import check_broker, check_stalled
from celery_dlq.cli.session import Session

UNANSWERED = "Amazon SQS has no remote control, so workers cannot be asked here"

pytest.importorskip("boto3")
pytest.importorskip("pycurl")

QUEUE = {"url": "http://127.0.0.1:1/123456789012/shop"}


@pytest.fixture
def session(app, monkeypatch):
    def ask(*_args, **_options):
        raise AssertionError("there is no remote control")

    monkeypatch.setattr(Inspect, "__init__", ask)
    app.conf.update(
        broker_url="sqs://key:secret@127.0.0.1:1",
        task_default_queue="shop",
        worker_enable_remote_control=False,
        broker_transport_options={
            "region": "eu-west-1", "is_secure": False, "visibility_timeout": 600,
            "predefined_queues": {"shop": QUEUE},
        },
    )  # fmt: skip
    return Session(CLIContext(app=app, no_color=True, workdir=None))


@pytest.fixture
def found(session, monkeypatch):
    """The findings about a queue with these attributes."""

    def found(attributes):
        def of(_channel, queue, *_names):
            assert queue == "shop"
            if isinstance(attributes, Exception):
                raise attributes
            return attributes

        monkeypatch.setattr(sqs, "attributes_of", of)
        return [(one.level.value, one.text) for one in check_broker(session)]

    return found


def policy(most):
    arn = {"deadLetterTargetArn": "arn:aws:sqs:eu-west-1:1:dead", "maxReceiveCount": most}
    return {"VisibilityTimeout": "600", "RedrivePolicy": json.dumps(arn)}


def test_a_queue_that_answers_is_well(found):
    assert found({"VisibilityTimeout": "60"}) == [
        ("ok", "queue shop answers; its visibility timeout is 1m")
    ]
    assert found(policy(10))[0][0] == "ok"


@pytest.mark.parametrize(
    ("conf", "attributes", "said"),
    [
        ({}, {"VisibilityTimeout": "20"}, "a message may be run twice; set it to 30s or more"),
        ({"dlq_restore_unacked": False}, {"VisibilityTimeout": "30"}, "set both to the same time"),
        ({}, policy(3), "after 3 deliveries, so what kills its worker does not become a letter"),
        ({"dlq_max_deliveries": 20}, policy("20"), "set maxReceiveCount to 60 or more"),
    ],
)
def test_an_attribute_that_does_harm_is_a_warning(app, found, conf, attributes, said):
    app.conf.update(conf)
    [(level, text)] = found(attributes)
    assert (level, said in text) == ("warning", True), text


def test_with_the_same_timeout_on_both_sides_nothing_has_to_be_renewed(app, found):
    app.conf.dlq_restore_unacked = False
    assert found({"VisibilityTimeout": "600"})[0][0] == "ok"


def test_a_queue_that_is_not_there_is_a_warning(app, found):
    assert found(None) == [("warning", "there is no queue shop in predefined_queues; add it there")]
    error = RuntimeError("ExpiredToken")
    [(level, text)] = found(error)
    assert (level, text.startswith("queue shop does not answer (RuntimeError: ExpiredToken)")) == (
        "error", True,
    )  # fmt: skip


def test_a_service_that_is_away_is_an_error(app, session):
    options = {"region": "eu-west-1", "is_secure": False}
    app.conf.broker_transport_options = {
        **options, "client-config": {"retries": {"total_max_attempts": 1}},
    }  # fmt: skip
    [finding] = check_broker(session)
    assert finding.level.value == "error"
    assert "does not answer" in finding.text


def test_remote_control_is_a_warning(app, found):
    app.conf.worker_enable_remote_control = True
    assert "worker_enable_remote_control is on" in found({"VisibilityTimeout": "60"})[-1][1]


def test_workers_are_not_asked(session):
    [stalled] = check_stalled(session)
    assert stalled.text.startswith(UNANSWERED)
    session.queue.handler(where=Filter(task="shop.charge"), name="leave")(lambda _letter: Leave())
    assert list(check_handlers(session)) == []
