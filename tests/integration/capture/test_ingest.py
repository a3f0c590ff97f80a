"""A broker's own dead-letter queue, emptied into the store."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial

import pytest
from dead_lettering import DeadLetteringProject
from kombu import Queue
from project import wait_for

from celery_dlq import Filter, Reason
from celery_dlq.errors import IngestError
from celery_dlq.ingest.ingestion import Ingestion
from celery_dlq.ingest.source import AMQPQueue, RedisList
from celery_dlq.model.states import State
from celery_dlq.view.times import utc_now

pytestmark = [pytest.mark.slow, pytest.mark.service]


@pytest.fixture
def make(tmp_path):
    made = []

    def make(broker, **options):
        store = f"sqlite:///{tmp_path}/store.sqlite3"
        made.append(DeadLetteringProject(tmp_path, broker, store, **options))
        made[-1].dlq.store.close()  # the command line does not make it
        return made[-1]

    yield make
    for project in made:
        project.close()


@pytest.fixture
def rabbit(make, rabbitmq_url):
    return make(rabbitmq_url)


@pytest.fixture
def redis(make, redis_url):
    return make(f"{redis_url}/9")


@pytest.fixture(params=["redis", "rabbit"])
def either(request):
    return request.getfixturevalue(request.param)


def letters(project):
    return {
        letter.task_id: project.letter(letter.task_id)
        for letter in project.dlq.store.letters.find(
            Filter(states=frozenset(State)), limit=5000
        ).letters
    }


class TestRabbitMQ:
    def test_expired_messages_are_letters_of_the_queue_they_expired_in(self, rabbit):
        rabbit.declare()
        ids = rabbit.expire(3)
        report = rabbit.dlq.ingest(rabbit.dead, who="tester")
        assert (report.arrived, report.known, rabbit.depth(rabbit.dead)) == (3, 0, 0)
        found = letters(rabbit)
        assert sorted(found) == sorted(ids)
        letter = found[ids[0]]
        assert (letter.reason, letter.task, letter.args) == (Reason.INGESTED, "proj.succeed", [0])
        assert (letter.queue, letter.envelope.routing_key) == (rabbit.queue, rabbit.queue)
        assert letter.exception_type == "broker.expired"
        assert "reason=expired, count=1" in letter.explanation.evidence
        assert letter.envelope.headers["x-death"][0]["queue"] == rabbit.queue
        assert letter.last_failed_at == letter.envelope.headers["x-death"][0]["time"].replace(
            tzinfo=letter.last_failed_at.tzinfo
        )

    def test_a_quorum_queue_s_delivery_limit_ends_as_a_letter(self, rabbit):
        rabbit.declare(**{"x-queue-type": "quorum", "x-delivery-limit": 1})
        task_id = rabbit.send("succeed")
        with rabbit.channel() as channel:
            for _ in range(2):
                message = wait_for("the message", lambda: channel.basic_get(rabbit.queue))
                channel.basic_reject(message.delivery_tag, requeue=True)
        rabbit.wait_for_depth(rabbit.dead, 1)
        assert rabbit.dlq.ingest(rabbit.dead, who="tester").arrived == 1
        letter = rabbit.letter(task_id)
        assert (letter.exception_type, letter.queue) == ("broker.delivery_limit", rabbit.queue)

    def test_a_full_queue_s_oldest_message_ends_as_a_letter(self, rabbit):
        rabbit.declare(**{"x-max-length": 1})
        first = rabbit.send("succeed")
        rabbit.send("succeed")
        rabbit.wait_for_depth(rabbit.dead, 1)
        assert rabbit.dlq.ingest(rabbit.dead, who="tester").arrived == 1
        assert rabbit.letter(first).exception_type == "broker.maxlen"

    def test_a_letter_that_the_worker_made_before_it_rejected_stays_as_it_is(self, rabbit):
        rabbit.declare()
        with rabbit.worker("-P", "solo"):
            task_id = rabbit.app.send_task("proj.rejects_late").id
            made = rabbit.wait_for_letter(task_id)
            rabbit.wait_for_depth(rabbit.dead, 1)
        report = rabbit.dlq.ingest(rabbit.dead, who="tester")
        assert (report.arrived, report.known, rabbit.depth(rabbit.dead)) == (0, 1, 0)
        letter = rabbit.letter(task_id)
        assert (letter.reason, letter.message, letter.envelope) == (
            Reason.REJECTED, made.message, made.envelope,
        )  # fmt: skip
        assert sorted(a.rule for a in letter.attempts) == sorted(
            [made.attempts[0].rule, "broker.dead_letter"]
        )

    def test_a_quorum_queue_is_read_and_not_declared_again(self, rabbit):
        rabbit.declare()
        with rabbit.channel() as channel:
            channel.queue_delete(rabbit.dead)
            channel.queue_declare(
                rabbit.dead, durable=True, auto_delete=False, arguments={"x-queue-type": "quorum"}
            )
        rabbit.expire(2)
        assert rabbit.dlq.ingest(rabbit.dead, who="tester").arrived == 2

    def test_a_queue_that_is_not_there_is_an_error_and_not_declared(self, rabbit):
        for options in ((), ("--dry-run",)):
            done = rabbit.run("dlq", "ingest", rabbit.dead, *options)
            assert done.returncode == 1
            assert done.stderr.count("\n") == 1
            assert f"There is no queue '{rabbit.dead}'" in done.stderr
            assert "rabbitmqctl list_queues" in done.stderr
        with pytest.raises(IngestError, match="There is no queue"):
            rabbit.dlq.ingest(rabbit.dead, who="tester")

    def test_a_message_of_unknown_origin_stays_until_a_queue_is_given(self, rabbit):
        rabbit.declare()
        with rabbit.channel() as channel:
            Queue(rabbit.dead, channel=channel, no_declare=True)
            rabbit.app.send_task("proj.succeed", queue=Queue(rabbit.dead, no_declare=True))
        rabbit.wait_for_depth(rabbit.dead, 1)
        with pytest.raises(IngestError, match="give --to QUEUE"):
            rabbit.dlq.ingest(rabbit.dead, who="tester")
        rabbit.wait_for_depth(rabbit.dead, 1)
        assert letters(rabbit) == {}
        assert rabbit.dlq.ingest(rabbit.dead, who="tester", to=rabbit.queue).arrived == 1
        assert [letter.queue for letter in letters(rabbit).values()] == [rabbit.queue]

    def test_a_message_that_is_not_a_task_is_kept_byte_for_byte(self, rabbit):
        rabbit.declare()
        bodies = [b"\xff\x00 no text", b"", b"{", b"[[1], {}, {}]"]
        with rabbit.channel() as channel:
            for body in bodies:
                message = channel.prepare_message(body, content_type="application/json",
                                                  content_encoding="utf-8",
                                                  properties={"expiration": "1"})  # fmt: skip
                channel.basic_publish(message, "", rabbit.queue)
        rabbit.wait_for_depth(rabbit.dead, len(bodies))
        assert rabbit.dlq.ingest(rabbit.dead, who="tester").arrived == len(bodies)
        assert sorted(letter.envelope.body for letter in letters(rabbit).values()) == sorted(bodies)


class TestRedis:
    def test_messages_that_were_moved_are_letters_of_the_queue_they_were_sent_to(self, redis):
        ids = redis.bury(3)
        report = redis.dlq.ingest(redis.dead, who="tester")
        assert (report.arrived, redis.depth(redis.dead)) == (3, 0)
        found = letters(redis)
        assert sorted(found) == sorted(ids)
        assert {letter.queue for letter in found.values()} == {redis.queue}
        assert {letter.exception_type for letter in found.values()} == {"broker.dead_letter"}

    def test_items_that_are_not_messages_of_kombu_are_kept_byte_for_byte(self, redis):
        items = [b"\xff\xfe", b"{}", b'{"body": 1, "properties": {}}', b"[1]", b"not json", b"null"]
        with redis.channel() as channel:
            channel.client.lpush(redis.dead, *items)
        with pytest.raises(IngestError, match="give --to"):
            redis.dlq.ingest(redis.dead, who="tester")
        assert redis.depth(redis.dead) == len(items)
        assert redis.dlq.ingest(redis.dead, who="tester", to=redis.queue).arrived == len(items)
        assert sorted(letter.envelope.body for letter in letters(redis).values()) == sorted(items)
        assert redis.depth(redis.dead) == 0

    def test_a_list_that_is_not_there_is_empty(self, redis):
        done = redis.run("dlq", "ingest", redis.dead)
        assert (done.returncode, done.stdout) == (0, f"{redis.dead} is empty.\n")

    def test_a_key_that_is_not_a_list_is_an_error(self, redis):
        with redis.channel() as channel:
            channel.client.set(redis.dead, "text")
        with pytest.raises(IngestError, match="WRONGTYPE"):
            redis.dlq.ingest(redis.dead, who="tester")

    def test_the_prefix_of_all_keys_is_used(self, redis):
        redis.app.conf.broker_transport_options = {"global_keyprefix": f"{redis.queue}:"}
        ids = redis.bury(3)
        report = redis.dlq.ingest(redis.dead, who="tester")
        assert (report.arrived, redis.depth(redis.dead)) == (3, 0)
        assert sorted(letters(redis)) == sorted(ids)

    def test_all_priorities_are_taken(self, redis):
        for priority in (0, 3, 9):
            redis.app.send_task("proj.succeed", priority=priority)
        assert redis.dlq.ingest(redis.queue, who="tester", to="elsewhere").arrived == 3
        assert redis.depth(redis.queue) == 0


def test_a_redrive_sends_an_ingested_letter_where_it_died_and_resolves_it(either):
    ids = either.bury(5, "terminal")
    either.fixed.touch()
    assert either.dlq.ingest(either.dead, who="tester").arrived == 5
    with either.worker("-P", "solo"):
        done = either.dlq.redrives.start(Filter(), who="tester")
        assert (done.counts.out, done.cause) == (5, "")
        for task_id in ids:
            assert either.wait_for_letter(task_id, State.RESOLVED).queue == either.queue
    assert either.depth(either.dead) == 0


def test_a_limit_takes_no_more_than_it_says(either, monkeypatch):
    either.bury(7)
    monkeypatch.setitem(Ingestion.__init__.__kwdefaults__, "batch_size", 2)
    report = either.dlq.ingest(either.dead, who="tester", limit=5)
    assert (report.total, report.arrived) == (5, 5)
    either.wait_for_depth(either.dead, 2)


def test_two_at_once_make_one_letter_of_each_message(either, monkeypatch):
    ids = either.bury(60)
    monkeypatch.setitem(Ingestion.__init__.__kwdefaults__, "batch_size", 7)
    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(partial(either.dlq.ingest, who="tester"), [either.dead] * 2))
    assert sum(report.arrived for report in reports) == 60
    found = letters(either)
    assert sorted(found) == sorted(ids)
    assert either.depth(either.dead) == 0


def test_large_messages_make_small_batches(either, monkeypatch):
    either.bury(25)
    monkeypatch.setattr("celery_dlq.ingest.source.BATCH_BYTES", 60)  # two or three bodies
    sizes, at = [], [0]

    def on_progress(report):
        sizes.append(report.done - at[0])
        at[0] = report.done

    assert either.dlq.ingest(either.dead, who="tester", on_progress=on_progress).arrived == 25
    assert sum(sizes) == 25
    assert max(sizes[1:]) <= 3


@pytest.mark.parametrize("step", ["take", "save", "remove"])
def test_killed_after_any_step_it_loses_nothing_and_makes_no_second_letter(either, step):
    ids = either.bury(20)
    script = f"""
