"""The tags that a process notes, and how another one reads them."""

from __future__ import annotations

import errno
import os

import pytest

from celery_dlq.recorder.tags import ASKED, Noted, Tags, forget_noted, has_noted, noted_in


class Clock:
    now = 1_000.0

    def __call__(self):
        self.now += 1
        return self.now


@pytest.fixture
def tags(tmp_path):
    tags = Tags(tmp_path, "here", now=Clock())
    yield tags
    tags.remove()


def noted(tmp_path, broker="here"):
    return [one.tag for one in noted_in(tmp_path, broker)]


def test_messages_are_read_in_the_order_in_which_they_came(tags, tmp_path):
    assert not has_noted(tmp_path)
    for tag in ("c", "a", "b"):
        tags.add(tag)
    tags.discard("a")
    assert noted_in(tmp_path, "here") == [
        Noted("c", 1_001.0, 1_001.0),
        Noted("b", 1_003.0, 1_003.0),
    ]
    assert len(tags) == 2
    assert has_noted(tmp_path)


def test_a_slot_is_used_again(tags, tmp_path):
    for number in range(5_000):
        tags.add(f"tag {number}")
        tags.discard(f"tag {number}")
    tags.add("last")
    assert noted(tmp_path) == ["last"]
    assert len(list(tmp_path.iterdir())) == 1


def test_any_number_of_messages_is_noted(tags, tmp_path):
    names = [f"tag {number}" for number in range(3_000)]
    for name in names:
        tags.add(name)
    assert noted(tmp_path) == names
    for name in names:
        tags.discard(name)
    assert noted(tmp_path) == []


def test_a_renewal_is_noted(tags, tmp_path):
    tags.add("a")
    tags.renewed(["a", "unknown"], 7_777.0)
    assert noted_in(tmp_path, "here") == [Noted("a", 1_001.0, 7_777.0)]


def test_a_tag_is_noted_once_and_one_that_is_too_long_is_not(tags, tmp_path):
    for tag in ("a", "a", "x" * 41, "é" * 20):
        tags.add(tag)
    tags.discard("unknown")
    assert noted(tmp_path) == ["a", "é" * 20]


def test_a_process_that_waits_for_a_message_has_none(tags, tmp_path):
    tags.add(ASKED, f"{ASKED}17.5")
    assert (len(tags), noted(tmp_path)) == (0, ["?17.5"])
    tags.add("a")
    assert len(tags) == 1


def test_nothing_is_noted_after_the_end(tags, tmp_path, caplog):
    tags.remove()
    tags.add("a")
    assert (len(tags), [*tmp_path.iterdir()], caplog.text) == (0, [], "")


def test_brokers_are_kept_apart(tags, tmp_path):
    tags.add("a")
    assert noted(tmp_path, "there") == []
    forget_noted(tmp_path, "there")
    assert noted(tmp_path) == ["a"]
    forget_noted(tmp_path, "here")
    assert not has_noted(tmp_path)


def test_a_file_that_is_cut_off_is_read_as_far_as_it_goes(tags, tmp_path):
    for tag in ("a", "b"):
        tags.add(tag)
    [path] = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    assert noted(tmp_path) == ["a"]


def test_a_process_of_the_pool_changes_nothing(tags, tmp_path):
    tags.add("a")
    child = os.fork()
    if child == 0:
        tags.discard("a")
        os._exit(len(tags))
    assert os.waitpid(child, 0)[1] == 0
    assert noted(tmp_path) == ["a"]


def test_a_full_disk_is_logged_once_and_loses_no_message(tags, tmp_path, monkeypatch, caplog):
    def is_full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "posix_fallocate", is_full)
        tags.add("a")
        tags.add("b")
    assert (noted(tmp_path), len(tags), len(caplog.records)) == ([], 0, 1)
    assert "No space left on device" in caplog.text
    tags.discard("a")
    tags.add("c")
    assert noted(tmp_path) == ["c"]
