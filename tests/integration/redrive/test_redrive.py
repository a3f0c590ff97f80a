"""Letters are sent back: the original message, its place in the canvas, and its outcome."""

import contextlib
import json
import subprocess
import sys

import pytest
from celery import chord, signature
from project import wait_for
from support.factories import envelope, letter

from celery_dlq import Filter, Reason, Run
from celery_dlq.errors import OperationError
from celery_dlq.model.operation import Guard, OperationState, Orders, Pacing, SendingState
from celery_dlq.model.states import State

pytestmark = [pytest.mark.slow, pytest.mark.service]


@pytest.fixture(params=["redis-sqlite", "redis-postgres", "rabbitmq-mysql"])
def pair(request, make_project, urls_of, redis_url):
    """The brokers and databases, in the pairs that people run."""
    project = make_project(*urls_of(request.param), backend=f"{redis_url}/9")
    project.dlq.store.check_schema()
    return project


def redrive(project, **options):
    return project.dlq.redrives.start(Filter(queue=project.queue), who="tester", **options)


def test_success_resolves_and_a_renewed_failure_reopens_the_same_letter(pair):
    with pair.worker("-c", "2"):
        ids = [pair.send("terminal", n) for n in range(20)]
        for task_id in ids:
            pair.wait_for_letter(task_id)

        # The guard would stop it as soon as ten have come back.
        done = redrive(pair, orders=Orders(guard=Guard(enabled=False)))
        assert (done.counts.planned, done.counts.out, done.state) == (20, 20, OperationState.DONE)
        again = wait_for("all to die again", lambda: all_in(pair, ids, State.DEAD, redrives=1))
        assert [len(letter.attempts) for letter in again] == [2] * 20
        assert [a.redrive for a in again[0].attempts] == [0, 1]

        pair.fixed.touch()
        assert redrive(pair).counts.out == 20
        done = wait_for("all to be resolved", lambda: all_in(pair, ids, State.RESOLVED, redrives=2))
    assert all("redrive 2 succeeded" in letter.closed_reason for letter in done)
    assert redrive(pair).counts.planned == 0


def all_in(project, ids, state, redrives):
    letters = [project.letter(task_id) for task_id in ids]
    whole = all(letter.state is state and letter.redrive_count == redrives for letter in letters)
    return whole and letters


def test_the_original_message_is_sent_to_the_letter(pair):
    task_id = pair.app.send_task(
        "proj.terminal", (1,), {"password": "s3cret"},
        headers={"tenant": "acme", "x-death": "old"}, priority=4, expires=3600,
    ).id  # fmt: skip
    with pair.worker("-c", "1"):
        letter = pair.wait_for_letter(task_id)
    assert redrive(pair).counts.out == 1
    with pair.app.connection_for_read() as connection:
        message = connection.SimpleQueue(pair.queue).get(timeout=10)
        message.ack()
    body = message.body.encode() if isinstance(message.body, str) else message.body
    assert body == letter.envelope.body
    assert (message.content_type, message.content_encoding) == ("application/json", "utf-8")
    changed = {"expires": None, "x-dlq-redrive": 1, "retries": 0, "eta": None}
    original = {k: v for k, v in letter.envelope.headers.items() if not k.startswith("x-d")}
    assert message.headers.pop("x-dlq-copy")
    assert message.headers.pop("x-dlq-first-failed") == letter.first_failed_at.isoformat()
    assert message.headers.pop("x-dlq-group") == letter.fingerprint
    assert message.headers == {**original, **changed}
    assert message.properties["correlation_id"] == task_id
    assert message.properties["priority"] == 4


def test_an_exhausted_task_gets_all_its_attempts_again(pair):
    with pair.worker("-c", "1"):
        task_id = pair.send("exhausted")
        pair.wait_for_letter(task_id)
        redrive(pair)
        again = wait_for(
            "three more attempts",
            lambda: len(pair.letter(task_id).attempts) == 6 and pair.letter(task_id),
        )
        assert [(a.redrive, a.number) for a in again.attempts] == [
            (0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3),
        ]  # fmt: skip
        assert again.reason is Reason.EXHAUSTED
        pair.fixed.touch()
        redrive(pair)
        pair.wait_for_letter(task_id, State.RESOLVED)


