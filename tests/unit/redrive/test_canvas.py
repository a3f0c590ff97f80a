"""Without Redis counts there is nothing to do; with them, see tests/integration/test_redrive.py."""

from celery import Celery
from factories import letter

from celery_dlq.redrive.canvas import reopen_chords


class Untouchable:
    """A result backend that must not be asked."""

    def __getattr__(self, name):
        raise AssertionError(f"{name} was asked for")


def test_letters_outside_chords_touch_no_backend():
    app = Celery("unit", set_as_current=False)
    app._local.backend = Untouchable()
    reopen_chords(
        app, [letter("a"), letter("b", canvas="chain", group_id="g"), letter("c", canvas="chord")]
    )


def test_a_backend_that_keeps_no_counts_is_left_alone():
    app = Celery("unit", backend="cache+memory://", set_as_current=False)
    before = dict(vars(app.backend))
    reopen_chords(app, [letter("a", canvas="chord", group_id="g")])
    assert dict(vars(app.backend)) == before
