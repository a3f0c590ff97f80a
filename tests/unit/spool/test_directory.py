import contextlib
import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from support.factories import T0, envelope, letter

from celery_dlq.errors import StoreUnavailable
from celery_dlq.model.letter import FORMAT, Outcome
from celery_dlq.spool import directory, segment
from celery_dlq.spool.directory import Spool
from celery_dlq.spool.segment import encode, find_record

LETTERS = [letter("a"), letter("b")]
OUTCOME = Outcome(task_id="a", redrive=1, succeeded_at=T0, worker="w")

APPEND = (
    "import sys; sys.path.insert(0, sys.argv[2]); from support.factories import letter\n"
    "from celery_dlq.spool.directory import Spool\n"
    "spool = Spool(sys.argv[1]); spool.append([letter('theirs')])\n"
    "print('spooled', flush=True); sys.stdin.read()"
)


@pytest.fixture
def spool(tmp_path):
    spool = Spool(tmp_path / "spool")
    yield spool
    spool.close()


@pytest.fixture
def other(spool):
    """Another process, which has appended and lives on."""
    process = subprocess.Popen(
        [sys.executable, "-c", APPEND, str(spool.directory), str(Path(__file__).parents[2])],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with process:
        assert process.stdout.readline() == b"spooled\n"
        yield process
        process.kill()


def drained(spool):
    taken = []
    for _step in spool.drain(taken.extend):
        pass
    return taken


def test_records_come_back_as_they_were_and_in_order(spool):
    spool.append(LETTERS)
    spool.append([OUTCOME])
    assert drained(spool) == [*LETTERS, OUTCOME]


def test_appending_goes_on_after_a_drain(spool):
    spool.append(LETTERS[:1])
    assert drained(spool) == LETTERS[:1]
    assert spool.files() == []
    spool.append(LETTERS[1:])
    assert drained(spool) == LETTERS[1:]


def test_a_living_writers_file_is_left_alone_until_it_dies(spool, other):
    [step] = spool.drain(list)
    assert step.in_use == (spool.files()[0].name,)
    other.kill()
    other.wait()
    assert [record.task_id for record in drained(spool)] == ["theirs"]


def test_files_are_bounded_so_that_a_drain_that_is_cut_off_does_little_again(spool, monkeypatch):
    monkeypatch.setattr(directory, "SEGMENT_SIZE", 1)
    spool.append(LETTERS[:1])
    spool.append(LETTERS[1:])
    assert len(spool.files()) == 2
    assert drained(spool) == LETTERS


def test_a_long_outage_does_not_make_a_file_each_time_the_store_is_asked(spool):
    def away(records):
        raise StoreUnavailable

    for n in range(10):
        spool.append([letter(str(n))])
        with pytest.raises(StoreUnavailable):
            list(spool.drain(away))
    assert len(spool.files()) == 2
    assert [record.task_id for record in drained(spool)] == [str(n) for n in range(10)]


def test_files_are_drained_in_the_order_they_were_begun_whatever_the_clock_does(spool, monkeypatch):
    for moment in (3_000_000_000, 2_000_000_000, 9, 2_500_000_000):
        monkeypatch.setattr(segment.time, "time_ns", lambda moment=moment: moment)
        spool.append([letter(str(moment))])
        spool.close()
    assert [record.task_id for record in drained(spool)] == [
        "3000000000", "2000000000", "9", "2500000000"
    ]  # fmt: skip


def test_two_hosts_of_one_name_and_process_id_have_files_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(segment.time, "time_ns", lambda: 1)
    monkeypatch.setattr(segment.socket, "gethostname", lambda: "web/1")
    twins = [Spool(tmp_path), Spool(tmp_path)]
    for twin in twins:
        twin.append(LETTERS[:1])
    assert len(twins[0].files()) == 2
    for twin in twins:
        twin.close()


# -- what may happen to the disk -------------------------------------------------------------------


def test_beyond_its_size_the_spool_takes_nothing_more(tmp_path):
    spool = Spool(tmp_path, max_size=len(encode(LETTERS[0])) + 10)
    spool.append(LETTERS[:1])
    with pytest.raises(OSError, match="dlq_spool_max_size") as caught:
        spool.append(LETTERS[1:])
    assert caught.value.errno == errno.EDQUOT
    assert drained(spool) == LETTERS[:1]
    spool.append(LETTERS[1:])
    assert drained(spool) == LETTERS[1:]


def test_files_that_were_set_aside_count_too(tmp_path):
    (tmp_path / "1.torn").write_bytes(b"x" * 1000)
    with pytest.raises(OSError, match="dlq_spool_max_size"):
        Spool(tmp_path, max_size=1000).append(LETTERS)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_full_disk_tears_no_line_and_what_was_kept_stays(small_disk):
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 45_000)
    spool, big = Spool(small_disk / "spool"), envelope(body=b"x" * 10_000)
    spool.append([letter("kept", envelope=big)])
    with pytest.raises(OSError, match="No space left") as caught:
        spool.append([letter("too much", envelope=big)])
    assert caught.value.errno == errno.ENOSPC
    filler.unlink()
    spool.append([letter("later")])
    assert [record.task_id for record in drained(spool)] == ["kept", "later"]
    assert list(spool.directory.iterdir()) == []


def test_failures_leave_no_empty_files_behind(small_disk):
    (small_disk / "filler").write_bytes(b"x" * 60_000)
    spool = Spool(small_disk / "spool")
    for _ in range(3):
        with pytest.raises(OSError, match="No space left"):
            spool.append([letter("a", envelope=envelope(body=b"x" * 20_000))])
    assert list(spool.directory.iterdir()) == []