def test_all_runs_of_a_message_have_one_key_and_know_the_first_failure(pair):
    with pair.worker("-c", "1"):
        task_id = pair.send("notes_its_run")
        first = pair.wait_for_letter(task_id).first_failed_at
        redrive(pair)
        wait_for("two more attempts", lambda: len(pair.letter(task_id).attempts) == 4)
        pair.fixed.touch()
        redrive(pair)
        pair.wait_for_letter(task_id, State.RESOLVED)
    runs = [json.loads(line) for line in pair.lines("runs")]
    [key] = {run["key"] for run in runs}
    assert key == Run("proj.notes_its_run", task_id, redrive=0, attempt=1, first_failed_at=None).key
    assert [(run["redrive"], run["attempt"]) for run in runs] == [
        (0, 1), (0, 2), (1, 1), (1, 2), (2, 1),
    ]  # fmt: skip
    assert [run["failed"] for run in runs] == ["None", *[str(first)] * 4]


def fresh(project, result):
    """A new result object: one keeps the first final state that it saw, and a redrive changes the state."""
    return project.app.AsyncResult(result.id)


@pytest.mark.parametrize(
    "ordered",
    # test_redrive_canvas.py has chords with Celery's default.
    [
        pytest.param(True, id="ordered", marks=pytest.mark.nightly),
        pytest.param(False, id="unordered"),
    ],
)
def test_a_chord_whose_header_members_died_completes(project, ordered):
    kept = {"result_backend_transport_options": {"result_chord_ordered": ordered}}
    project.app.conf.update(kept)
    project.settings.update(kept)

    def member(x):
        return signature("proj.member", args=(x,), app=project.app)

    body = signature("proj.add", kwargs={"more": 100}, app=project.app)
    ok = signature("proj.succeed", args=(1,), app=project.app)
    with project.worker("-c", "2"):
        result = chord([ok, member(10), ok, member(20)], app=project.app)(body)
        wait_for("two dead members", lambda: project.count(task="proj.member") == 2)
        wait_for("the chord to fail", lambda: fresh(project, result).failed())
        backend = project.app.backend
        parts = backend.get_key_for_group(result.parent.id, ".j")
        assert backend.client.type(parts) == (b"zset" if ordered else b"list")
        project.fixed.touch()
        assert redrive(project).counts.out == 2
        wait_for("the chord's body", lambda: fresh(project, result).successful())
        assert fresh(project, result).get(timeout=10) == 132
        assert [fresh(project, part).get(timeout=10) for part in result.parent] == [1, 10, 1, 20]
    assert project.count() == 0


def test_letters_whose_messages_were_lost_on_the_way_are_sent_again_once_each(project):
    """They are more than a batch, and are claimed by a state that they leave and come back to."""
    ids = [f"{project.queue}-{number}" for number in range(160)]
    project.dlq.store.letters.save([sendable(project, task_id) for task_id in ids])
    # The guard would wait for outcomes.
    orders = Orders(pacing=Pacing(batch=50), guard=Guard(enabled=False))
    assert redrive(project, orders=orders).counts.out == len(ids)
    with project.app.connection_for_write() as connection:
        assert connection.default_channel.queue_purge(project.queue) == len(ids)
    again = project.run(
        "dlq", "redrive", "--state", "redriven", "--queue", project.queue, "--no-guard", "--yes"
    )
    assert again.returncode == 0, again.stderr
    project.fixed.touch()
    project.sent += ids
    with project.worker("-c", "2"):
        wait_for("all to be resolved", lambda: (
            project.count(states=frozenset({State.RESOLVED})) == len(ids)
        ))  # fmt: skip
    assert {len(path.read_text()) for path in project.directory.glob("count-late-*")} == {1}


def declare_queue(project):
    """RabbitMQ has no queue before a worker declares it."""
    with project.app.connection_for_write() as connection:
        connection.SimpleQueue(project.queue).clear()


def sendable(project, task_id):
    """A letter of ``late``, whose runs are counted, that can go to the project's queue."""
    number = task_id.rpartition("-")[2]
    sent = envelope(
        task_id,
        body=json.dumps([[number], {}, {}]).encode(),
        headers={"id": task_id, "task": "proj.late", "retries": 0, "lang": "py"},
        routing_key=project.queue,
        queue=project.queue,
    )
    return letter(task_id, task="proj.late", envelope=sent)


