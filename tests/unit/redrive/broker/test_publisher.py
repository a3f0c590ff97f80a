from types import SimpleNamespace

import pytest
from amqp.exceptions import NotFound
from celery import Celery
from kombu.transport import memory
from support.factories import T0, envelope, letter

from celery_dlq.errors import RedriveError
from celery_dlq.model.headers import (
    ATTEMPTS_HEADER,
    COMPRESSED_HEADER,
    COPY_HEADER,
    FIRST_FAILED_HEADER,
    FREE_HEADER,
    GROUP_HEADER,
    LETTER_HEADER,
    REDRIVE_HEADER,
    first_failure_of,
)
from celery_dlq.redrive.broker import amqp, publisher
from celery_dlq.redrive.broker.amqp import ConfirmingPublisher
from celery_dlq.redrive.broker.message import headers_to_send
from celery_dlq.redrive.broker.publisher import BatchingPublisher, open_publisher


def test_headers_are_those_of_a_first_attempt_marked_as_the_next_redrive():
    original = {
        "id": "a", "task": "t", "retries": 4, "eta": "2026", "expires": "2026", "tenant": "acme",
        "group": "g", "group_index": 2, ATTEMPTS_HEADER: "[]", REDRIVE_HEADER: 1, "compression": "gzip",
        "x-death": [1], "x-first-death-queue": "q", "x-last-death-reason": "r", "x-delivery-count": 3,
        "x-acquired-count": 4,
        "redelivered": True,
    }  # fmt: skip
    sent = headers_to_send(letter("a", envelope=envelope(headers=original), redrive_count=1))
    assert sent == {
        "id": "a", "task": "t", "retries": 0, "eta": None, "expires": None, "tenant": "acme",
        "group": "g", "group_index": 2, REDRIVE_HEADER: 2, FIRST_FAILED_HEADER: T0.isoformat(),
        GROUP_HEADER: "9c1e0000deadbeef",
    }  # fmt: skip


def test_headers_that_a_running_task_sees_in_the_place_of_all_others_have_the_same_marks():
    """Sentry and Datadog send them. With the attempts of the first death, a redrive would have no retry left,
    and without the number of the redrive, its retry would not report for it."""
    seen = {"tenant": "acme", ATTEMPTS_HEADER: "[]", FREE_HEADER: 3, REDRIVE_HEADER: 1}
    original = {"id": "a", "task": "t", "headers": seen}
    sent = headers_to_send(
        letter("a", envelope=envelope(headers=original), redrive_count=1, claim_token="5c")
    )
    marks = {
        REDRIVE_HEADER: 2, FIRST_FAILED_HEADER: T0.isoformat(), COPY_HEADER: "5c",
        GROUP_HEADER: "9c1e0000deadbeef",
    }  # fmt: skip
    assert sent["headers"] == {"tenant": "acme", **marks}
    assert marks.items() <= sent.items()
    assert REDRIVE_HEADER in seen
    assert seen[REDRIVE_HEADER] == 1


@pytest.mark.parametrize("seen", [None, "text", 7, ["x-dlq-attempts"]])
def test_a_header_named_headers_of_another_kind_stays(seen):
    original = {"id": "a", "task": "t", "headers": seen}
    assert headers_to_send(letter("a", envelope=envelope(headers=original)))["headers"] == seen


def test_a_letter_without_a_group_names_none():
    stale = envelope(headers={"id": "a", "task": "t", GROUP_HEADER: "an older one"})
    assert GROUP_HEADER not in headers_to_send(letter("a", envelope=stale, fingerprint=""))


def test_what_is_sent_under_a_claim_is_marked_as_its_copy():
    kept = envelope("a", headers={"id": "a", "task": "t", COPY_HEADER: "an older one"})
    assert headers_to_send(letter("a", envelope=kept, claim_token="5c"))[COPY_HEADER] == "5c"
    assert COPY_HEADER not in headers_to_send(letter("a", envelope=kept))