import os, signal
from celery_dlq import DeadLetterQueue
from celery_dlq.ingest import ingestion
def then_die(function):
    def dying(*args, **kwargs):
        function(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)
    return dying
from proj_ingest import app
dlq = DeadLetterQueue.of(app)
ingestion.Ingestion.__init__.__kwdefaults__["batch_size"] = 8
init = ingestion.Ingestion.__init__
def rigged(self, source, store, *args, **kwargs):
    victim = store.letters if {step!r} == "save" else source
    setattr(victim, {step!r}, then_die(getattr(victim, {step!r})))
    init(self, source, store, *args, **kwargs)
ingestion.Ingestion.__init__ = rigged
dlq.ingest({either.dead!r}, who="tester")
"""
    died = subprocess.run(
        [sys.executable, "-c", script], env=either.environment, cwd=either.directory
    )
    assert died.returncode == -signal.SIGKILL
    stored = {"take": 0, "save": 8, "remove": 8}[step]
    assert len(letters(either)) == stored
    left = wait_for("the broker to have it back", lambda: left_on(either, step))
    report = either.dlq.ingest(either.dead, who="tester")
    assert (report.arrived, report.known) == (20 - stored, left - (20 - stored))
    found = letters(either)
    assert sorted(found) == sorted(ids)
    assert {len(letter.attempts) for letter in found.values()} == {1}
    assert either.depth(either.dead) == 0


def left_on(project, step):
    """How many messages the dead-letter queue has after a kill: all, or all but the batch that was removed.

    An acknowledgement that was written when its process died may have been read by the broker or not.
    """
    depth = project.depth(project.dead)
    return depth in ((12, 20) if step == "remove" else (20,)) and depth


def test_a_closed_letter_stays_closed_when_its_message_comes_again(either, monkeypatch):
    (task_id,) = either.bury(1)
    with monkeypatch.context() as patch:
        for kind in (AMQPQueue, RedisList):
            patch.setattr(kind, "remove", lambda self, taken: None)
        either.dlq.ingest(either.dead, who="tester", limit=1)
    # x-death has whole seconds, so the letter is closed clearly later.
    later = utc_now() + timedelta(seconds=2)
    either.dlq.store.closing.discard(Filter(), who="tester", why="test", now=later)
    either.wait_for_depth(either.dead, 1)
    assert either.dlq.ingest(either.dead, who="tester").known == 1
    assert either.letter(task_id).state is State.DISCARDED


class TestCommand:
    def test_it_reports_its_result(self, either):
        either.bury(3)
        counted = either.run("dlq", "ingest", either.dead, "--dry-run")
        assert (counted.returncode, counted.stdout) == (
            0, f"{either.dead} holds 3 messages; nothing was changed.\n",
        )  # fmt: skip
        assert letters(either) == {}
        done = either.run("dlq", "ingest", either.dead)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"From {either.dead}: 3 messages ingested. See: ")

    def test_a_store_that_is_away_leaves_the_messages(self, either, tmp_path):
        either.bury(2)
        (tmp_path / "store.sqlite3").unlink(missing_ok=True)
        (tmp_path / "store.sqlite3").mkdir()
        try:
            done = either.run("dlq", "ingest", either.dead)
        finally:
            (tmp_path / "store.sqlite3").rmdir()
        assert done.returncode == 3, done.stderr
        assert done.stderr.startswith("Error: ")
        assert done.stderr.count("\n") == 1
        either.wait_for_depth(either.dead, 2)

    def test_a_broker_that_is_away_is_one_line(self, redis):
        redis.broker = "redis://127.0.0.1:1"
        done = redis.run("dlq", "ingest", redis.dead)
        redis.broker = redis.app.conf.broker_url
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "doctor" in done.stderr
