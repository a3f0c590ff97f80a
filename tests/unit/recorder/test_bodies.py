"""Bodies that have returned in the processes of a pool."""

from __future__ import annotations

import os

import pytest

from celery_dlq.recorder import bodies
from celery_dlq.recorder.bodies import has_returned, remove_returned, returned_in


@pytest.fixture
def shared(tmp_path, monkeypatch):
    monkeypatch.setattr(bodies, "_shared", None)
    bodies.share(tmp_path)
    yield tmp_path
    bodies.unshare(tmp_path / "another")
    assert returned_in(tmp_path) is not None
    assert bodies._shared is not None
    bodies.unshare(tmp_path)
    assert bodies._shared is None
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def in_child(monkeypatch):
    """Run something in a process with this number in its pool; returns the id of the process."""

    def in_child(index, *work):
        child = os.fork()
        if child == 0:
            process = type("Process", (), {"index": index})
            monkeypatch.setattr(bodies, "current_process", process)
            for one in work:
                one()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        return child

    return in_child


def noting(task_id):
    return lambda: bodies.note(task_id)


def test_a_body_that_has_returned_is_known_until_the_next_one_begins(shared, in_child):
    first = in_child(0, bodies.begin, noting("a"))
    second = in_child(1, noting("b"), bodies.begin)
    third = in_child(2, noting("c"), noting("é"))
    assert has_returned(first, "a")
    assert not has_returned(first, "b")
    assert not has_returned(second, "b")
    assert returned_in(shared) == {(first, "a"), (third, "é")}
    fourth = in_child(0, bodies.begin)
    assert not has_returned(first, "a")
    assert not has_returned(fourth, "a")
    assert not has_returned(None, "a")


def test_the_id_of_a_hostile_message_may_be_a_number(shared, in_child):
    pid = in_child(0, bodies.begin, noting(7))
    assert has_returned(pid, 7)


def test_what_has_no_slot_is_not_noted(shared, in_child):
    in_child(512, noting("a"))
    in_child(1, noting("x" * 121))
    in_child(None, noting("b"))
    noting("c")()
    assert returned_in(shared) == frozenset()


def test_a_worker_without_the_file_notes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(bodies, "_shared", None)
    bodies.begin()
    bodies.note("a")
    assert not has_returned(os.getpid(), "a")
    assert returned_in(tmp_path) == frozenset()
    remove_returned(tmp_path)
