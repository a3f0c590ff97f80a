"""When a result backend is asked about the chords of letters."""

import json

import pytest
from celery import Celery
from celery.backends.database import DatabaseBackend
from support.factories import T0, bomb, envelope, letter

from celery_dlq.redrive.chords import reopen_chords, why_not_whole
from celery_dlq.redrive.payload import accepted_by, read_payload
from celery_dlq.unpack import READ_LIMIT

BODY = {"task": "body", "options": {"task_id": "body"}}


class Untouchable:
    """A result backend that must not be asked."""

    def __getattr__(self, name):
        raise AssertionError(f"{name} was asked for")


def member(**embed):
    body = json.dumps([[], {}, {"chord": BODY, **embed}]).encode()
    headers = {"id": "a", "task": "t", "group": "g", "group_index": 0}
    return letter("a", canvas="chord", envelope=envelope("a", body=body, headers=headers))


def payload_of(made, app):
    return read_payload(made.envelope, accepted_by(app))


def test_letters_outside_chords_touch_no_backend():
    app = Celery("unit", set_as_current=False)
    app._local.backend = Untouchable()
    plain = [letter("a"), letter("b", canvas="chain", group_id="g"), letter("c", canvas="chord")]
    reopen_chords(app, plain)
    assert [why_not_whole(app, made, payload_of(made, app), T0) for made in plain] == [None] * 3


@pytest.mark.parametrize("backend", ["cache+memory://", "rpc://", "disabled://"])
def test_where_no_member_can_be_counted_again(backend):
    app = Celery("unit", broker="memory://", backend=backend, set_as_current=False)
    made = member()
    assert "cannot count again" in why_not_whole(app, made, payload_of(made, app), T0)
    before = dict(vars(app.backend))
    reopen_chords(app, [made])
    assert dict(vars(app.backend)) == before


def test_a_database_that_counts_by_itself(tmp_path):
    class Counting(DatabaseBackend):
        """As that of django-celery-results."""

        def apply_chord(self, header_result_args, body, **kwargs): ...

    app = Celery("unit", broker="memory://", set_as_current=False)
    app._local.backend = Counting(app=app, url=f"sqlite:///{tmp_path}/results.sqlite3")
    made = member()
    assert "cannot count again" in why_not_whole(app, made, payload_of(made, app), T0)


def test_a_letter_that_cannot_be_read_keeps_no_chord_from_being_counted():
    app = Celery("unit", set_as_current=False)
    app._local.backend = Untouchable()
    unreadable = bomb(READ_LIMIT, canvas="chain")
    reopen_chords(app, [unreadable])
    with pytest.raises(AssertionError, match="was asked for"):
        reopen_chords(app, [unreadable, member()])
