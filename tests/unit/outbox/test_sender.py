"""A message that the broker does not take from its sender."""

import json
import re
import socket
import subprocess
import sys
from datetime import datetime, timedelta, timezone

import pytest
from amqp.exceptions import AccessRefused
from celery import chain, group
from celery.signals import before_task_publish
from kombu.exceptions import EncodeError
from redis.exceptions import AuthenticationError

from celery_dlq import DLQTask
from celery_dlq.model.headers import RELEASE_HEADER, SENT_HEADER
from celery_dlq.model.states import Reason, State
from celery_dlq.outbox.transmission import BrokerCircuit, Unsent
from celery_dlq.store.base import DOUBT_S, Filter

REFUSED = ConnectionRefusedError(111, "Connection refused")
RESET = ConnectionResetError(104, "Connection reset by peer")


def kept(dlq):
    return dlq.store.letters.find(Filter(states=frozenset({State.PARKED}))).letters


def whole(dlq, task_id):
    return dlq.store.letters.get(task_id)


def test_while_all_is_well_it_is_celerys_message_with_a_name(charge, dlq, queued):
    first, second = charge.delay(17), charge.delay(17)

    names = [message.headers[SENT_HEADER] for message in queued()]
    assert len(set(names)) == 2
    assert first.id != second.id
    assert kept(dlq) == ()


def test_a_message_that_is_not_taken_is_kept_whole(charge, dlq, broker, queued):
    broker.away = REFUSED
    result = charge.apply_async(
        (17,), {"currency": "EUR"}, countdown=90, priority=3, headers={"x-own": "1"}
    )

    letter = whole(dlq, result.id)
    assert (letter.state, letter.reason, letter.task) == (
        State.PARKED, Reason.UNSENT, "shop.charge",
    )  # fmt: skip
    assert letter.exception_type == "ConnectionRefusedError"
    assert json.loads(letter.envelope.body)[:2] == [[17], {"currency": "EUR"}]
    assert letter.envelope.headers["eta"]
    assert letter.envelope.headers["x-own"] == "1"
    assert letter.envelope.properties["priority"] == 3
    assert letter.envelope.queue == "celery"
    assert letter.due_at <= datetime.now(timezone.utc) + timedelta(seconds=1)
    assert RELEASE_HEADER not in letter.envelope.headers
    assert queued() == []


def test_a_message_that_may_have_been_taken_is_in_doubt(charge, dlq, broker, queued):
    broker.fails(RESET, takes=True)
    result = charge.delay(17)

    [message] = queued()
    letter = whole(dlq, result.id)
    sent = message.headers[SENT_HEADER]
    assert dlq.store.parked.in_doubt(dlq.hold.place) == {sent}
    assert letter.envelope.headers[RELEASE_HEADER] == f"{letter.parking}/1"
    assert letter.due_at > datetime.now(timezone.utc) + timedelta(seconds=DOUBT_S - 10)


def test_an_unknown_host_is_a_broker_that_is_away(charge, dlq, broker):
    broker.away = socket.gaierror(-2, "Name or service not known")
    charge.delay(17)
    assert len(kept(dlq)) == 1


@pytest.mark.parametrize(
    "error",
    [AccessRefused("login was refused"), AuthenticationError("invalid password"), KeyError("x")],
    ids=["amqp", "redis", "ours"],
)
def test_an_error_that_stays_is_raised_and_nothing_is_kept(charge, dlq, broker, error):
    broker.fails(error)
    with pytest.raises(Exception, match=re.escape(str(error))):  # which Celery may wrap
        charge.delay(17)
    assert kept(dlq) == ()


@pytest.mark.parametrize("is_away", [False, True])
def test_a_message_that_cannot_be_serialised_is_raised(charge, dlq, broker, is_away):
    broker.away = REFUSED if is_away else None
    with pytest.raises(EncodeError):
        charge.delay(object())
    assert kept(dlq) == ()


