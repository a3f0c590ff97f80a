"""The command that finds a message, with each source in turn."""

import json
from contextlib import contextmanager

import pytest
from celery.app.control import Inspect
from kombu import Queue
from support.factories import T0, letter, unsent

from celery_dlq.cli.doctor import where as module
from celery_dlq.model.states import Reason, State
from celery_dlq.redrive.broker.queues import InRedis


class Presence:
    """The answers of a broker, by queue."""

    def __init__(self):
        self.held = {}

    def find(self, queue, task_id):
        found = self.held.get(queue, InRedis.ABSENT)
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def broker(monkeypatch):
    presence = Presence()

    @contextmanager
    def open_presence(_app):
        yield presence

    monkeypatch.setattr(module, "open_presence", open_presence)
    return presence


@pytest.fixture
def workers(monkeypatch):
    """The answers of workers to the question for a task, by node."""
    held = {}
    monkeypatch.setattr(Inspect, "query_task", lambda _inspect, *_ids: held)
    return held


@pytest.fixture
def find(run, store, broker, workers):
    """Runs the command; gives the place, the next step, and the answer of each source."""

    def find(task_id="4711"):
        result = run("where", task_id, "--format", "json")
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        sources = {one["source"]: (one["place"], one["text"]) for one in found["sources"]}
        return found["place"], found["next"], sources

    return find


def test_a_letter(find, store):
    store.letters.save([letter("4711", task="shop.charge")])
    place, step, sources = find()
    assert place == "dead letter"
    assert "redrive 4711" in step
    assert sources["store"][0] == "dead letter"
    assert sources["store"][1].startswith("shop.charge, terminal, ")


def test_a_prefix_of_a_letter_is_enough(find, store):
    store.letters.save([letter("4711-aaaa")])
    assert find("4711")[0] == "dead letter"


def test_a_parked_retry(find, store):
    parked = letter(
        "4711", state=State.PARKED, reason=Reason.PARKED, parking="here.1", due_at=T0
    )  # fmt: skip
    store.parked.park([parked], now=T0)
    place, step, sources = find()
    assert place == "parked"
    assert "unpark 4711" in step
    assert "due at " in sources["store"][1]


def test_a_message_that_the_broker_did_not_take(find, store):
    store.parked.park([unsent("4711")], now=T0)
    place, step, sources = find()
    assert place == "parked"
    assert step.startswith("nothing, a worker sends it as soon as the broker takes it; ")
    assert sources["store"][1].startswith(
        "shop.charge waits in the store to be sent: the broker did not take it from web-1 at "
    )


@pytest.mark.parametrize(
    ("state", "place"), [("active", "running"), ("reserved", "reserved")]
)  # fmt: skip
def test_a_worker_that_has_it(find, workers, state, place):
    info = {"time_start": 1795897474.0, "worker_pid": 12}
    workers.update({"w@one": {}, "w@two": {"4711": [state, info]}})
    found, _step, sources = find()
    assert found == place
    assert sources["workers"][1] == "w@two has it since 2026-11-28T20:24:34+00:00, process 12"


def test_workers_that_do_not_have_it(find, workers):
    assert find()[2]["workers"] == (None, "no worker answered")
    workers["w@one"] = {}
    assert find()[2]["workers"] == (None, "none of the 1 that answered has it")


@pytest.mark.parametrize(
    ("held", "place", "text"),
    [
        (InRedis.QUEUED, "queued", "in queue celery"),
        (InRedis.TAKEN, "taken", "received by a worker, and not acknowledged"),
        (InRedis.ABSENT, None, "not in celery, and no worker holds it"),
        (None, None, "it cannot be asked for a message, or holds too many"),
        (OSError("refused"), None, "no answer (OSError: refused)"),
    ],
)
def test_the_broker(find, broker, held, place, text):
    broker.held["celery"] = held
    found, _step, sources = find()
    assert found == (place or "unknown")
    assert sources["broker"] == (place, text)


@pytest.mark.parametrize(
    ("state", "place"),
    [("SUCCESS", "done"), ("FAILURE", "failed"), ("REVOKED", "dropped"), ("PENDING", None)],
)
def test_the_result(find, app, monkeypatch, state, place):
    app.conf.result_backend = "cache+memory://"
    if state != "PENDING":
        app.backend.store_result("4711", 1 if state == "SUCCESS" else ValueError("x"), state)
    found, _step, sources = find()
    assert found == (place or "unknown")
    assert sources["results"][0] == place


@pytest.mark.parametrize("task_id", ["4711", 'order "ö"'])
def test_a_letter_in_the_spool(find, queue, task_id):
    queue.spool.keep([letter(task_id)])
    queue.spool.close()
    found, step, sources = find(task_id)
    assert found == "spooled"
    assert step.endswith("recover")
    assert sources["spool"][1].endswith(".jsonl")


def test_what_nothing_knows(find):
    place, step, sources = find()
    assert place == "unknown"
    assert "check the id" in step
    assert {place for place, _text in sources.values()} == {None}


def test_the_worker_that_runs_a_redriven_letter_comes_first(find, store, workers):
    store.letters.save([letter("4711")])
    workers["w@one"] = {"4711": ["active", {"time_start": None, "worker_pid": 12}]}
    assert find()[0] == "running"


def test_the_answer_for_people(run, store, broker, workers):
    store.letters.save([letter("4711")])
    out = run("where", "4711").stdout.splitlines()
    assert out[0] == "4711: dead letter"
    assert out[-1].startswith("Next: ")


def test_every_queue_that_the_app_sends_to_is_searched(find, app, broker):
    app.conf.task_queues = [Queue("mail")]
    app.conf.task_routes = {"shop.*": "money"}
    broker.held["celery"] = InRedis.QUEUED
    place, step, sources = find()
    assert (place, sources["broker"]) == ("queued", ("queued", "in queue celery"))
    assert step == (
        "a worker that consumes this queue takes it; to see whether one does: celery dlq doctor"
    )
    broker.held.clear()
    assert find()[2]["broker"] == (None, "not in celery, mail, money, and no worker holds it")