@pytest.mark.parametrize("headers", [{}, {"id": 4711, "task": "t"}, {"id": "x" * 300, "task": "t"}])
def test_a_message_whose_id_is_not_its_letters_names_the_letter(headers):
    sent = headers_to_send(letter("kept-as", envelope=envelope(headers=headers)))
    assert sent[LETTER_HEADER] == "kept-as"
    assert sent.get("id") == headers.get("id")
    again = headers_to_send(letter("kept-as", envelope=envelope(headers=sent), redrive_count=1))
    assert again == {**sent, REDRIVE_HEADER: 2}


def test_headers_of_what_is_no_task_stay_as_they_are():
    original = {"kind": "order", "eta": "a delivery date", b"raw": 1}
    sent = headers_to_send(letter("a", envelope=envelope(headers=original)))
    ours = {
        REDRIVE_HEADER: 1, LETTER_HEADER: "a", FIRST_FAILED_HEADER: T0.isoformat(),
        GROUP_HEADER: "9c1e0000deadbeef",
    }  # fmt: skip
    assert sent == {**original, **ours}


def test_a_redrive_carries_the_time_of_the_first_failure_of_all():
    forged = "2020-01-01T00:00:00+00:00"
    earlier = {"id": "a", "task": "t", REDRIVE_HEADER: 1, FIRST_FAILED_HEADER: forged}
    sent = headers_to_send(letter("a", envelope=envelope(headers=earlier), redrive_count=1))
    assert first_failure_of(sent) == T0


def test_a_body_that_nobody_could_decompress_is_sent_as_compressed():
    original = {"id": "a", "task": "t", "compression": "zstd", COMPRESSED_HEADER: True}
    sent = headers_to_send(letter("a", envelope=envelope(headers=original)))
    assert sent["compression"] == "zstd"
    assert COMPRESSED_HEADER not in sent


def test_a_body_without_a_content_type_is_sent_without_being_encoded(app):
    made = letter(
        "a", envelope=envelope("a", body=b"\x00\xff", content_type="", content_encoding="")
    )
    with open_publisher(app) as publisher:
        assert publisher.send([made]).confirmed == ["a"]
    with app.connection_for_read() as connection:
        message = connection.SimpleQueue("celery").get(timeout=60)
        message.ack()
    assert message.body == b"\x00\xff"


@pytest.fixture
def app():
    return Celery("unit", broker="memory://", set_as_current=False)


def test_a_connection_that_was_lost_is_left_without_an_error(app, monkeypatch):
    close = memory.Channel.close

    def lose(_channel):
        monkeypatch.setattr(memory.Channel, "close", close)
        raise BrokenPipeError

    monkeypatch.setattr(memory.Transport, "connection_errors", (BrokenPipeError,))
    with open_publisher(app):
        monkeypatch.setattr(memory.Channel, "close", lose)


def test_a_message_goes_to_its_queue_as_it_was(app):
    made = letter("a", envelope=envelope("a", body=b"\x00\xff", content_type="application/x-pickle",
                                         content_encoding="binary", queue="slow"))  # fmt: skip
    with open_publisher(app) as publisher:
        sent = publisher.send([made])
    assert (sent.confirmed, sent.uncertain, sent.unsent, sent.refused) == (["a"], [], [], {})
    with app.connection_for_read() as connection:
        message = connection.SimpleQueue("slow").get(timeout=60)
        message.ack()
    assert (message.body, message.content_type) == (b"\x00\xff", "application/x-pickle")
    assert message.properties["correlation_id"] == "a"


def test_each_message_has_a_delivery_tag_of_its_own(app):
    for _ in range(2):
        with open_publisher(app) as publisher:
            publisher.send([letter("a"), letter("b")])
    with app.connection_for_read() as connection:
        queue = connection.SimpleQueue("celery")
        tags = {queue.get_nowait().properties["delivery_tag"] for _ in range(4)}
    assert len(tags) == 4


def test_a_broker_that_is_away_is_one_line_with_the_next_step():
    app = Celery("unit", broker="redis://127.0.0.1:1", set_as_current=False)
    with (
        pytest.raises(
            RedriveError, match=r"nothing was sent\. Check broker_url.*dlq doctor"
        ) as caught,
        open_publisher(app),
    ):
        pass
    assert "\n" not in str(caught.value)


