"""The consumer's handlers for messages that become no request, with a desk that the test holds back."""

import json
from types import SimpleNamespace

import pytest
from celery import Celery
from celery.exceptions import InvalidTaskError
from celery.worker.request import Request
from kombu import compression
from kombu.exceptions import ContentDisallowed, DecodeError
from kombu.message import Message
from support.factories import bomb

from celery_dlq import DeadLetterQueue, DLQTask, Reason
from celery_dlq.base.unpack import bound_decoders
from celery_dlq.errors import PoolFailed
from celery_dlq.model.handling import HANDLE_TASK
from celery_dlq.model.headers import COMPRESSED_HEADER, REDRIVE_HEADER
from celery_dlq.model.letter import NO_TASK
from celery_dlq.worker.foreign import Foreign
from celery_dlq.worker.message import DECODE_LIMIT


class HeldDesk:
    """Keeps what is recorded, and what is to follow, until the test lets it go on."""

    is_in_loop = False

    def __init__(self):
        self.records, self.waiting = [], []

    def write(self, what, then, urgent=False):
        self.records.append(what)
        self.waiting.append(then)

    def release(self):
        while self.waiting:
            self.waiting.pop(0)()


class Consumer:
    """Celery's consumer, as far as its handlers go; notes what it was asked to do."""

    hostname, connection_errors = "w@host", (ConnectionError, KeyError)

    def __init__(self, app):
        self.app, self.done, self.fails, self.handle = app, [], None, None
        self.pool = SimpleNamespace(on_apply=None)
        self.controller = SimpleNamespace(_process_task=None)
        self.on_task_request = None

    def on_decode_error(self, message, exc):
        self._do("decode_error", message)

    def on_unknown_task(self, body, message, exc):
        self._do("unknown_task", message)

    def on_unknown_message(self, body, message):
        self._do("unknown_message", message)

    def on_invalid_task(self, body, message, exc):
        self._do("invalid_task", message)

    def create_task_handler(self):
        return self.handle

    def _do(self, name, message):
        self.done.append(name)
        if self.fails:
            raise self.fails
        message.reject()


class Channel:
    no_ack_consumers = None

    def __init__(self):
        self.rejected = []

    def basic_reject(self, tag, requeue):
        self.rejected.append((tag, requeue))


