"""Chords on a result backend without counts, an SQLite file, with the workers left out."""

from datetime import timedelta

import celery
import pytest
from celery import Celery, chord, signature
from support.factories import T0

from celery_dlq.model.headers import chord_key
from celery_dlq.redrive.letter.chords import ChordMember, PolledChords
from celery_dlq.worker.builtin_tasks import keep_chord_headers

UNLOCK = "celery.chord_unlock"


@pytest.fixture
def app(tmp_path):
    app = Celery(
        "unit", broker="memory://", backend=f"db+sqlite:///{tmp_path}/results.sqlite3",
        set_as_current=False,
    )  # fmt: skip
    app.task(_task, name="t", shared=False)
    keep_chord_headers(app)
    yield app
    app.close()


def _task(*args): ...


@pytest.fixture
def sent(app):
    """The names of the tasks that wait in the broker, which are taken away."""

    def sent():
        names = []
        with app.connection_for_read() as connection:
            queue = connection.SimpleQueue("celery")
            while queue.qsize():
                message = queue.get(timeout=1)
                message.ack()
                names.append(message.headers["task"])
            queue.close()
        return names

    return sent


@pytest.fixture
def made(app, sent):
    """A chord of two members, whose messages are forgotten."""
    t = [signature("t", args=(name,), app=app, task_id=name) for name in ("a", "b", "body")]
    result = chord(t[:2], app=app)(t[2])
    assert UNLOCK in sent()
    return result


def part(made, name="b"):
    body = {"task": "t", "args": [], "kwargs": {}, "options": {"task_id": made.id}}
    return ChordMember(made.parent.id, name, 1, body)


def end(app, task_id, error=None):
    state = "FAILURE" if error else "SUCCESS"
    app.backend.store_result(task_id, error or 1, state)


def unlock(app, made):
    """What ``chord_unlock`` does when all members have reported."""
    members = [member.as_tuple() for member in made.parent.results]
    app.tasks[UNLOCK].run(made.parent.id, part(made).body, result=members)


def kept(app, made):
    return app.backend.restore_group(chord_key(made.parent.id), cache=False)


def state(app, task_id):
    return app.backend.get_task_meta(task_id, cache=False)["status"]


def why_not(app, made, after=timedelta(minutes=1)):
    return PolledChords(app).why_not_whole(part(made), T0, T0 + after)


def test_the_members_of_a_chord_that_fails_are_kept(app, made):
    end(app, "a")
    end(app, "b", ValueError("no"))
    unlock(app, made)
    assert [member.id for member in kept(app, made).results] == ["a", "b"]
    assert state(app, made.id) == "FAILURE"
    assert why_not(app, made) is None


def test_members_of_a_chord_that_succeeds_are_not_kept(app, made, sent):
    end(app, "a")
    end(app, "b")
    unlock(app, made)
    assert kept(app, made) is None
    assert sent() == ["t"]


def test_a_backend_that_keeps_nothing_changes_nothing(app, made, monkeypatch, caplog):
    def refuse(*_):
        raise ConnectionError("gone")

    monkeypatch.setattr(app.backend, "save_group", refuse)
    end(app, "a")
    end(app, "b", ValueError("no"))
    unlock(app, made)
    assert state(app, made.id) == "FAILURE"
    assert "cannot be completed by a redrive" in caplog.text
    assert "no worker has kept which members it had" in why_not(app, made)


def test_another_task_in_its_place_is_left_alone(app):
    def other(group_id, callback): ...

    app.tasks[UNLOCK].run = other
    keep_chord_headers(app)
    assert app.tasks[UNLOCK].run is other


def test_a_failed_chord_is_polled_again_once(app, made, sent):
    end(app, "a")
    end(app, "b", ValueError("no"))
    unlock(app, made)
    for _ in range(2):
        PolledChords(app).reopen(made.parent.id, [part(made)])
    assert sent() == [UNLOCK]
    assert [state(app, task_id) for task_id in ("a", "b", made.id)] == [
        "SUCCESS", "PENDING", "PENDING",
    ]  # fmt: skip
    assert kept(app, made) is None
    assert why_not(app, made) is None
    end(app, "b")
    unlock(app, made)
    assert sent() == ["t"]


def test_a_chord_that_is_still_polled_only_waits_longer(app, made, sent):
    end(app, "b", ValueError("no"))
    assert why_not(app, made) is None
    PolledChords(app).reopen(made.parent.id, [part(made)])
    assert sent() == []
    assert state(app, "b") == "PENDING"


def test_a_success_is_not_forgotten(app, made):
    end(app, "b")
    PolledChords(app).reopen(made.parent.id, [part(made)])
    assert state(app, "b") == "SUCCESS"


def test_a_chord_that_the_backend_has_forgotten(app, made):
    assert why_not(app, made, timedelta(days=1)) is None
    assert "has forgotten its chord" in why_not(app, made, timedelta(days=1, seconds=1))


def test_an_expired_chord_that_was_not_cleaned_up(app, made):
    end(app, "b", ValueError("no"))
    assert why_not(app, made, timedelta(days=3)) is None


@pytest.mark.skipif(celery.VERSION < (5, 6), reason="Celery 5.5 does not revoke it")
def test_a_revoked_body(app, made):
    end(app, "a")
    end(app, "b", ValueError("no"))
    unlock(app, made)
    group = ChordMember(made.parent.id, "b", 1, {**part(made).body, "subtask_type": "group"})
    assert "revoked" in PolledChords(app).why_not_whole(group, T0, T0)