def test_while_the_broker_is_away_one_message_tries_every_two_seconds(charge, dlq, broker):
    now = 0.0
    dlq.sending.circuit._monotonic = lambda: now
    broker.away = REFUSED
    for _ in range(5):
        charge.delay(17)
    assert broker.connects == 1
    now = 2.0
    charge.delay(17)
    charge.delay(17)
    assert broker.connects == 2

    broker.away, now = None, 4.0
    charge.delay(17)
    charge.delay(17)
    assert len(kept(dlq)) == 7


def test_few_messages_wait_for_a_broker_that_hangs():
    now = 0.0
    circuit = BrokerCircuit(lambda: now)
    circuit.note(Unsent(TimeoutError(), is_away=True), took_s=2.0)
    now = 9.9
    assert circuit.why_not_now()
    now = 10.0
    assert circuit.why_not_now() is None


def test_the_log_says_once_that_the_broker_is_away_and_once_that_it_is_back(
    charge, dlq, broker, caplog
):
    caplog.set_level("INFO", "celery_dlq.outbox")
    dlq.sending.circuit._monotonic = iter(range(0, 1_000, 10)).__next__
    broker.away = REFUSED
    charge.delay(1)
    charge.delay(2)
    broker.away = None
    charge.delay(3)
    charge.delay(4)
    messages = [record.message for record in caplog.records]
    assert [text.split(",")[0] for text in messages] == [
        "the broker cannot be reached", "the broker can be reached again",
    ]  # fmt: skip


def test_without_the_option_the_error_is_raised_as_ever(app, dlq, broker):
    @app.task(base=DLQTask, name="shop.other", dlq_unsent="raise")
    def other():
        return None

    broker.fails(RESET)
    with pytest.raises(Exception, match="Connection reset by peer"):
        other.apply_async(retry=False)
    assert kept(dlq) == ()


def test_a_task_may_have_the_option_alone(app, dlq, broker):
    app.conf.dlq_unsent = "raise"

    @app.task(base=DLQTask, name="shop.other", dlq_unsent="store")
    def other():
        return None

    broker.away = REFUSED
    other.delay()
    assert [letter.task for letter in kept(dlq)] == ["shop.other"]


def test_a_task_of_another_process_is_kept_too(app, dlq, broker):
    broker.away = REFUSED
    app.send_task("elsewhere.ship", (1,))
    assert [letter.task for letter in kept(dlq)] == ["elsewhere.ship"]


def test_each_message_of_a_group_is_sent_or_kept(charge, dlq, broker, queued):
    def go_away_after_three(*args, **kwargs):
        sent.append(1)
        if len(sent) > 3:
            broker.fails(REFUSED)

    sent = []
    before_task_publish.connect(go_away_after_three)
    try:
        group(charge.s(number) for number in range(10)).apply_async()
    finally:
        before_task_publish.disconnect(go_away_after_three)
    assert len(queued()) == 3
    assert sorted(letter.args[0] for letter in kept(dlq)) == list(range(3, 10))


def test_a_chain_goes_with_its_first_message(charge, dlq, broker):
    broker.away = REFUSED
    result = chain(charge.si(1), charge.si(2)).apply_async()
    letter = whole(dlq, result.parent.id)
    assert letter.canvas == "chain"


def test_the_event_of_a_message_that_is_not_sent_is_not_sent_either(app, charge, dlq, broker):
    app.conf.task_send_sent_event = True
    broker.away = REFUSED
    charge.delay(17)
    assert broker.connects == 1


def test_the_spool_takes_it_if_the_store_is_away(app, charge, dlq, broker):
    app.conf.dlq_store_url = "sqlite:////nowhere/dlq.sqlite3"
    broker.away = REFUSED
    charge.delay(17)
    [path] = dlq.spool.files()
    assert b'"unsent"' in path.read_bytes()


def test_if_neither_takes_it_the_broker_error_is_raised(app, charge, dlq, broker, caplog, tmp_path):
    (tmp_path / "spool").write_text("not a directory")
    app.conf.dlq_store_url = "sqlite:////nowhere/dlq.sqlite3"
    broker.away = REFUSED
    with pytest.raises(Exception, match="Connection refused"):
        charge.delay(17)
    assert "could be neither sent nor kept" in caplog.text