@pytest.fixture
def app():
    app = Celery("unit", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.dlq_release = "1.4.2"
    app.task(base=DLQTask, name="shop.charge", shared=False)(_charge)
    DeadLetterQueue.of(app)
    app.finalize()
    return app


def _charge(): ...


@pytest.fixture
def desk(app):
    desk = HeldDesk()
    app.dead_letter_queue.capture.__dict__["desk"] = desk
    return desk


@pytest.fixture
def consumer(app, desk):
    consumer = Consumer(app)
    Foreign(consumer, app.dead_letter_queue.capture).join()
    return consumer


def message(body=b'[[17], {"token": "s3cret"}, {"chord": {"task": "shop.sum"}}]', **changes):
    headers = changes.pop(
        "headers", {"id": "4711", "task": "far.away", "group": "g", "root_id": "r"}
    )
    values = {
        "content_type": "application/json", "content_encoding": "utf-8", "channel": Channel(),
        "delivery_tag": 1, "delivery_info": {"exchange": "", "routing_key": "slow"},
        "properties": {"correlation_id": "c", "delivery_tag": "tag", "priority": 3},
    }  # fmt: skip
    return Message(body, headers=headers, **{**values, **changes})


def test_nothing_is_acknowledged_before_its_letter_is_safe(consumer, desk):
    unknown = message()
    consumer.on_unknown_task(None, unknown, KeyError("far.away"))
    assert len(desk.records) == 1
    assert consumer.done == []
    desk.release()
    assert consumer.done == ["unknown_task"]
    assert unknown.acknowledged


@pytest.mark.parametrize("handler", ["on_unknown_task", "on_invalid_task", "on_decode_error"])
def test_a_message_that_calls_a_handler_becomes_no_letter(consumer, desk, handler):
    """The store sends it again, to a worker that has the handler."""
    given = message(headers={"id": "4711", "task": HANDLE_TASK})
    before = [] if handler == "on_decode_error" else [None]
    getattr(consumer, handler)(*before, given, KeyError(HANDLE_TASK))
    assert desk.records == []
    assert consumer.done == [handler.removeprefix("on_")]
    assert given.acknowledged


def test_an_unknown_task_is_told_whole(consumer, desk):
    consumer.on_unknown_task(None, message(), KeyError("far.away"))
    [letter] = desk.records
    assert (letter.task_id, letter.task, letter.reason) == ("4711", "far.away", Reason.UNKNOWN_TASK)
    assert letter.message == "the worker knows no task 'far.away'"
    assert (letter.root_id, letter.group_id, letter.canvas) == ("r", "g", "chord")
    assert (letter.args, letter.kwargs) == ([17], {"token": "[redacted]"})
    assert (letter.queue, letter.worker, letter.release) == ("slow", "w@host", "1.4.2")
    assert letter.envelope.body == b'[[17], {"token": "s3cret"}, {"chord": {"task": "shop.sum"}}]'
    assert letter.envelope.properties == {"correlation_id": "c", "priority": 3}


@pytest.mark.parametrize(
    ("handler", "args", "rule"),
    [
        ("on_decode_error", lambda m: (m, DecodeError("bad")), "message.undecodable"),
        ("on_decode_error", lambda m: (m, ContentDisallowed("no")), "message.content_type"),
        ("on_unknown_message", lambda m: (None, m), "message.no_task"),
        ("on_invalid_task", lambda m: (None, m, InvalidTaskError("eta")), "message.invalid"),
        ("on_invalid_task", lambda m: (None, m, ContentDisallowed("no")), "message.content_type"),
    ],
)
def test_what_cannot_be_read_is_malformed(consumer, desk, handler, args, rule):
    getattr(consumer, handler)(*args(message(b"{", headers={})))
    [letter] = desk.records
    assert (letter.reason, letter.explanation.rule) == (Reason.MALFORMED, rule)
    assert (letter.task, letter.task_id) == (NO_TASK, "tag")
    assert (letter.args, letter.kwargs) == (None, None)
    desk.release()
    assert consumer.done == [handler.removeprefix("on_")]


def test_celery_goes_on_as_from_its_own_except_clause(consumer, desk, monkeypatch):
    seen = []
    error = DecodeError("bad")

    def on_decode_error(message, exc):
        import sys

        seen.append(sys.exc_info()[1])

    plain = Consumer(consumer.app)
    plain.on_decode_error = on_decode_error
    Foreign(plain, consumer.app.dead_letter_queue.capture).join()
    plain.on_decode_error(message(), error)
    desk.release()
    assert seen == [error], "so that its log shows the traceback"


FATAL = {
    "it has no id": message(headers={"task": "shop.charge"}),
    "the body is not (args, kwargs, embed) but a list of 2": message(
        b"[[], {}]", headers={"task": "shop.charge", "id": "a"}
    ),
    "kwargs are not a table but a list of 0": message(
        b"[[], [], {}]", headers={"task": "shop.charge", "id": "a"}
    ),
    "the task's name is not text but a list of 1": message(headers={"task": ["a"], "id": "a"}),
    "retries are not a number but str": message(
        b"[[], {}, {}]", headers={"task": "shop.charge", "id": "a", "retries": "2"}
    ),
    "timelimit is not a pair of numbers": message(
        b"[[], {}, {}]", headers={"task": "shop.charge", "id": "a", "timelimit": ["x", None]}
    ),
    "the body is not a table but a list of 3": message(b"[1, 2, 3]", headers={}),
}


@pytest.mark.parametrize("why", FATAL)
def test_a_message_that_would_end_the_worker_is_rejected_after_its_letter(consumer, desk, why):
    consumer.handle = _raise(KeyError("id"))
    fatal = FATAL[why]
    consumer.create_task_handler()(fatal)
    [letter] = desk.records
    assert (letter.reason, letter.message) == (Reason.MALFORMED, why)
    assert not fatal.acknowledged
    desk.release()
    assert consumer.done == ["invalid_task"]
    assert fatal.acknowledged


def _raise(error):
    def handle(message):
        raise error

    return handle


def test_an_error_that_is_not_the_messages_fault_goes_on(consumer, desk):
    consumer.handle = _raise(KeyError("a stale descriptor"))
    with pytest.raises(KeyError, match="stale"):
        consumer.create_task_handler()(message(b"[[], {}, {}]"))
    assert desk.records == []


def test_an_error_that_celery_meets_half_way_is_the_messages_fault(consumer, desk):
    """No list of known faults has this error."""
    bad = message(b"[[], {}, {}]", headers={"task": "shop.charge", "id": "a", "eta": ""})
    consumer.handle = _raise(AttributeError("tzinfo"))
    consumer.create_task_handler()(bad)
    [letter] = desk.records
    assert letter.reason is Reason.MALFORMED
    assert letter.message.startswith("no request can be made of it: AttributeError")
    desk.release()
    assert bad.acknowledged


def test_a_pool_that_takes_nothing_is_not_the_messages_fault(consumer, desk):
    consumer.handle = _raise(PoolFailed("no threads"))
    with pytest.raises(PoolFailed):
        consumer.create_task_handler()(message(headers={"task": "shop.charge"}))
    assert desk.records == []


@pytest.mark.parametrize("acks_late", [False, True])
def test_what_the_pool_cannot_take_of_a_task_that_is_not_on_dlqtask(app, desk, acks_late):
    app.conf.task_ignore_result = False
    plain = app.task(name="plain", shared=False, acks_late=acks_late)(_charge)
    deep = message(headers={"task": "plain", "id": "4711"})
    request = Request(deep, app=app, task=plain, on_ack=lambda *_: deep.reject())
    foreign = Foreign(Consumer(app), app.dead_letter_queue.capture)
    foreign.refuse(request, InvalidTaskError("the pool cannot take it: RecursionError: deep"))
    [letter] = desk.records
    assert (letter.task, letter.reason) == ("plain", Reason.MALFORMED)
    assert letter.explanation.rule == "message.pool_refused"
    assert not deep.acknowledged
    desk.release()
    assert request.acknowledged
    assert plain.backend.get_task_meta("4711")["status"] == "FAILURE"


def test_an_error_after_the_acknowledgement_goes_on(consumer, desk):
    done = message(headers={"task": "shop.charge"})
    done.reject()
    consumer.handle = _raise(KeyError("id"))
    with pytest.raises(KeyError):
        consumer.create_task_handler()(done)
    assert desk.records == []


def test_a_good_message_is_handled_as_ever(consumer, desk):
    consumer.handle = lambda message: "handled"
    assert consumer.create_task_handler()(message()) == "handled"
    assert desk.records == []


def test_a_letter_that_cannot_be_made_is_in_the_log_and_celery_goes_on(consumer, desk, caplog):
    broken = message(b"\xffwhole body")
    broken.properties = 7
    consumer.on_decode_error(broken, DecodeError("bad"))
    assert desk.records == []
    assert consumer.done == ["decode_error"]
    [record] = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert "\\xffwhole body" in record.getMessage()


@pytest.mark.parametrize("handler", ["on_unknown_task", "on_unknown_message", "on_invalid_task"])
def test_so_with_headers_that_cannot_even_be_looked_at(consumer, desk, caplog, handler):
    broken = message()
    broken.headers = None
    error = () if handler == "on_unknown_message" else (KeyError("t"),)
    getattr(consumer, handler)(None, broken, *error)
    assert (desk.records, consumer.done) == ([], [handler.removeprefix("on_")])
    assert [record for record in caplog.records if record.levelname == "CRITICAL"]


def test_a_fatal_message_whose_letter_cannot_be_made_is_left_to_celery(consumer, caplog):
    broken = message(headers={"task": "shop.charge"})
    broken.properties = 7
    consumer.handle = _raise(KeyError("id"))
    with pytest.raises(KeyError):
        consumer.create_task_handler()(broken)
    assert [record for record in caplog.records if record.levelname == "CRITICAL"]


def test_a_message_that_celery_cannot_finish_is_rejected(consumer, desk, caplog):
    """Without an id Celery looks for one in the body, and raises."""
    unfinished = message(headers={"task": "far.away"})
    consumer.on_unknown_task(None, unfinished, KeyError("far.away"))
    consumer.fails = TypeError("list indices must be integers")
    desk.release()
    assert unfinished.channel.rejected == [(1, False)]
    assert "could not finish" in caplog.text


def test_a_lost_connection_is_celerys_business(consumer, desk):
    lost = message()
    consumer.on_unknown_task(None, lost, KeyError("far.away"))
    consumer.fails = ConnectionResetError("gone")
    with pytest.raises(ConnectionResetError):
        desk.release()
    assert lost.channel.rejected == []


def test_a_body_that_was_not_decompressed_keeps_its_header(consumer, desk):
    headers = {"id": "a", "task": "shop.charge", "compression": "gzip"}
    broken = message(b"no gzip", headers=headers)
    consumer.on_decode_error(broken, broken.errors[0][1])
    [letter] = desk.records
    assert letter.envelope.headers == {**headers, COMPRESSED_HEADER: True}
    assert letter.envelope.body == b"no gzip"


def test_a_message_that_unpacks_to_too_much_is_a_letter_byte_for_byte(consumer, desk, monkeypatch):
    for name in ("_decoders", "_encoders", "_aliases"):
        monkeypatch.setattr(compression, name, dict(getattr(compression, name)))
    bound_decoders(8_000_000)
    sent = bomb(8_000_000).envelope
    came = message(sent.body, headers={"id": "a", "task": "shop.charge", "compression": "gzip"})
    consumer.on_decode_error(came, came.errors[0][1])
    [letter] = desk.records
    assert (letter.reason, letter.envelope.body) == (Reason.MALFORMED, sent.body)
    assert letter.envelope.headers[COMPRESSED_HEADER]
    assert "unpacks to more than 7.63 MiB (dlq_unpacked_max_size)" in letter.message


def test_a_pickle_is_not_read_even_where_it_is_accepted(consumer, desk):
    pickled = message(b"cos\nsystem\n(S'false'\ntR.", content_type="application/x-python-serialize")
    pickled.accept = {"application/x-python-serialize"}
    consumer.on_unknown_task(None, pickled, KeyError("far.away"))
    [letter] = desk.records
    assert (letter.args, letter.task_id) == (None, "4711")


def test_a_large_body_is_kept_and_not_decoded(consumer, desk):
    large = message(b'[["' + b"x" * DECODE_LIMIT + b'"], {}, {}]')
    consumer.on_unknown_task(None, large, KeyError("far.away"))
    [letter] = desk.records
    assert (letter.args, len(letter.envelope.body)) == (None, DECODE_LIMIT + 14)


def test_a_table_of_somebody_elses_names_no_letter(consumer, desk):
    """Only a task's id does: those of other documents are no ids of messages."""
    consumer.on_unknown_message(None, message(b'{"id": "order-1"}', headers={}))
    [letter] = desk.records
    assert letter.task_id == "tag"


def test_a_redriven_message_belongs_to_its_letter(consumer, desk):
    headers = {"x-dlq-letter": "kept-as", REDRIVE_HEADER: 2}
    consumer.on_decode_error(message(b"{", headers=headers), DecodeError("bad"))
    [letter] = desk.records
    assert (letter.task_id, letter.attempts[-1].redrive) == ("kept-as", 2)


def test_the_protocol_of_celery_3_says_who_it_is_in_the_body(consumer, desk):
    body = {
        "task": "far.old",
        "id": "o1",
        "args": [1],
        "kwargs": {"a": 2},
        "taskset": "g",
        "retries": 1,
    }
    old = message(json.dumps(body).encode(), headers={})
    consumer.on_unknown_task(body, old, KeyError("far.old"))
    [letter] = desk.records
    assert (letter.task, letter.task_id, letter.group_id) == ("far.old", "o1", "g")
    assert (letter.args, letter.kwargs, letter.attempts[0].number) == ([1], {"a": 2}, 2)


def test_the_same_defects_of_one_task_are_one_group(consumer, desk):
    for body in (b'[[1], {"a', b'[[22], {"bbb'):
        broken = message(body, headers={"id": "a", "task": "shop.charge"})
        with pytest.raises(DecodeError) as caught:
            broken.decode()
        consumer.on_decode_error(broken, caught.value)
    consumer.on_unknown_task(None, message(), KeyError("far.away"))
    first, second, third = (letter.fingerprint for letter in desk.records)
    assert first == second != third


def test_headers_that_are_no_table_are_named(consumer, desk):
    consumer.on_unknown_message(None, message(headers={"x-dlq-headers": ["a"]}))
    assert desk.records[0].message == "the headers are not a table"


def test_the_step_takes_its_place_before_the_worker_starts(app, monkeypatch):
    from celery_dlq.worker.consumer import CaptureStep

    consumer = Consumer(app)
    CaptureStep(consumer)
    assert consumer.on_decode_error.func.__self__.__class__ is Foreign