class Channel:
    """An AMQP channel whose broker answers as the test says."""

    def __init__(self, answer, fail_at=None):
        self.events = {"basic_ack": set(), "basic_nack": set(), "basic_return": set()}
        self.answer, self.fail_at, self.published = answer, fail_at, []
        self.connection = SimpleNamespace(
            drain_events=self.drain, transport=SimpleNamespace(write=self.write), bytes_sent=0
        )

    def confirm_select(self):
        pass

    def write(self, frames):
        self.published += frames.decode().split()
        if self.fail_at is not None and len(self.published) > self.fail_at:
            raise ConnectionResetError("gone")

    def frames(self, made):
        if made.task_id == "hopeless":
            raise TypeError("no header")
        return f"{made.task_id} ".encode()

    def drain(self, timeout):
        if timeout == 0:
            raise TimeoutError
        self.answer(self)

    def fire(self, event, *args):
        for callback in self.events[event]:
            callback(*args)


@pytest.fixture
def confirming(monkeypatch):
    monkeypatch.setattr(amqp, "Producer", lambda *a, **k: None)

    def make(answer, **options):
        channel = Channel(answer, **options)
        monkeypatch.setattr(amqp, "FrameEncoder", lambda _producer: channel)
        return ConfirmingPublisher(channel)

    return make


LETTERS = [letter(name) for name in "abcd"]


def outcome(sent):
    return sorted(sent.confirmed), sorted(sent.refused), sent.unsent, sent.uncertain


def test_one_confirmation_may_stand_for_many(confirming):
    publisher = confirming(lambda channel: channel.fire("basic_ack", 4, True))
    assert outcome(publisher.send(LETTERS)) == (["a", "b", "c", "d"], [], [], [])
    publisher = confirming(
        lambda channel: [channel.fire("basic_ack", tag, False) for tag in (2, 1, 4, 3)]
    )
    assert outcome(publisher.send(LETTERS))[0] == ["a", "b", "c", "d"]


def test_a_confirmation_of_many_says_nothing_of_those_that_follow(confirming):
    def answer(channel):
        channel.fire("basic_ack", 3, False)
        channel.fire("basic_ack", 2, True)
        channel.fire("basic_nack", 3, True)
        raise TimeoutError("no confirmation")

    sent = confirming(answer).send(LETTERS)
    assert outcome(sent) == (["a", "b", "c"], [], [], ["d"])


def test_a_second_batch_is_written_while_the_first_one_is_confirmed(confirming):
    def answer(channel):
        returned = SimpleNamespace(properties={"application_headers": {"id": "c"}})
        channel.fire("basic_return", None, "", "slow", returned)
        channel.fire("basic_nack", 2, False)
        channel.fire("basic_ack", 3, True)
        channel.answer = lambda channel: channel.fire("basic_ack", 4, False)

    publisher = confirming(answer)
    first, second = publisher.begin(LETTERS[:2]), publisher.begin(LETTERS[2:])
    assert publisher._channel.published == ["a", "b", "c", "d"]
    assert outcome(first()) == (["a"], ["b"], [], [])
    assert outcome(second()) == (["d"], ["c"], [], [])


def test_after_a_failure_nothing_more_is_written(confirming):
    publisher = confirming(lambda channel: channel.fire("basic_ack", 1, False), fail_at=1)
    first, second = publisher.begin(LETTERS[:1]), publisher.begin(LETTERS[1:2])
    third = publisher.begin(LETTERS[2:])
    assert publisher._channel.published == ["a", "b"]
    assert outcome(first()) == (["a"], [], [], [])
    assert outcome(second()) == ([], [], [], ["b"])
    last = third()
    assert outcome(last) == ([], [], ["c", "d"], [])
    assert "gone" in last.error


def test_where_the_wait_for_one_batch_has_failed_the_next_one_is_not_waited_for(confirming):
    asked = []

    def answer(channel):
        asked.append(1)
        raise ConnectionResetError("no exchange")

    publisher = confirming(answer)
    first, second = publisher.begin(LETTERS[:2]), publisher.begin(LETTERS[2:])
    assert "no exchange" in first().error
    assert outcome(second()) == ([], [], [], ["c", "d"])
    assert len(asked) == 1


