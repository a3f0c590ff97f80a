"""Messages that never become a task: each is one complete letter, and the worker keeps running."""

import base64
import json
import os

import pytest
from celery import chord, signature
from celery.exceptions import NotRegistered
from foreign_messages import LONG_ID, MESSAGES, publish, task
from project import wait_for
from queues import redis_options

from celery_dlq import Filter, Reason
from celery_dlq.model.letter import NO_TASK
from celery_dlq.model.operation import Guard, Orders, SendingState
from celery_dlq.model.states import State
from celery_dlq.store.rows.rows import stored_id

pytestmark = [pytest.mark.slow, pytest.mark.service]

POOLS = {
    "prefork": ("-P", "prefork", "-c", "2"),
    "threads": ("-P", "threads", "-c", "2"),
    "solo": ("-P", "solo"),
}

#: Bytes of a large body: 50 MB, and less in the gate.
LARGE = 50_000_000 if os.environ.get("CELERY_DLQ_TEST_ALL") else 10_000_000
#: Bytes of a body that MySQL does not accept; more than its ``max_allowed_packet``.
TOO_LARGE = 50_000_000

#: Messages that a redrive repairs by itself: a first attempt has no such headers.
RENEWED = {"bad eta", "bad expires", "eta out of range", "bad retries"}

#: The tasks that strangers ask for, once they are deployed.
DEPLOYED = """
from proj import DLQTask, app

@app.task(base=DLQTask, name="far.away")
def away(x, token=None): return x

@app.task(base=DLQTask, name="far.old")
def old(x): return x
"""


@pytest.fixture(params=["redis", "classic", "quorum"])
def project(request, make_project, redis_url):
    if request.param == "redis":
        return make_project(f"{redis_url}/9", backend=f"{redis_url}/9")
    rabbitmq = request.getfixturevalue("rabbitmq_url")
    return make_project(rabbitmq, backend=f"{redis_url}/9", queue_type=request.param)


def not_here(*args, **kwargs): ...


def send_all(project, kinds=tuple(MESSAGES)):
    project.sent += filter(None, [MESSAGES[kind].task_id for kind in kinds])
    for kind in kinds:
        publish(project.app, project.queue, kind)


def letters(project):
    """The letters of this project's queue, by what kind of message they are."""
    page = project.dlq.store.letters.find(
        Filter(queue=project.queue, states=frozenset(State)), limit=500
    )
    whole = [project.letter(found.task_id) for found in page.letters]
    by_kind = {letter.envelope.properties["type"]: letter for letter in whole}
    assert len(by_kind) == len(whole), "one letter each"
    return by_kind


def states(project):
    return {letter.state.value for letter in letters(project).values()}


def is_alive(project, worker):
    result = project.app.AsyncResult(project.send("add", 1, 2))
    return result.get(timeout=60) == 3 and worker.poll() is None


@pytest.mark.parametrize("pool", POOLS)
def test_each_is_one_letter_and_the_worker_runs_the_next_task(pool, project):
    with project.worker(*POOLS[pool]) as worker:
        send_all(project)
        assert is_alive(project, worker)
        wait_for("all letters", lambda: project.count() >= len(MESSAGES))
    found = letters(project)
    assert found.keys() == MESSAGES.keys()
    seen = {kind: (one.reason, one.explanation.rule, one.task) for kind, one in found.items()}
    assert seen == {kind: (one.reason, one.rule, one.task) for kind, one in MESSAGES.items()}
    for kind, sent in MESSAGES.items():
        envelope = found[kind].envelope
        assert envelope.body == sent.body, kind
        assert (envelope.content_type, envelope.content_encoding) == (
            sent.content_type,
            sent.content_encoding,
        )
        assert {**envelope.headers, "x-dlq-compressed": 0} == {
            **(sent.headers or {}),
            "x-dlq-compressed": 0,
        }
        if sent.task_id:
            assert found[kind].task_id == stored_id(sent.task_id)
    assert found["unknown task"].kwargs == {"token": "[redacted]"}


