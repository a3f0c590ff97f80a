"""Letters of messages on Amazon SQS: from a failure to the success of a redrive, and from SQS' own
dead-letter queue."""

from __future__ import annotations

import base64
import json
import time
import uuid

import pytest
from project import wait_for
from sqs_project import SQSProject
from support.servers.own_sqs import Front, url_of

from celery_dlq import Filter
from celery_dlq.errors import IngestError
from celery_dlq.model.states import Reason, State

pytestmark = [
    pytest.mark.slow, pytest.mark.service, pytest.mark.timeout(300),
    # boto3 leaves connections to the collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]  # fmt: skip

SOLO = ("--pool", "solo")


def letters(project: SQSProject) -> dict[str, Reason]:
    found = project.dlq.store.letters.find(Filter(states=frozenset(State)), limit=100).letters
    return {letter.task_id: letter.reason for letter in found}


def test_a_failure_comes_back_in_its_group_of_a_fifo_queue(make_sqs, front: Front):
    queue = f"dlq-test-{uuid.uuid4().hex[:12]}.fifo"
    project = make_sqs(url_of(front.port), queue=queue, module="proj_sqs")
    sent: list[tuple[object, object]] = []

    def note(action: str, fields: dict[str, object]) -> None:
        if action == "SendMessage":
            sent.append((fields.get("MessageGroupId"), fields.get("MessageDeduplicationId")))

    front.refuses = note
    project.make_queue(VisibilityTimeout="30")
    project.predefine(project.queue)
    own = {"MessageGroupId": "customer-7", "MessageDeduplicationId": "order-1"}
    task_id = project.app.send_task("proj.retried", (0,), **own).id
    with project.worker(*SOLO):
        letter = project.wait_for_letter(task_id)
        assert (letter.reason, len(letter.attempts)) == (Reason.TERMINAL, 2)
        project.fixed.touch()
        ended = project.dlq.redrives.start(Filter(queue=project.queue), who="tester")
        assert (ended.counts.out, ended.cause) == (1, "")
        project.wait_for_letter(task_id, State.RESOLVED)
        wait_for("the queue to be empty", lambda: not project.depth())
    assert project.lines("runs") == [f"{task_id} customer-7"] * 3
    # Sent, retried, and redriven. SQS would drop a message with an id of the last five minutes.
    assert [group for group, _ in sent] == ["customer-7"] * 3
    assert len({once for _, once in sent}) == 3
    assert sent[0][1] == "order-1"


@pytest.mark.nightly
def test_a_long_wait_is_parked(project: SQSProject):
    project.module = "proj_sqs"
    project.fixed.touch()
    task_id = project.app.send_task("proj.retried", (1_000,)).id
    with project.worker(*SOLO):
        parked = project.wait_for_letter(task_id, State.PARKED)
        assert parked.due_at is not None
        wait_for("the queue to be empty", lambda: not project.depth())
        assert project.dlq.unpark(Filter(), who="tester") == 1
        wait_for("it to run again", lambda: len(project.lines("runs")) == 2)
        wait_for("the queue to be empty", lambda: not project.depth())
    assert project.letter(task_id) is None or project.letter(task_id).state is not State.PARKED


@pytest.mark.nightly
def test_a_letter_is_the_one_place_of_its_message(project: SQSProject):
    """Also where kombu leaves rejected messages to SQS' redrive policy."""
    project.module = "proj_sqs"
    dead = project.with_redrive_policy(3, VisibilityTimeout="2")
    project.transport(visibility_timeout=2)
    project.sent.append(project.app.send_task("proj.fails_late").id)
    project.app.send_task("far.away", task_id="unknown")
    project.put("no JSON")
    project.put(json.dumps({"Records": [{"s3": {"object": {"key": "a"}}}]}))
    with project.worker(*SOLO):
        wait_for("four letters", lambda: len(letters(project)) >= 4)
        # Three deliveries by SQS would come in this time.
        time.sleep(8)
        wait_for("the queue to be empty", lambda: not project.depth())
        assert project.depth(dead) == 0
    found = letters(project)
    assert found.pop(project.sent[0]) is Reason.TERMINAL
    assert found.pop("unknown") is Reason.UNKNOWN_TASK
    assert list(found.values()) == [Reason.MALFORMED] * 2
    assert project.lines("runs") == ["fails_late"]


@pytest.mark.nightly
def test_what_sqs_has_moved_to_its_own_dead_letter_queue_becomes_letters(project: SQSProject):
    dead = project.with_redrive_policy(1, VisibilityTimeout="1")
    attributes = {"trace": {"DataType": "String", "StringValue": "abc"}}
    task_id = project.app.send_task(
        "proj.succeed", (7,), message_attributes=attributes, MessageGroupId="customer-7"
    ).id
    project.put("no JSON", MessageAttributes=attributes)

    def is_moved() -> bool:
        with project.app.connection_for_read() as connection:
            channel = connection.default_channel
            channel.do_restore = False
            channel._receive_message(project.queue, 10)
        return project.depth(dead) == 2

    wait_for("SQS to move them", is_moved)
    done = project.run("dlq", "ingest", dead, "--to", project.queue)
    assert done.returncode == 0, done.stderr
    assert project.depth(dead) == 0
    letter = project.letter(task_id)
    assert (letter.reason, letter.queue, letter.args) == (Reason.INGESTED, project.queue, [7])
    assert letter.envelope.properties["message_attributes"] == attributes
    assert letter.envelope.properties["MessageGroupId"] == "customer-7"
    [other] = letters(project).keys() - {task_id}
    raw = project.letter(other).envelope
    assert (raw.body, raw.properties["message_attributes"]) == (b"no JSON", attributes)

    # A redrive sends both along.
    project.dlq.redrives.start(Filter(task="proj.succeed"), who="tester")
    with project.app.connection_for_read() as connection:
        channel = connection.default_channel
        channel.do_restore = False
        channel.fetch_message_attributes = {"MessageAttributeNames": [".*"]}
        [received] = channel._receive_message(project.queue, 10)["Messages"]
    assert received["MessageAttributes"] == attributes
    assert json.loads(base64.b64decode(received["Body"]))["headers"]["id"] == task_id


@pytest.mark.nightly
def test_a_queue_that_does_not_exist_is_an_error_and_not_made(project: SQSProject):
    missing = f"{project.queue}-missing"
    project.make_queue()
    with pytest.raises(IngestError, match="There is no queue"):
        project.dlq.ingest(missing, who="tester")
    done = project.run("dlq", "redrive", "--all", "--to-queue", missing, "--yes")
    assert "Traceback" not in done.stderr
    project.predefine(project.queue)
    with pytest.raises(IngestError, match="predefined_queues"):
        project.dlq.ingest(missing, who="tester")
    assert missing not in project.queues()
