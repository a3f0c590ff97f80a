"""When a result backend is asked about the chords of letters."""

import json

import pytest
from celery import Celery
from celery.backends.database import DatabaseBackend
from support.factories import T0, bomb, envelope, letter, opened

from celery_dlq.base.unpack import READ_LIMIT
from celery_dlq.model.operation import Orders
from celery_dlq.redrive.letter.checks import Checked, Checks
from celery_dlq.redrive.letter.chords import members_of, reopen_chords, why_not_whole

BODY = {"task": "body", "options": {"task_id": "body"}}


class Untouchable:
    """A result backend that must not be asked."""

    def __getattr__(self, name):
        raise AssertionError(f"{name} was asked for")


def untouchable():
    app = Celery("unit", broker="memory://", set_as_current=False)

    @app.task(name="shop.charge", shared=False)
    def charge(*args, **kwargs): ...

    app._local.backend = Untouchable()
    return app


def member(**embed):
    body = json.dumps([[], {}, {"chord": BODY, **embed}]).encode()
    headers = {"id": "a", "task": "t", "group": "g", "group_index": 0}
    return letter("a", canvas="chord", envelope=envelope("a", body=body, headers=headers))


def members(app, *letters):
    return [one for made in letters for one in members_of(made, opened(app, made).payload)]


def test_letters_outside_chords_touch_no_backend():
    app = untouchable()
    plain = [letter("a"), letter("b", canvas="chain", group_id="g"), letter("c", canvas="chord")]
    checks = Checks(app, Orders())
    assert [checks.check(opened(app, made), T0) for made in plain] == [Checked()] * 3
    reopen_chords(app, members(app, *plain))


@pytest.mark.parametrize("backend", ["cache+memory://", "rpc://", "disabled://"])
def test_where_no_member_can_be_counted_again(backend):
    app = Celery("unit", broker="memory://", backend=backend, set_as_current=False)
    made = member()
    assert "cannot count again" in why_not_whole(app, members(app, made), T0, T0)
    before = dict(vars(app.backend))
    reopen_chords(app, members(app, made))
    assert dict(vars(app.backend)) == before


def test_a_database_that_counts_by_itself(tmp_path):
    class Counting(DatabaseBackend):
        """As that of django-celery-results."""

        def apply_chord(self, header_result_args, body, **kwargs): ...

    app = Celery("unit", broker="memory://", set_as_current=False)
    app._local.backend = Counting(app=app, url=f"sqlite:///{tmp_path}/results.sqlite3")
    made = member()
    assert "cannot count again" in why_not_whole(app, members(app, made), T0, T0)


def test_a_letter_that_cannot_be_read_is_sent_without_asking_for_a_chord():
    app = untouchable()
    unreadable = opened(app, bomb(READ_LIMIT, canvas="chain"))
    assert Checks(app, Orders()).check(unreadable, T0) == Checked()
    with pytest.raises(AssertionError, match="was asked for"):
        reopen_chords(app, members(app, member()))