def test_a_second_batch_counts_on(confirming):
    publisher = confirming(lambda channel: channel.fire("basic_ack", len(channel.published), True))
    assert outcome(publisher.send(LETTERS[:2]))[0] == ["a", "b"]
    assert outcome(publisher.send(LETTERS[2:]))[0] == ["c", "d"]


def test_a_returned_message_is_refused_though_it_is_confirmed(confirming):
    def answer(channel):
        returned = SimpleNamespace(properties={"application_headers": {"id": "b"}})
        channel.fire("basic_return", None, "", "slow", returned)
        channel.fire("basic_ack", 4, True)

    sent = confirming(answer).send(LETTERS)
    assert outcome(sent) == (["a", "c", "d"], ["b"], [], [])
    assert "no queue takes it" in sent.refused["b"]


def test_a_returned_message_without_an_id_is_refused_under_its_letters(confirming):
    def answer(channel):
        headers = {"id": "x" * 300, LETTER_HEADER: "b"}
        returned = SimpleNamespace(properties={"application_headers": headers})
        channel.fire("basic_return", None, "", "slow", returned)
        channel.fire("basic_ack", 4, True)

    assert outcome(confirming(answer).send(LETTERS)) == (["a", "c", "d"], ["b"], [], [])


def test_a_nack_is_a_refusal(confirming):
    def answer(channel):
        channel.fire("basic_nack", 1, False)
        channel.fire("basic_ack", 4, True)

    assert outcome(confirming(answer).send(LETTERS)) == (["b", "c", "d"], ["a"], [], [])


def test_a_connection_lost_half_way_tells_sent_from_unsent(confirming, monkeypatch):
    monkeypatch.setattr(amqp, "PORTION", 1)
    sent = confirming(lambda channel: None, fail_at=2).send(LETTERS)
    assert outcome(sent) == ([], [], ["d"], ["a", "b", "c"])
    assert "gone" in sent.error


def test_a_message_that_cannot_be_written_is_refused_alone(confirming):
    def answer(channel):
        assert channel.published == ["a", "b"]
        channel.fire("basic_ack", 2, True)

    sent = confirming(answer).send([letter("a"), letter("hopeless"), letter("b")])
    assert outcome(sent) == (["a", "b"], ["hopeless"], [], [])
    assert "cannot be encoded" in sent.refused["hopeless"]


def test_answers_are_read_while_more_is_written(confirming, monkeypatch):
    monkeypatch.setattr(amqp, "PORTION", 1)
    publisher = confirming(lambda channel: pytest.fail("all is confirmed already"))
    channel, asked = publisher._channel, []

    def drain(timeout):
        asked.append(timeout)
        if len(asked) % 2 == 0:
            raise TimeoutError
        channel.fire("basic_ack", len(channel.published), True)

    channel.connection.drain_events = drain
    write = channel.connection.transport.write

    def write_last(frames):
        write(frames)
        if len(channel.published) == len(LETTERS):
            channel.fire("basic_ack", len(LETTERS), True)

    channel.connection.transport.write = write_last
    assert outcome(publisher.send(LETTERS)) == (["a", "b", "c", "d"], [], [], [])
    assert set(asked) == {0}


def test_a_confirmation_that_never_comes_leaves_uncertain(confirming):
    def answer(channel):
        raise TimeoutError("no confirmation")

    sent = confirming(answer).send(LETTERS)
    assert outcome(sent) == ([], [], [], ["a", "b", "c", "d"])


def test_without_confirmations_the_write_itself_counts(monkeypatch):
    def publish(*, headers, **_others):
        if headers["id"] == "c":
            raise ConnectionResetError("gone")

    monkeypatch.setattr(publisher, "Producer", lambda *a, **k: SimpleNamespace(publish=publish))
    assert outcome(BatchingPublisher(None).send(LETTERS)) == (["a", "b"], [], ["d"], ["c"])


