import pytest

from celery_dlq.errors import StoreUnavailable
from celery_dlq.ingest.ingestion import Ingestion
from celery_dlq.ingest.source import open_source
from celery_dlq.model.states import Reason
from celery_dlq.store.base import Filter


@pytest.fixture
def bury(app):
    """Puts messages that were sent to the queue ``orders`` into the queue ``dead``."""

    def bury(*ids):
        with app.connection_for_write() as connection, connection.channel() as channel:
            for task_id in ids:
                connection.Producer(channel, auto_declare=False).publish(
                    [[1], {}, {}], exchange="", routing_key="orders",
                    headers={"id": task_id, "task": "shop.charge"},
                )  # fmt: skip
                channel._put("dead", channel._get("orders"))

    yield bury
    with app.connection_for_write() as connection, connection.channel() as channel:
        for name in ("dead", "orders"):
            channel._delete(name)


def held(app):
    with open_source(app, "dead") as source:
        return source.count()


def test_messages_become_letters_and_leave_the_queue(run, app, store, bury):
    bury("0d3f", "77e1")
    result = run("ingest", "dead")
    assert (result.exit_code, result.stdout) == (
        0, "From dead: 2 messages ingested. See: celery dlq list\n",
    )  # fmt: skip
    assert (store.letters.get("0d3f").reason, store.letters.get("77e1").queue) == (
        Reason.INGESTED,
        "orders",
    )
    assert held(app) == 0
    assert run("ingest", "dead").stdout == "dead is empty.\n"


def test_it_is_in_the_audit_batch_by_batch(run, store, bury, monkeypatch):
    monkeypatch.setitem(Ingestion.__init__.__kwdefaults__, "batch_size", 2)
    bury("a", "b", "c")
    run("ingest", "dead", "--to", "orders")
    run("ingest", "dead", "--to", "orders")
    [row] = store.audit.find().rows
    assert (row.act, row.count, row.detail) == ("ingest", 3, {"queue": "dead", "to": "orders"})
    assert row.who


def test_known_messages_are_counted(run, bury):
    bury("0d3f")
    run("ingest", "dead")
    bury("0d3f", "new")
    assert "1 message ingested, 1 already known and removed." in run("ingest", "dead").stdout


def test_a_dry_run_counts_and_changes_nothing(run, app, store, bury):
    bury("0d3f")
    assert run("ingest", "dead", "--dry-run").stdout == (
        "dead holds 1 message; nothing was changed.\n"
    )
    assert (held(app), store.counts.letters(Filter())) == (1, 0)


def test_quiet_says_nothing(run, bury):
    bury("0d3f")
    assert run("ingest", "dead", quiet=True).output == ""


def test_the_limit_leaves_the_rest(run, app, bury):
    bury("a", "b", "c")
    run("ingest", "dead", "--limit", "2")
    assert held(app) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("",), "'QUEUE': it is empty"),
        (("dead", "--to", " "), "'--to': it is empty"),
        (("dead", "--to", "dead"), "--to is the queue to ingest"),
        ((), "Missing argument"),
    ],
)
def test_an_invalid_command_line_is_refused(run, arguments, said):
    result = run("ingest", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_ingesting_a_task_queue_needs_confirmation(run, app, bury):
    app.conf.task_default_queue = "dead"
    bury("a", "b")
    refused = run("ingest", "dead")
    assert refused.exit_code == 2
    assert "Tasks of this app wait in the queue dead" in refused.stderr
    assert held(app) == 2
    assert run("ingest", "dead", "--yes").exit_code == 0


def test_a_store_error_exits_with_3_and_leaves_the_messages(run, app, queue, bury, monkeypatch):
    bury("a", "b")

    def away(letters):
        raise StoreUnavailable

    monkeypatch.setattr("kombu.transport.memory.Channel.do_restore", True)
    monkeypatch.setattr(queue.store.letters, "save", away)
    result = run("ingest", "dead")
    assert result.exit_code == 3
    # kombu before 5.6 says there what it gives back.
    assert result.stderr.splitlines()[-1].startswith("Error: The dead-letter store does not")
    assert held(app) == 2


def test_progress_before_an_error_is_reported(run, app, queue, bury, monkeypatch):
    bury("a", "b", "c")
    monkeypatch.setitem(Ingestion.__init__.__kwdefaults__, "batch_size", 1)
    save, left = queue.store.letters.save, [1]

    def save_once(letters):
        if not left:
            raise StoreUnavailable
        left.pop()
        return save(letters)

    monkeypatch.setattr(queue.store.letters, "save", save_once)
    result = run("ingest", "dead")
    assert result.exit_code == 3
    assert "Before it stopped: 1 message ingested." in result.stderr


def test_ctrl_c_stops_after_the_current_batch(run, app, queue, bury, monkeypatch):
    bury("a", "b")
    monkeypatch.setitem(Ingestion.__init__.__kwdefaults__, "batch_size", 1)
    save = queue.store.letters.save

    def interrupted(letters):
        import os
        import signal

        os.kill(os.getpid(), signal.SIGINT)
        return save(letters)

    monkeypatch.setattr(queue.store.letters, "save", interrupted)
    result = run("ingest", "dead")
    assert result.exit_code == 130
    assert "Interrupted.\nFrom dead: 1 message ingested." in result.stderr
    assert held(app) == 1
