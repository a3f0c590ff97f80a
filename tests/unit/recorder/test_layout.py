from __future__ import annotations

import random

import pytest

from celery_dlq.recorder import segment as layout
from celery_dlq.recorder.segment import FIRST, Mark, read


class Watched(bytearray):
    """A file whose bytes are copied after each single write."""

    def __init__(self, size):
        super().__init__(size)
        self.copies = []

    def __setitem__(self, place, value):
        super().__setitem__(place, value)
        self.copies.append(bytes(self))


def bodies(data):
    return {entry.body for entry in read(data).entries}


def test_a_process_may_be_killed_after_any_write():
    """An accepted message is there until its end begins, and nothing is damaged."""
    chance = random.Random(18)
    file = Watched(4_096)
    layout.write_header(file)
    following, running = FIRST, {}
    for number in range(40):
        body = b"%d-" % number * chance.randrange(1, 9)
        before, file.copies = set(running), []
        if running and chance.random() < 0.4:
            ended = chance.choice([*running])
            layout.wipe_entry(file, *running.pop(ended))
            allowed = [before, before - {ended}]
        elif running and chance.random() < 0.3:
            mark = chance.choice([*Mark])
            layout.mark_entry(file, running[chance.choice([*running])][0], mark)
            allowed = [before]
        else:
            start = following
            following = layout.write_entry(file, start, b"{}", body)
            running[body] = start, following
            allowed = [before, before | {body}]
        for copy in file.copies:
            assert bodies(copy) in allowed
            assert not read(copy).is_damaged
        assert bodies(bytes(file)) == set(running)


def test_an_entry_comes_back_with_its_facts_and_marks():
    file = bytearray(1_024)
    layout.write_header(file)
    layout.write_entry(file, FIRST, b"facts", b"body")
    [found] = read(bytes(file)).entries
    assert (found.start, found.marks, found.facts, found.body) == (
        FIRST,
        Mark(0),
        b"facts",
        b"body",
    )
    layout.mark_entry(file, FIRST, Mark.SUCCEEDED)
    assert read(bytes(file)).entries[0].marks == Mark.SUCCEEDED
    assert not read(bytes(file)).entries[0].is_acknowledged
    layout.mark_entry(file, FIRST, Mark.ACKNOWLEDGED)
    assert read(bytes(file)).entries[0].marks == Mark.SUCCEEDED | Mark.ACKNOWLEDGED
    assert read(bytes(file)).entries[0].is_acknowledged


def test_a_file_that_is_used_again_forgets_what_was_in_it():
    file = bytearray(1_024)
    layout.write_header(file)
    layout.write_entry(file, FIRST, b"facts", b"body" * 50)
    layout.clear(file)
    assert read(bytes(file)) == layout.Contents((), is_damaged=False)


def test_an_entry_without_room_is_not_written():
    file = bytearray(layout.size_for(b"facts", b"body"))
    layout.write_header(file)
    assert layout.write_entry(file, FIRST, b"facts", b"body" * 50) is None
    assert layout.write_entry(file, FIRST, b"facts", b"body") is not None
    assert [entry.body for entry in read(bytes(file)).entries] == [b"body"]


def test_a_flipped_bit_is_never_taken_for_a_message():
    file = bytearray(512)
    layout.write_header(file)
    following = layout.write_entry(file, FIRST, b"facts", b"body of one")
    end = layout.write_entry(file, following, b"facts", b"body of two")
    for place in range(end):
        for bit in range(8):
            broken = bytearray(file)
            broken[place] ^= 1 << bit
            found = read(bytes(broken))
            assert {entry.body for entry in found.entries} <= {b"body of one", b"body of two"}
            assert all(entry.facts == b"facts" for entry in found.entries)


@pytest.mark.parametrize("size", [1, 10, FIRST - 1, FIRST + 3, FIRST + 20])
def test_a_file_that_was_cut_is_damaged(size):
    file = bytearray(512)
    layout.write_header(file)
    layout.write_entry(file, FIRST, b"facts", b"body")
    found = read(bytes(file[:size]))
    assert found.entries == ()
    assert found.is_damaged


def test_garbage_is_damaged_and_an_empty_file_is_not():
    assert read(b"garbage" * 100).is_damaged
    assert not read(bytes(200)).is_damaged