def test_the_result_is_not_subscribed_to_before_the_message_is_sent(app, charge, dlq, broker):
    calls = []
    app.backend.on_task_call = lambda producer, task_id: calls.append(task_id)
    charge.delay(17)
    assert calls == []
    charge.dlq_unsent = "raise"
    charge.delay(17)
    assert len(calls) == 1


def test_a_connection_of_the_caller_is_used(app, charge, dlq, queued):
    with app.connection_for_write() as connection:
        charge.apply_async((17,), connection=connection)
    assert len(queued()) == 1


def test_a_message_without_headers_is_celerys_own_affair(app, charge, dlq, broker):
    app.conf.task_protocol = 1
    broker.fails(RESET)
    with pytest.raises(Exception, match="Connection reset by peer"):
        charge.apply_async((17,), retry=False)


def test_a_forked_process_has_names_and_a_writer_of_its_own(charge, dlq, broker, monkeypatch):
    broker.away = REFUSED
    charge.delay(1)
    parent = dlq.sending.keeper.writer
    names = {dlq.sending.new_name()[:16]}
    parent.stop()
    monkeypatch.setattr("os.getpid", lambda: 4711)
    names.add(dlq.sending.new_name()[:16])
    assert dlq.sending.keeper.writer is not parent
    assert len(names) == 2


def test_nothing_is_loaded_while_all_is_well(tmp_path):
    script = """
import sys, threading
from celery import Celery
from celery_dlq import DLQTask
app = Celery("shop", broker="memory://")
app.conf.dlq_unsent = "store"

@app.task(base=DLQTask, name="shop.charge")
def charge():
    return None

charge.delay()
assert app.amqp.producer_pool._resource.qsize() > 0
loaded = [name for name in ("sqlalchemy", "celery_dlq.outbox.keeper") if name in sys.modules]
print(loaded, threading.active_count())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stdout.strip() == "[] 1"
    assert list(tmp_path.iterdir()) == []


class Transaction:
    def __init__(self):
        self.parked, self.calls = [], []

    def park(self, letter):
        self.parked.append(letter)

    def after_commit(self, call):
        self.calls.append(call)


@pytest.fixture
def transaction(app, monkeypatch):
    app.conf.dlq_unsent = "commit"
    transaction = Transaction()
    monkeypatch.setattr("celery_dlq.outbox.commit.open_transaction", lambda dlq: transaction)
    return transaction


def test_in_a_transaction_the_message_waits_for_the_commit(charge, dlq, queued, transaction):
    result = charge.delay(17)
    [letter] = transaction.parked
    assert queued() == []
    dlq.store.parked.park(transaction.parked, now=datetime.now(timezone.utc))

    [send] = transaction.calls
    send()
    dlq.sending.keeper.writer.flush()

    [message] = queued()
    assert message.headers["id"] == result.id
    assert message.headers[RELEASE_HEADER] == f"{letter.parking}/1"
    assert kept(dlq) == ()


def test_after_the_commit_a_broker_that_is_away_leaves_it_to_the_workers(
    charge, dlq, broker, transaction
):
    charge.delay(17)
    dlq.store.parked.park(transaction.parked, now=datetime.now(timezone.utc))
    broker.away = REFUSED
    transaction.calls[0]()
    dlq.sending.keeper.writer.flush()
    assert dlq.store.parked.next_due(dlq.hold.place) <= 0.0


def test_after_the_commit_a_doubt_leaves_it_to_the_hold(charge, dlq, broker, transaction):
    charge.delay(17)
    dlq.store.parked.park(transaction.parked, now=datetime.now(timezone.utc))
    broker.fails(RESET)
    transaction.calls[0]()
    dlq.sending.keeper.writer.flush()
    assert dlq.store.parked.next_due(dlq.hold.place) > DOUBT_S - 10


def test_after_the_commit_nothing_is_raised(charge, dlq, broker, transaction, caplog):
    charge.delay(17)
    broker.fails(KeyError("x"))
    transaction.calls[0]()
    assert "after its commit" in caplog.text
