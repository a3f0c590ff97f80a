"""Releases on a SQLite store and a publisher that fails as told."""

from datetime import datetime, timezone

import pytest
from support.factories import envelope, parking

from celery_dlq.model.headers import RELEASE_HEADER
from celery_dlq.model.states import State
from celery_dlq.redrive.broker.message import Sent, headers_to_send
from celery_dlq.store.base import Filter
from celery_dlq.store.tenure import Tenure
from celery_dlq.upkeep import parked as module
from celery_dlq.upkeep.parked import Releaser

PARKED = Filter(states=frozenset({State.PARKED}))


class FakePublisher:
    """Confirms everything, unless the test says otherwise."""

    def __init__(self):
        self.sent, self.answer = [], None

    def __call__(self, app):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def send(self, letters):
        self.sent += letters
        return self.answer or Sent(confirmed=[one.task_id for one in letters])


@pytest.fixture
def store(own_store):
    return own_store


@pytest.fixture
def publisher(monkeypatch):
    fake = FakePublisher()
    monkeypatch.setattr(module, "open_publisher", fake)
    return fake


@pytest.fixture
def tenure(store):
    return Tenure(lambda: store, "parked.here", "me")


@pytest.fixture
def pauses():
    """The seconds between batches."""
    return []


@pytest.fixture
def release(store, tenure, pauses):
    """One look at what is due; batches of two."""
    releaser = Releaser(None, lambda: store, "here", batch_size=2, pause=pauses.append)
    return lambda: releaser.run(tenure.prolong(), tenure.prolong)


def park(store, *letters):
    store.parked.park(letters, now=datetime.now(timezone.utc))


def test_the_rate_is_bounded(release, store, publisher, pauses):
    park(store, *(parking(name, -1) for name in "abc"))
    release()
    assert len(publisher.sent) == 3
    assert pauses == [2 / module.RATE, 1 / module.RATE]


def test_nothing_to_do_connects_to_nothing(release, store, monkeypatch):
    monkeypatch.setattr(module, "open_publisher", None)
    assert release() is None
    park(store, parking("a", 90))
    assert 60 < release() <= 90


def test_all_that_is_due_is_sent_batch_by_batch_and_marked(release, store, publisher):
    park(store, *(parking(name, -1) for name in "abcde"), parking("later", 90))

    assert release() > 60

    assert sorted(one.task_id for one in publisher.sent) == [f"here.{name}" for name in "abcde"]
    assert [one.task_id for one in store.letters.find(PARKED).letters] == ["later"]


def test_the_message_is_sent_as_it_was_kept_and_marked_as_this_copy(release, store, publisher):
    headers = {"id": "a", "retries": 3, "eta": None, "expires": "2030", "x-own": 1}
    kept = envelope("a", headers=headers, body=b"\x00\xff")
    park(store, parking("a", -1, envelope=kept))
    release()
    [sent] = publisher.sent
    assert headers_to_send(sent) == {**headers, RELEASE_HEADER: "here.a/1"}
    assert sent.envelope.body == kept.body


def test_unconfirmed_retries_are_held_and_repeated(release, store, publisher, monkeypatch):
    monkeypatch.setattr(module, "HOLD_S", 0.0)
    park(store, parking("a", -1))
    publisher.answer = Sent(uncertain=["here.a"], error="ConnectionResetError: gone")
    release()
    assert store.counts.letters(PARKED) == 1

    publisher.answer = None
    release()
    assert [one.envelope.headers[RELEASE_HEADER] for one in publisher.sent] == [
        "here.a/1", "here.a/2",
    ]  # fmt: skip
    assert store.counts.letters(PARKED) == 0


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (Sent(unsent=["here.a"], error="ConnectionResetError: gone"), module.UNSENT_S),
        (Sent(refused={"here.a": "no queue takes it any more"}), module.REFUSED_S),
        # A failing broker may have kept it.
        (Sent(refused={"here.a": "it failed"}, nacked={"here.a"}), module.HOLD_S),
    ],
)
def test_retries_that_could_not_be_sent_stay_and_are_tried_later(
    release, store, publisher, caplog, answer, seconds
):
    park(store, parking("a", -1))
    publisher.answer = answer

    assert seconds - 5 < release() <= seconds
    assert store.counts.letters(PARKED) == 1
    assert "gone" in caplog.text or "a cannot be released: " in caplog.text


def test_who_has_lost_the_lease_sends_no_further_batch(release, store, publisher, tenure):
    park(store, *(parking(name, -1) for name in "abcd"))
    rival = Tenure(lambda: store, "parked.here", "rival")

    def lose_it(letters):
        tenure.end()
        assert rival.prolong()
        return Sent(confirmed=[one.task_id for one in letters])

    publisher.send = lose_it
    release()
    assert store.counts.letters(PARKED) == 2


def test_a_tenure_that_ends_lets_the_next_one_begin(store, tenure):
    rival = Tenure(lambda: store, "parked.here", "rival")
    assert tenure.prolong()
    assert rival.prolong() is None
    tenure.end()
    tenure.end()
    assert rival.prolong()