def test_an_unrepaired_message_comes_back_and_an_unreadable_one_is_not_sent(project):
    skipped = set()
    with project.worker("-c", "1") as worker:
        send_all(project)
        wait_for("all letters", lambda: project.count() >= len(MESSAGES))
        for name in ("far.away", "far.old"):
            project.app.task(name=name, shared=False)(not_here)
        # The guard would stop a redrive whose letters come back.
        orders = Orders(guard=Guard(enabled=False))
        for reason in (Reason.UNKNOWN_TASK, Reason.MALFORMED):
            wanted = Filter(queue=project.queue, reason=reason)
            done = project.dlq.redrives.start(wanted, who="tester", orders=orders)
            assert (done.counts.left, done.cause) == (0, "")
            skipped |= skipped_in(project, done)
        wait_for("all to come to an end", lambda: not states(project) & {"claimed", "redriven"})
        assert is_alive(project, worker)
    found = letters(project)
    assert found.keys() == MESSAGES.keys()
    for kind, letter in found.items():
        if kind in RENEWED:
            assert letter.state is State.RESOLVED, kind
        elif letter.task_id in skipped:
            assert (letter.state, letter.redrive_count) == (State.DEAD, 0), kind
            assert MESSAGES[kind].reason is Reason.MALFORMED, kind
        else:
            assert (letter.state, letter.redrive_count) == (State.DEAD, 1), kind
            assert [attempt.redrive for attempt in letter.attempts] == [0, 1], kind
            assert letter.explanation.rule == MESSAGES[kind].rule, kind


def skipped_in(project, operation):
    states = frozenset({SendingState.SKIPPED})
    rows = project.dlq.store.sendings.of_operation(operation.id, states=states, limit=100).rows
    return {row.task_id for row in rows}


def test_an_unknown_task_runs_after_it_has_been_deployed(project):
    unknown = [kind for kind, one in MESSAGES.items() if one.reason is Reason.UNKNOWN_TASK]
    with project.worker("-c", "1"):
        send_all(project, unknown)
        wait_for("all letters", lambda: project.count() == len(unknown))
    refused = project.run("dlq", "redrive", "--reason", "unknown_task", "--yes")
    assert refused.returncode == 1
    assert "task far.away is not registered in this app; deploy or import it" in refused.stderr

    (project.directory / "deployed.py").write_text(DEPLOYED)
    project.module = "deployed"
    with project.worker("-c", "1"):
        sent = project.run("dlq", "redrive", "--reason", "unknown_task", "--yes")
        assert sent.returncode == 0, sent.stderr
        wait_for("the outcomes", lambda: not states(project) & {"claimed", "redriven"})
    without_id = letters(project)["unknown task without id"]
    assert (without_id.reason, without_id.message) == (Reason.MALFORMED, "it has no id")
    assert {kind: one.state for kind, one in letters(project).items()} == {
        kind: State.DEAD if kind == "unknown task without id" else State.RESOLVED
        for kind in unknown
    }


def test_celerys_own_handling_still_happens(project):
    with project.worker("-c", "1"):
        result = project.app.send_task("far.away")
        project.sent.append(result.id)
        assert isinstance(result.get(timeout=60, propagate=False), NotRegistered)
        assert project.letter(result.id), "recorded before"


def test_an_id_of_300_characters_is_kept_until_its_letter_is_resolved(project):
    project.sent.append(LONG_ID)
    with project.worker("-c", "1"):
        headers = task("proj.terminal", LONG_ID)
        publish(project.app, project.queue, "no id", headers=headers)
        letter = project.wait_for_letter(LONG_ID)
        assert letter.envelope.headers["id"] == LONG_ID
        project.fixed.touch()
        assert project.run("dlq", "redrive", letter.task_id[:20]).returncode == 0
        project.wait_for_letter(LONG_ID, State.RESOLVED)


