"""The recorder when its directory or its disk fails, and when it is used for long."""

from __future__ import annotations

import os
import shutil
import threading
from datetime import datetime, timezone
from types import SimpleNamespace

import pytest

from celery_dlq.recorder.files import look
from celery_dlq.recorder.flight import PAUSE_S, SEGMENT_SIZE, FlightRecorder
from celery_dlq.recorder.segment import Contents, Mark, Segment, mark_entry, read
from celery_dlq.recorder.tags import noted_in


class Clock:
    now = 1_000.0

    def __call__(self):
        return self.now


def message(body=b"[[1], {}, {}]", **changes):
    given = {
        "body": body, "headers": {"id": "one", "task": "shop.charge"}, "properties": {},
        "delivery_info": {"exchange": "", "routing_key": "celery"},
        "content_type": "application/json", "content_encoding": "utf-8", "errors": [],
        "acknowledged": False,
    }  # fmt: skip
    return SimpleNamespace(**{**given, **changes})


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def recorder(tmp_path, clock):
    return FlightRecorder(tmp_path / "recorder", worker="w@host", monotonic=clock)


def test_its_trouble_says_since_when_and_how_many_messages(tmp_path, clock):
    recorder = FlightRecorder(tmp_path / "recorder", worker="w@host", now=clock, monotonic=clock)
    assert recorder.trouble is None
    for began in (2_000.0, 3_000.0):
        (tmp_path / "recorder").touch()
        clock.now = began
        for _ in range(2):
            assert recorder.record(message(), "shop.charge", 7) is None
            clock.now += PAUSE_S
        since = datetime.fromtimestamp(began, timezone.utc)
        assert (recorder.trouble.since, recorder.trouble.messages) == (since, 2)
        assert "exists" in recorder.trouble.why
        (tmp_path / "recorder").unlink()
        recorder.record(message(), "shop.charge", 7).end()
        assert recorder.trouble is None
        recorder.close()
        recorder.directory.rmdir()
    assert recorder.uncovered == 4


def found(recorder):
    return sum(one.messages for one in look(recorder.directory))


def test_a_parent_that_is_a_file_is_logged_once_until_it_is_repaired(
    recorder, clock, tmp_path, caplog
):
    (tmp_path / "recorder").touch()
    for _ in range(3):
        assert recorder.record(message(), "shop.charge", 7) is None
        clock.now += PAUSE_S
    assert (recorder.uncovered, caplog.text.count("the flight recorder cannot write")) == (3, 1)
    (tmp_path / "recorder").unlink()
    recorder.record(message(), "shop.charge", 7).end()
    recorder.close()


def test_a_directory_that_was_removed_is_made_again(recorder, caplog):
    before = recorder.record(message(), "shop.charge", 7)
    shutil.rmtree(recorder.directory)
    recorder.beat()
    assert "was removed while its worker ran; 1 messages" in caplog.text
    after = recorder.record(message(), "shop.charge", 7)
    assert found(recorder) == 1
    before.end()
    assert found(recorder) == 1
    after.end()
    recorder.close()
    assert found(recorder) == 0


def test_its_loss_is_noticed_without_a_beat_when_a_file_is_needed(recorder):
    recorder.record(message(), "shop.charge", 7)
    shutil.rmtree(recorder.directory)
    large = recorder.record(message(b"x" * SEGMENT_SIZE), "shop.charge", 7)
    assert (large is not None, found(recorder), recorder.uncovered) == (True, 1, 0)
    large.end()
    recorder.close()


def test_a_message_that_cannot_be_copied_is_no_trouble_for_others(recorder, caplog):
    class Hostile:
        def __str__(self):
            raise RuntimeError("no")

    assert recorder.record(message(errors=[Hostile()]), "shop.charge", 7) is None
    assert recorder.uncovered == 1
    assert "cannot copy a message of shop.charge" in caplog.text
    assert "cannot write" not in caplog.text
    recorder.record(message(), "shop.charge", 7).end()
    recorder.close()


def test_room_that_becomes_free_is_used_at_once(tmp_path, clock):
    """Also in the pause after the files were full: no new file is needed."""
    recorder = FlightRecorder(
        tmp_path / "recorder", worker="w@host", max_size=1 << 20, monotonic=clock
    )
    entries = []
    while entry := recorder.record(message(b"x" * 100_000), "shop.charge", 7):
        entries.append(entry)
    for one in entries:
        one.end()
    again = recorder.record(message(b"x" * 100_000), "shop.charge", 7)
    assert again is not None
    again.end()
    recorder.close()


