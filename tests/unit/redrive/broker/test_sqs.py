"""Messages are sent to Amazon SQS, and counted there: kombu's own channels on a server that answers as
SQS does."""

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from celery import Celery
from support.factories import envelope, letter
from support.servers.own_sqs import KEY, REGION, SECRET

from celery_dlq.errors import IngestError, RedriveError
from celery_dlq.ingest.source import open_source
from celery_dlq.redrive.broker.publisher import SQSPublisher, open_publisher
from celery_dlq.redrive.broker.queues import Depth, Look, depth_of, open_depths, open_presence
from celery_dlq.redrive.letter.checks import Targets

server = pytest.importorskip("moto.server")
pytest.importorskip("pycurl")

# The server and boto3 leave connections to the collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def place():
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"{host}:{port}"
    running.stop()


@pytest.fixture
def make_app(place):
    made = []

    def make(at=place, **options):
        app = Celery("unit", broker=f"sqs://{KEY}:{SECRET}@{at}", set_as_current=False)
        app.conf.broker_transport_options = {
            "region": REGION, "is_secure": False, "wait_time_seconds": 1,
            "client-config": {"retries": {"total_max_attempts": 1}}, **options,
        }  # fmt: skip
        made.append(app)
        return app

    yield make
    for app in made:
        app.close()


@pytest.fixture
def channel(make_app):
    with make_app().connection_for_write() as connection:
        yield connection.default_channel


def ids(found):
    return [one.task_id for one in found]


def to(queue, task_id="a", **fields):
    return letter(task_id, envelope=envelope(task_id, queue=queue, routing_key=queue, **fields))


def refused(code, status=400, **answered):
    answer = {
        "Error": {"Code": code, "Message": "no"},
        "ResponseMetadata": {"HTTPStatusCode": status, **answered},
    }
    return ClientError(answer, "SendMessage")


@pytest.fixture
def publisher(channel, monkeypatch):
    """A publisher, and what SQS answers to its messages one after the other."""
    made, answers = SQSPublisher(channel), []

    def publish(**_):
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    monkeypatch.setattr(made._producer, "publish", publish)
    return made, answers


def test_what_sqs_has_taken_is_in_its_queue(make_app, channel):
    with open_publisher(make_app()) as publisher:
        assert isinstance(publisher, SQSPublisher)
        sent = publisher.begin([to("one", "a"), to("one", "b")])()
    assert (sent.confirmed, sent.error) == (["a", "b"], None)
    assert depth_of(channel, "one") == Depth(2, 0)
    channel._get("one")
    assert depth_of(channel, "one") == Depth(1, 1)
    assert depth_of(channel, "unknown") is None


def test_a_message_that_is_too_large_is_refused_and_others_are_sent(make_app):
    with open_publisher(make_app()) as publisher:
        sent = publisher.send([to("two", "big", body=b"x" * 800_000), to("two", "small")])
    assert (sent.confirmed, [*sent.refused], sent.error) == (["small"], ["big"], None)
    assert "Message must be shorter than 1048576 bytes" in sent.refused["big"]


def test_a_message_that_cannot_be_written_is_refused_and_others_are_sent(make_app):
    odd = to("two", "odd", headers={"id": "odd", "task": "t", "tenants": {"a", "b"}})
    with open_publisher(make_app()) as publisher:
        sent = publisher.send([odd, to("two", "fine")])
    assert (sent.confirmed, [*sent.refused], sent.error) == (["fine"], ["odd"], None)
    assert "set is not JSON serializable" in sent.refused["odd"]


def test_a_queue_that_is_not_predefined_is_refused(make_app, place):
    queues = {"own": {"url": f"http://{place}/123456789012/own"}}
    with open_publisher(make_app(predefined_queues=queues)) as publisher:
        sent = publisher.send([to("foreign")])
    assert "must be defined in 'predefined_queues'" in sent.refused["a"]


@pytest.mark.parametrize(
    ("error", "uncertain", "unsent"),
    [
        (refused("ExpiredToken"), [], ["b", "c"]),
        (refused("ThrottlingException", RetryAttempts=4), [], ["b", "c"]),
        (refused("InternalFailure", status=500), ["b"], ["c"]),
        (ReadTimeoutError(endpoint_url="there"), ["b"], ["c"]),
    ],
)
def test_another_answer_ends_the_run_and_says_what_is_certain(publisher, error, uncertain, unsent):
    made, answers = publisher
    answers += [None, error]
    sent = made.send([to("q", name) for name in "abc"])
    assert (sent.confirmed, sent.uncertain, sent.unsent) == (["a"], uncertain, unsent)
    assert type(error).__name__ in sent.error


def test_a_server_that_is_away_is_an_error(make_app, no_pauses):
    with pytest.raises(RedriveError, match="nothing was sent"):
        open_publisher(make_app("127.0.0.1:1")).__enter__()
    with open_depths(make_app("127.0.0.1:1"), 5) as depths, pytest.raises(RedriveError):
        depths.part([to("q")])
    with open_presence(make_app("127.0.0.1:1")) as presence, pytest.raises(RedriveError):
        presence.look("q")
    with pytest.raises(IngestError), open_source(make_app("127.0.0.1:1"), "q"):
        pass


def test_asking_about_a_queue_does_not_make_it(make_app, channel):
    app = make_app()
    with open_depths(app, 5) as depths, open_presence(app) as presence:
        assert depths.part([to("missing")])[1] == []
        assert presence.look("missing") == Look()
    with open_source(app, "missing") as source, pytest.raises(IngestError, match="no queue"):
        source.count()
    assert "does not exist" in Targets(app, elsewhere="missing").why_not("missing")
    assert depth_of(channel, "missing") is None


def test_messages_with_workers_may_be_those_that_are_looked_for(make_app, channel):
    app = make_app()
    with open_publisher(app) as publisher:
        publisher.send([to("three")])
    channel._get("three")
    with open_presence(app) as presence:
        assert presence.look("three") is None
    with open_depths(app, 1) as depths:
        assert ids(depths.part([to("three", "b")])[0]) == ["b"]