def test_a_member_of_a_chord_that_is_deployed_later_completes_it(make_project, redis_url):
    project = make_project(f"{redis_url}/9", backend=f"{redis_url}/9")
    known = signature("proj.succeed", args=(1,), app=project.app)
    unknown = signature("far.away", args=(10,), app=project.app)
    body = signature("proj.add", kwargs={"more": 100}, app=project.app)
    with project.worker("-c", "1"):
        result = chord([known, unknown, known], app=project.app)(body)
        letter = wait_for("the letter", lambda: letters_of(project, "far.away"))[0]
        wait_for("the others", lambda: result.parent.completed_count() == 2)
    assert (letter.canvas, letter.group_id) == ("chord", result.parent.id)

    (project.directory / "deployed.py").write_text(DEPLOYED)
    project.module = "deployed"
    with project.worker("-c", "1"):
        assert project.run("dlq", "redrive", letter.task_id).returncode == 0
        fresh = project.app.AsyncResult(result.id)
        assert fresh.get(timeout=60) == 112
        project.wait_for_letter(letter.task_id, State.RESOLVED)
    result.parent.forget()


def letters_of(project, task):
    page = project.dlq.store.letters.find(Filter(queue=project.queue, task=task))
    return [project.letter(found.task_id) for found in page.letters]


RAW_ITEMS = {
    "text": b"hello",
    "binary": b"\xff\x00\xfe",
    "a table of another program": b'{"task": "proj.succeed"}',
    "a list": b"[1, 2, 3]",
    "headers that are a list": json.dumps({
        "body": base64.b64encode(b"[[], {}, {}]").decode(), "content-type": "application/json",
        "content-encoding": "utf-8", "headers": ["task", "proj.succeed"],
        "properties": {"delivery_tag": "tag-of-the-list", "body_encoding": "base64",
                       "delivery_info": {"exchange": "", "routing_key": "QUEUE"}},
    }).encode(),
}  # fmt: skip


@pytest.mark.parametrize("pool", POOLS)
def test_items_of_a_redis_list_that_are_not_messages(pool, make_project, redis_url):
    project = make_project(f"{redis_url}/9", backend=f"{redis_url}/9")
    client = project.app.backend.client
    with project.worker(*POOLS[pool]) as worker:
        for raw in RAW_ITEMS.values():
            client.lpush(project.queue, raw.replace(b"QUEUE", project.queue.encode()))
        assert is_alive(project, worker)
        wait_for("all letters", lambda: project.count() == len(RAW_ITEMS))
        found = letters_of(project, NO_TASK)
        bodies = {letter.envelope.body for letter in found}
        assert bodies == {*list(RAW_ITEMS.values())[:-1], b"[[], {}, {}]"}
        assert {letter.reason for letter in found} == {Reason.MALFORMED}
        [listed] = [one for one in found if one.task_id == "tag-of-the-list"]
        assert listed.envelope.headers == {"x-dlq-headers": ["task", "proj.succeed"]}
        assert listed.message == "the headers are not a table"

        wanted = Filter(queue=project.queue, reason=Reason.MALFORMED)
        orders = Orders(guard=Guard(enabled=False))
        done = project.dlq.redrives.start(wanted, who="tester", orders=orders)
        assert (done.counts.out, done.counts.skipped) == (len(RAW_ITEMS), 0)
        wait_for("all to come back", lambda: all(
            (one.redrive_count, one.state) == (1, State.DEAD) for one in letters_of(project, NO_TASK)
        ))  # fmt: skip
        assert project.count() == len(RAW_ITEMS), "no second letter"
        wait_for("all to be acknowledged", lambda: not client.exists(
            *(key for option, key in redis_options(project.queue).items() if "mutex" not in option)
        ))  # fmt: skip
        assert {one.envelope.body for one in letters_of(project, NO_TASK)} == bodies


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_large_body_is_kept_byte_for_byte(store, project, request, make_project):
    large = MESSAGES["no JSON"].body + b"\xff" * LARGE
    here = project
    if store != "sqlite":
        here = make_project(
            project.broker, request.getfixturevalue(f"{store}_url"),
            backend=project.backend, queue_type=project.queue_type,
        )  # fmt: skip
        here.dlq.store.check_schema()
    with here.worker("-c", "1") as worker:
        publish(here.app, here.queue, "no JSON", body=large)
        letter = here.wait_for_letter("m1")
        assert is_alive(here, worker)
    assert letter.reason is Reason.MALFORMED
    assert letter.envelope.body == large
    shown = here.run("dlq", "show", "m1", "--body")
    assert f"the first 1,024 of {len(large):,} bytes" in shown.stdout


