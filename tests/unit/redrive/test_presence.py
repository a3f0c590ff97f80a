"""Which messages a broker holds, if it can only count them. tests/integration/redrive/test_presence.py asks
Redis."""

import pytest
from celery import Celery

from celery_dlq.errors import RedriveError
from celery_dlq.redrive.presence import Look, Presence, open_presence


@pytest.fixture
def app():
    return Celery("unit", broker="memory://", set_as_current=False)


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