@pytest.mark.parametrize(("seconds", "confirmed"), [(20.0, 4), (31.0, 0)])
def test_a_broker_is_waited_for_as_long_as_it_goes_on(confirming, monkeypatch, seconds, confirmed):
    """Each answer takes so many seconds, and confirms one message."""
    publisher = confirming(lambda channel: None)
    channel, tags, passed = publisher._channel, iter(range(1, 5)), [0.0]
    monkeypatch.setattr(amqp, "time", SimpleNamespace(monotonic=lambda: passed[0]))

    def drain(timeout):
        passed[0] += min(seconds, timeout)
        if timeout < seconds:
            raise TimeoutError("nothing came")
        channel.fire("basic_ack", next(tags), False)

    channel.connection.drain_events = drain
    sent = publisher.send(LETTERS)
    assert (len(sent.confirmed), len(sent.uncertain)) == (confirmed, 4 - confirmed)


class Refusing(Channel):
    """Closes for messages to an exchange that is gone, as RabbitMQ does, and confirms all others."""

    def __init__(self):
        super().__init__(None)
        self.tags, self.selected, self.is_open = [], 0, True

    def confirm_select(self):
        self.selected += 1

    def frames(self, made):
        return f"{made.task_id}/{made.envelope.exchange} ".encode()

    def drain(self, timeout):
        if timeout == 0:
            raise TimeoutError
        new, self.published = self.published, []
        for one in new:
            self.tags.append(one)
            if one.endswith("/gone"):
                self.tags = []
                raise NotFound("no exchange 'gone'", (60, 40))
            self.fire("basic_ack", len(self.tags), False)


def routed(name, exchange, **fields):
    sent = envelope(name, queue="", exchange=exchange, routing_key="k", **fields)
    return letter(name, envelope=sent)


def test_one_that_the_broker_refuses_by_closing_the_channel_is_named_and_the_others_are_sent(
    monkeypatch,
):
    channel = Refusing()
    monkeypatch.setattr(amqp, "Producer", lambda *a, **k: None)
    monkeypatch.setattr(amqp, "FrameEncoder", lambda _producer: channel)
    publisher = ConfirmingPublisher(channel)
    first = publisher.begin([letter("a"), routed("b", "gone"), letter("c")])
    second = publisher.begin([routed("d", "here"), letter("e"), routed("f", "gone")])
    assert outcome(first()) == (["a", "c"], ["b"], [], [])
    last = second()
    assert outcome(last) == (["d", "e"], ["f"], [], [])
    assert last.error is None
    assert last.refused["f"].startswith("the broker refuses it (NotFound: ")
    assert "no exchange 'gone'); correct that, send it elsewhere" in last.refused["f"]
    assert channel.selected == 3


@pytest.mark.parametrize(
    ("made", "alone"),
    [
        ([letter("a"), letter("b")], 0),
        ([routed("a", "here"), routed("b", "here"), routed("c", "there")], 2),
        ([letter("a", envelope=envelope("a", properties={"user_id": "shop"}))], 1),
        ([letter("a", envelope=envelope("a", headers={"id": "a", "task": "t", "CC": "x"}))], 1),
        ([letter("a", envelope=envelope("a", body=b"x" * (1 << 20)))], 1),
    ],
)
def test_only_what_the_broker_may_refuse_is_sent_alone(monkeypatch, made, alone):
    channel, writes = Refusing(), []
    monkeypatch.setattr(amqp, "Producer", lambda *a, **k: None)
    monkeypatch.setattr(amqp, "FrameEncoder", lambda _producer: channel)
    write = channel.connection.transport.write
    channel.connection.transport.write = lambda frames: [writes.append(frames), write(frames)]
    sent = ConfirmingPublisher(channel).send(made)
    assert sorted(sent.confirmed) == [one.task_id for one in made]
    assert len(writes) == alone + (alone < len(made))


def test_without_confirmations_one_that_cannot_be_encoded_is_refused_alone(monkeypatch):
    def publish(*, headers, **_others):
        if headers["id"] == "b":
            raise TypeError("a set")

    monkeypatch.setattr(publisher, "Producer", lambda *a, **k: SimpleNamespace(publish=publish))
    assert outcome(BatchingPublisher(None).send(LETTERS)) == (["a", "c", "d"], ["b"], [], [])