@pytest.mark.parametrize("step", ["claims.take", "written", "confirmed", "claims.confirm"])
def test_killed_after_any_step_it_continues_where_it_was(pair, step):
    """A process of its own is killed with SIGKILL right after the step, and another one continues."""
    declare_queue(pair)
    ids = [f"{pair.queue}-{number}" for number in range(10)]
    pair.dlq.store.letters.save([sendable(pair, task_id) for task_id in ids])
    pair.sent += ids
    script = f"""
import os, signal, sys
from celery_dlq.redrive.ledger import Ledger
from celery_dlq.redrive.broker import amqp, publisher
from celery_dlq.store import tenure
def then_die(function):
    def dying(*args, **kwargs):
        function(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)
    return dying
from proj import app
from celery_dlq import DeadLetterQueue, Filter
tenure.LEASE_S = 0.1
dlq = DeadLetterQueue.of(app)
store = dlq.store
if {step!r} == "written":
    for kind in (amqp.ConfirmingPublisher, publisher.BatchingPublisher):
        kind.begin = then_die(kind.begin)
elif {step!r} == "confirmed":
    Ledger.mark = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
else:
    role, method = {step!r}.split('.')
    role = getattr(store, role)
    setattr(role, method, then_die(getattr(role, method)))
dlq.redrives.start(Filter(queue={pair.queue!r}), who="killed")
"""
    died = subprocess.run([sys.executable, "-c", script], env=pair.environment, cwd=pair.directory)
    assert died.returncode == -9
    assert pair.count() == 10
    pair.fixed.touch()
    [operation] = [one for one in pair.dlq.redrives.find() if one.wanted.queue == pair.queue]
    assert operation.state is OperationState.RUNNING
    with pair.worker("-c", "2"):
        done = wait_for("its lease to end", lambda: resumed(pair, operation.id))
        assert (done.state, done.counts.left) == (OperationState.DONE, 0)
        wait_for("all to be resolved", lambda: pair.count() == 0)
    assert [pair.letter(task_id).state for task_id in ids] == [State.RESOLVED] * 10


def resumed(project, operation_id):
    """The operation at its end: resumed here, or by a worker that came first."""
    with contextlib.suppress(OperationError):
        return project.dlq.redrives.resume(operation_id, who="tester")
    found = project.dlq.redrives.get(operation_id)
    return found if found.state is OperationState.DONE else None


def test_rabbitmq_reports_a_queue_that_is_gone(make_project, rabbitmq_url):
    project = make_project(rabbitmq_url)
    declare_queue(project)
    ids = [f"{project.queue}-{number}" for number in range(3)]
    project.dlq.store.letters.save([sendable(project, task_id) for task_id in ids])
    with project.app.connection_for_write() as connection:
        connection.default_channel.queue_delete(project.queue)
    done = redrive(project)
    assert (done.counts.out, done.counts.skipped, done.counts.left) == (0, 3, 0)
    assert (
        "does not exist on the broker"
        in project.dlq.store.sendings.of_operation(done.id).rows[0].why
    )
    assert all_in(project, ids, State.DEAD, redrives=0)


def test_a_task_that_is_not_registered_any_more_is_skipped_and_stays(project):
    with project.worker("-c", "1"):
        task_id = project.send("terminal")
        project.wait_for_letter(task_id)
        project.wait_for_letter(other := project.send("member", 1))
    del project.app.tasks["proj.terminal"]
    plan = project.dlq.redrives.plan(Filter())
    assert (plan.matched, plan.sendable, plan.by_task) == (2, 1, {"proj.member": 1})
    done = redrive(project)
    assert (done.counts.out, done.counts.skipped) == (1, 1)
    [skipped] = project.dlq.store.sendings.of_operation(done.id, states={SendingState.SKIPPED}).rows
    assert skipped.task_id == task_id
    assert "not registered" in skipped.why
    assert project.letter(task_id).state is State.DEAD
    assert project.letter(other).state is State.REDRIVEN


def test_a_broker_that_is_away_changes_nothing(project):
    with project.worker("-c", "1"):
        task_id = project.send("terminal")
        before = project.wait_for_letter(task_id)
    project.app.conf.broker_url = "redis://127.0.0.1:1"
    project.app.conf.broker_write_url = "redis://127.0.0.1:1"
    paused = redrive(project)
    assert (paused.state, paused.counts.out) == (OperationState.PAUSED, 0)
    assert "nothing was sent" in paused.cause
    assert project.letter(task_id) == before


def test_the_command_line_redrives_and_says_so(project):
    with project.worker("-c", "1"):
        task_id = project.send("terminal")
        project.wait_for_letter(task_id)
        project.fixed.touch()
        done = project.run("dlq", "redrive", task_id[:8], "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
        project.wait_for_letter(task_id, State.RESOLVED)
    shown = json.loads(project.invoke("show", task_id, "--format", "json").stdout)
    assert (shown["state"], shown["reason"], shown["redrive_count"]) == ("resolved", "terminal", 1)