def test_a_write_that_the_system_takes_in_part_is_finished_or_undone(spool):
    """Up to a limit of size, writes are cut short without an error; at the limit they fail."""
    spool.append(LETTERS[:1])
    whole = len(encode(LETTERS[0]))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (whole + 100, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):  # Python ignores SIGXFSZ
            spool.append(LETTERS[1:])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    spool.append([OUTCOME])
    assert drained(spool) == [LETTERS[0], OUTCOME]


def test_after_a_failed_fsync_a_new_file_is_begun(spool, monkeypatch):
    spool.append(LETTERS[:1])
    [first] = spool.files()
    monkeypatch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError("disk failed")))
    with pytest.raises(OSError, match="disk failed"):
        spool.append(LETTERS[1:])
    monkeypatch.undo()
    assert first.read_bytes() == encode(LETTERS[0])
    spool.append([OUTCOME])
    assert len(spool.files()) == 2
    assert drained(spool) == [LETTERS[0], OUTCOME]


@pytest.mark.parametrize("place", ["file", "file/spool", "dev/null"])
def test_a_directory_that_cannot_be_is_an_error_of_the_system(tmp_path, place):
    (tmp_path / "file").write_text("in the way")
    spool = Spool("/dev/null" if place == "dev/null" else tmp_path / place)
    with pytest.raises(OSError, match=r"exists|Not a directory"):
        spool.append(LETTERS)
    assert drained(spool) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_may_not_be_written(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        Spool(tmp_path).append(LETTERS)


def test_a_file_system_without_locks_is_an_error(spool, monkeypatch):
    """Without them nobody could tell a living writer's file from one to be drained."""

    def unsupported(file, how):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(segment.fcntl, "flock", unsupported)
    with pytest.raises(OSError, match="no locks"):
        spool.append(LETTERS)
    assert list(spool.directory.iterdir()) == []


# -- what others may do to the files ---------------------------------------------------------------


@pytest.mark.parametrize("notice", ["append", "drain", "close"])
def test_letters_of_a_file_that_is_removed_under_us_are_written_again(spool, caplog, notice):
    spool.append(LETTERS[:1])
    shutil.rmtree(spool.directory)
    expected = LETTERS[:1]
    if notice == "append":
        spool.append(LETTERS[1:])
        expected = LETTERS
    elif notice == "close":
        spool.close()
    assert drained(spool) == expected
    assert "was removed" in caplog.text


def test_letters_of_a_removed_file_that_cannot_be_written_again_are_in_the_log(spool, caplog):
    spool.append(LETTERS)
    shutil.rmtree(spool.directory)
    spool.directory.write_text("a file in the place of the directory")
    with pytest.raises(OSError, match=r"exists|Not a directory"):
        spool.append([OUTCOME])
    told = [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"]
    assert [find_record(text) for text in told] == LETTERS, "each once; the new one is the caller's"


def test_a_file_that_is_moved_away_is_not_written_to_any_more(spool, tmp_path, caplog):
    spool.append(LETTERS[:1])
    [path] = spool.files()
    path.rename(tmp_path / "elsewhere.jsonl")
    spool.append(LETTERS[1:])
    assert drained(spool) == LETTERS[1:]
    assert (tmp_path / "elsewhere.jsonl").read_bytes() == encode(LETTERS[0])
    assert "removed" not in caplog.text


def test_a_new_file_that_is_drained_before_it_is_locked_is_begun_again(spool, monkeypatch):
    real, removed = segment.fcntl.flock, []

    def removing(file, how):
        if not removed:
            removed.append(file.name)
            os.unlink(file.name)
        return real(file, how)

    monkeypatch.setattr(segment.fcntl, "flock", removing)
    spool.append(LETTERS)
    monkeypatch.undo()
    assert len(removed) == 1
    assert drained(spool) == LETTERS


def test_a_new_file_that_another_process_locks_first_is_left_alone(spool, monkeypatch):
    real, refused = segment.fcntl.flock, []

    def busy(file, how):
        if len(refused) < 2:
            refused.append(file)
            raise BlockingIOError
        return real(file, how)

    monkeypatch.setattr(segment.fcntl, "flock", busy)
    spool.append(LETTERS)
    assert len(spool.files()) == 1


def test_a_record_that_this_release_does_not_know_is_set_aside_whole(spool):
    spool.append(LETTERS)
    spool.close()
    [path] = spool.files()
    first, second = path.read_bytes().splitlines(keepends=True)
    unknown = first.replace(b'"format": %d' % FORMAT, b'"format": 9')
    path.write_bytes(unknown + second)
    assert drained(spool) == LETTERS[1:]
    assert path.with_suffix(".torn").read_bytes() == unknown


def test_a_pool_process_that_was_forked_meanwhile_holds_nothing_up(spool):
    spool.append(LETTERS)
    with forked():
        assert drained(spool) == LETTERS
        assert spool.files() == []


def test_nor_does_one_that_was_forked_while_a_file_was_drained(spool):
    spool.append([*LETTERS, letter("c")])
    children = contextlib.ExitStack()

    def refuse(records):
        children.enter_context(forked())
        raise StoreUnavailable("away")

    with children:
        with pytest.raises(StoreUnavailable):
            list(spool.drain(refuse))
        assert [item.task_id for item in drained(spool)] == ["a", "b", "c"]


@contextlib.contextmanager
def forked():
    """A child of this process, with copies of all that is open; it lives until the block ends."""
    with warnings.catch_warnings():
        # Python 3.12 and later warn of forks beside threads; this child runs nothing.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        signal.pause()
        os._exit(0)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