def test_large_messages_do_not_split_the_small_ones_over_many_files(recorder):
    live = []
    for _ in range(5):
        live.append(recorder.record(message(), "shop.charge", 7))
        recorder.record(message(b"x" * SEGMENT_SIZE), "shop.charge", 7).end()
    sizes = [path.stat().st_size for path in recorder.directory.glob("*/*.rec")]
    assert sizes.count(SEGMENT_SIZE) == 1
    assert len(sizes) <= 2
    for entry in live:
        entry.end()
    recorder.close()


def test_a_hundred_thousand_messages_take_no_more_room_than_the_first(recorder):
    waiting = []
    for number in range(100_000):
        one = message()
        waiting.append((one, recorder.record(one, "shop.charge", 7)))
        one.acknowledged = True
        if len(waiting) > 50:
            waiting.pop(number % 50)[1].end()
    assert recorder.live == 50
    assert len(list(recorder.directory.glob("*/*.rec"))) <= 3
    assert len(recorder._unconfirmed) <= 1
    for _, entry in waiting:
        entry.end()
    recorder.close()


def test_an_acknowledgement_that_races_with_the_end_damages_nothing(recorder, tmp_path):
    """Threads of the pool end messages while the timer's thread confirms others."""
    stop = threading.Event()

    def confirm():
        while not stop.is_set():
            recorder.confirm()

    thread = threading.Thread(target=confirm)
    thread.start()
    for _ in range(5_000):
        one = message()
        entry = recorder.record(one, "shop.charge", 7)
        one.acknowledged = True
        entry.end()
        # The thread had looked just before the end.
        mark_entry(entry._segment.map, entry._start, Mark.ACKNOWLEDGED)
    stop.set()
    thread.join()
    contents = [read(path.read_bytes()) for path in recorder.directory.glob("*/*.rec")]
    assert contents
    assert set(contents) == {Contents((), is_damaged=False)}
    recorder.close()


def test_a_worker_that_closes_while_tasks_run_leaves_what_they_do_not_end(recorder, caplog):
    ends, stays = (recorder.record(message(), "shop.charge", 7) for _ in range(2))
    recorder.close()
    assert "2 messages had not ended" in caplog.text
    ends.end()
    assert found(recorder) == 1
    stays.end()
    recorder.close()
    assert list(look(recorder.directory)) == []


def test_a_closed_recorder_keeps_no_file_open(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    recorder = FlightRecorder(tmp_path / "recorder", worker="w@host")
    entries = [recorder.record(message(), "shop.charge", 7) for _ in range(10)]
    for entry in entries:
        entry.end()
    recorder.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert entries


def test_a_process_of_the_pool_does_not_keep_the_room_of_a_deleted_file(tmp_path):
    """The disk has the room again when no process has the file open or mapped."""
    segment = Segment(tmp_path / "1.rec", SEGMENT_SIZE)
    (result, told), path = os.pipe(), str(segment.path)
    child = os.fork()
    if not child:
        with open("/proc/self/maps") as maps:
            mapped = path in maps.read()
        opened = [os.readlink(f"/proc/self/fd/{fd}") for fd in (segment_fds(path))]
        os.write(told, f"{mapped} {opened}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(result, 1_000) == b"False []"
    entry = segment.put(b"{}", b"still written by its own process")
    entry.end()
    segment.remove()
    os.close(result)
    os.close(told)


def segment_fds(path):
    """The open files of this process that are ``path``."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}") == path:
                yield name
        except FileNotFoundError:  # the one of the listing itself
            continue


def test_a_directory_that_cannot_be_made_before_the_pool_is_trouble_and_no_error(
    tmp_path, recorder, clock, caplog
):
    (tmp_path / "recorder").touch()
    recorder.prepare()
    assert "exists" in recorder.trouble.why
    assert recorder.trouble.messages == 0
    assert "cannot write to" in caplog.text
    assert recorder.tags("here", 40) is None
    (tmp_path / "recorder").unlink()
    clock.now += PAUSE_S
    entry = recorder.record(message(), "shop.charge", 7)
    assert recorder.trouble is None
    entry.end()
    recorder.close()


def test_notes_that_are_left_at_the_end_stay_for_another_worker(tmp_path, recorder):
    recorder.prepare()
    tags = recorder.tags("here", 40)
    tags.add("a")
    recorder.close()
    [directory] = (tmp_path / "recorder").iterdir()
    assert [one.tag for one in noted_in(directory, "here")] == ["a"]
    tags.discard("a")
    recorder.close()
    assert list((tmp_path / "recorder").iterdir()) == []


def test_a_new_connection_has_no_notes(tmp_path, recorder):
    recorder.prepare()
    recorder.tags("here", 40).add("a")
    assert len(recorder.tags("here", 40)) == 0
    [directory] = (tmp_path / "recorder").iterdir()
    assert noted_in(directory, "here") == []
    recorder.close()
