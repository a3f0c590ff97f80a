"""The doctor asks the workers whether they are stalled."""

import pytest
from celery.app.control import Inspect
from celery.bin.base import CLIContext
from kombu import Connection, Producer
from kombu.exceptions import ContentDisallowed
from kombu.pidbox import Mailbox

from celery_dlq.cli.doctor.broker import answers_of_workers, check_stalled
from celery_dlq.cli.session import Session

STALL = {"since": "2026-11-25T12:00:00+00:00", "queues": ["shop", "mail"], "messages": 3}


@pytest.fixture
def found(run):
    def found():
        lines = [line.split(maxsplit=2) for line in run("doctor").stdout.splitlines()[1:]]
        return [(level, text) for name, level, text in lines if name == "stalled"]

    return found


@pytest.fixture
def answers(monkeypatch):
    """The statistics of workers, by node."""
    given = {}
    monkeypatch.setattr(Inspect, "stats", lambda _inspect: given or None)
    return given


def test_without_a_worker_there_is_nothing_to_say(found, answers):
    assert found() == []


def test_workers_that_receive_messages_are_well(found, answers):
    # The last one has an earlier release.
    answers.update({"a": {"dlq": {"stalled": None}}, "b": {}, "c": {"dlq": {}}})
    assert found() == [("ok", "3 workers, none stalled")]


def test_a_stalled_worker_is_a_warning(found, answers):
    answers.update({"w@host": {"dlq": {"stalled": STALL}}, "b": {"dlq": {"stalled": None}}})
    [(level, text)] = found()
    assert level == "warning"
    assert text == (
        "w@host has received nothing since 2026-11-25T12:00:00+00:00, although it has free slots and "
        "messages wait in shop, mail; restart it, and see: celery -A <app> dlq help stalled-workers"
    )


def test_a_broker_that_is_away_is_reported_once(run, app, answers):
    app.conf.broker_url = "redis://127.0.0.1:1"
    lines = [line for line in run("doctor").stdout.splitlines() if " stalled " in f" {line} "]
    assert [line.split()[1] for line in lines if "not checked" not in line] == ["error"]


def test_on_pgmq_workers_cannot_be_asked(app, answers):
    pytest.importorskip("pgmq")
    pytest.importorskip("kombu.transport.pgmq", reason="kombu 5.6 and later have it")
    app.conf.broker_url = "pgmq://127.0.0.1:1/none"
    [stalled] = check_stalled(Session(CLIContext(app=app, no_color=True, workdir=None)))
    assert stalled.text.startswith("pgmq has no remote control")


def test_a_transport_that_does_not_cover_everything_is_a_warning(run, app, answers, tmp_path):
    app.conf.broker_url = "filesystem://"
    app.conf.broker_transport_options = dict.fromkeys(
        ("data_folder_in", "data_folder_out", "control_folder"), str(tmp_path)
    )
    [line] = [
        one for one in run("doctor").stdout.splitlines() if "not everything is covered" in one
    ]
    assert line.split()[:2] == ["broker", "warning"]


def test_a_worker_that_keeps_messages_is_a_warning(found, answers):
    answers["w@host"] = {"dlq": {"stalled": {**STALL, "queues": []}}}
    [(level, text)] = found()
    assert level == "warning"
    assert text.startswith(
        "w@host has kept 3 messages since 2026-11-25T12:00:00+00:00, although it has free slots and they "
        "could run; restart it"
    )


@pytest.mark.parametrize("answers", [("pickle", "json"), ("json", "pickle")])
def test_an_answer_that_cannot_be_read_is_named_and_the_others_count(app, answers, monkeypatch):
    def answer(mailbox, *_question, channel, **_options):
        queue = mailbox.reply_queue
        for serializer in answers:
            Producer(channel).publish(
                {serializer: "here"}, serializer=serializer, exchange=queue.exchange,
                routing_key=queue.routing_key, declare=[queue],
            )  # fmt: skip

    monkeypatch.setattr(Mailbox, "_publish", answer)
    app.conf.broker_url = "memory://"
    by_node, unread = answers_of_workers(app, "ping")
    assert by_node == {"json": "here"}
    assert unread.startswith("1 answer cannot be read (ContentDisallowed: Refusing to deserialize")
    assert "pickle" in unread


def test_a_neighbour_whose_answer_cannot_be_read_is_a_warning(found, answers, monkeypatch):
    monkeypatch.setattr(
        Inspect, "stats", lambda one: one.connection.drain_events() or {"w@host": {"dlq": {}}}
    )
    monkeypatch.setattr(Connection, "drain_events", refuse)
    (level, text), well = found()
    assert (level, well) == ("warning", ("ok", "1 worker, none stalled"))
    assert text == (
        "1 answer cannot be read (ContentDisallowed: pickle), so from a worker of another app; give it "
        "another database or virtual host of the broker, or another control_exchange"
    )


def refuse(_connection):
    raise ContentDisallowed("pickle")
