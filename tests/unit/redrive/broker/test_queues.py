"""Whether queues have room, and which messages a broker holds if it can only count them.
tests/integration/redrive/test_presence.py asks Redis."""

import pytest
from celery import Celery
from support.factories import envelope, letter

from celery_dlq.errors import RedriveError
from celery_dlq.redrive.broker.queues import Depths, Look, Presence, open_depths, open_presence


@pytest.fixture
def app():
    return Celery("unit", broker="memory://", set_as_current=False)


@pytest.fixture
def put(app):
    def put(queue, number):
        with app.connection_for_write() as connection, connection.SimpleQueue(queue) as simple:
            for _ in range(number):
                simple.put({})

    return put


def letters(*queues):
    return [
        letter(f"{queue}{number}", envelope=envelope(queue=queue))
        for number, queue in enumerate(queues)
    ]


def ids(found):
    return [one.task_id for one in found]


def test_without_a_limit_no_broker_is_asked():
    depths = Depths(None, None)
    fit, rest = depths.part(letters("a", "b"))
    assert (ids(fit), rest, depths.full()) == (["a0", "b1"], [], [])
    assert not depths.are_limited


def test_letters_without_room_in_their_queue_wait(app, put):
    put("a", 3)
    with open_depths(app, 5) as depths:
        fit, rest = depths.part(letters("a", "a", "a", "b", "a"))
        assert (ids(fit), ids(rest)) == (["a0", "a1", "b3"], ["a2", "a4"])
        put("a", 2)
        assert depths.full() == ["a"]


def test_a_drained_queue_takes_more(app, put):
    put("a", 9)
    with open_depths(app, 5) as depths:
        depths.part(letters("a"))
        assert depths.full() == ["a"]
        with app.connection_for_read() as connection, connection.SimpleQueue("a") as simple:
            simple.clear()
        assert depths.full() == []


def test_an_exchange_without_a_known_queue_is_not_limited(app):
    with open_depths(app, 1) as depths:
        fit, rest = depths.part(letters("", "", ""))
        assert (len(fit), rest) == (3, [])


def test_an_unreachable_broker_is_an_error(no_pauses):
    app = Celery("unit", broker="redis://127.0.0.1:1", set_as_current=False)
    with (
        open_depths(app, 1) as depths,
        pytest.raises(RedriveError, match="how many messages a holds"),
    ):
        depths.part(letters("a"))


def look(app, queue):
    with open_presence(app) as presence:
        return presence.look(queue)


def test_an_empty_queue_holds_nothing_but_workers_may(app):
    with app.connection_for_write() as connection, connection.SimpleQueue("empty"):
        assert look(app, "empty") == Look(frozenset(), sees_workers=False)


def test_a_queue_with_messages_may_hold_any(app):
    with app.connection_for_write() as connection, connection.SimpleQueue("full") as simple:
        simple.put({})
        assert look(app, "full") is None
        simple.clear()


@pytest.mark.parametrize("queue", ["no-such-queue", ""])
def test_of_an_unknown_queue_nothing_is_known(app, queue):
    assert look(app, queue) is None


def test_a_broker_that_does_not_answer_is_an_error(app, monkeypatch):
    with app.connection_for_write() as connection:

        def gone():
            raise connection.connection_errors[0]("gone")

        monkeypatch.setattr(connection, "channel", gone)
        with pytest.raises(RedriveError, match="which messages slow holds"):
            Presence(connection).look("slow")