def test_a_body_that_mysql_does_not_accept_is_kept_in_the_spool(
    make_project, redis_url, mysql_url, tmp_path
):
    project = make_project(f"{redis_url}/9", mysql_url, backend=f"{redis_url}/9")
    project.dlq.store.check_schema()
    large = MESSAGES["no JSON"].body + b"\xff" * TOO_LARGE
    with project.worker("-c", "1") as worker:
        publish(project.app, project.queue, "no JSON", body=large)
        publish(project.app, project.queue, "no UTF-8")
        project.wait_for_letter("m2")
        [log] = tmp_path.glob("worker-*.log")
        # The store refuses it again when the spool is drained, so it ends in a file of its own.
        wait_for("the letter to be set aside", lambda: "lines set aside in" in log.read_text())
        assert is_alive(project, worker)
    assert "max_allowed_packet is" in log.read_text()
    [spooled] = [path.read_bytes() for path in (tmp_path / "spool").glob("*.refused")]
    line = json.loads(spooled)
    assert base64.b64decode(line["envelope"]["body"]) == large


def test_tasks_that_are_not_on_dlqtask_are_left_to_celery(make_project, redis_url):
    """Their messages become letters if Celery cannot take them; their own failures do not."""
    project = make_project(f"{redis_url}/9", backend=f"{redis_url}/9")
    (project.directory / "plain.py").write_text(
        "from proj import app\n"
        "@app.task(name='plain')\n"
        "def plain(): raise ValueError('its own business')\n"
    )
    project.module = "plain"
    with project.worker("-c", "1") as worker:
        result = project.app.send_task("plain")
        assert isinstance(result.get(timeout=60, propagate=False), ValueError)
        publish(project.app, project.queue, "no id", headers={"task": "plain"})
        wait_for("the letter", lambda: project.count())
        assert is_alive(project, worker)
    [letter] = letters_of(project, "plain")
    assert (letter.reason, letter.message) == (Reason.MALFORMED, "it has no id")


def test_a_worker_killed_between_record_and_acknowledgement_makes_no_second_letter(
    make_project, redis_url
):
    """On Redis, where a message without an id has the transport's tag."""
    project = make_project(f"{redis_url}/9")
    (project.directory / "dying.py").write_text(
        "import os, signal\n"
        "from proj import app\n"
        "from celery.worker.consumer import Consumer\n"
        "def die(*_): os.kill(os.getpid(), signal.SIGKILL)\n"
        "Consumer.on_unknown_message = die\n"
    )
    project.module = "dying"
    assert project.count() == 0, "the store is not away, so the letter is not spooled"
    with project.worker("-P", "solo") as worker:
        publish(project.app, project.queue, "JSON that is not a task")
        wait_for("the worker to die", lambda: worker.poll() is not None)
    [first] = letters_of(project, NO_TASK)
    with project.app.connection_for_write() as connection:
        connection.default_channel.qos.restore_by_tag(first.task_id)
    project.module = "proj"
    with project.worker("-P", "solo"):
        wait_for("the second delivery", lambda: len(project.letter(first.task_id).attempts) == 2)
    assert project.count() == 1
