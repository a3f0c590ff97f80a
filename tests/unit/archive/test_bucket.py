"""Places for the archive's files, and what is said when they fail."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from support.stores.archives import s3_environment, s3_server

from celery_dlq.archive.bucket import Bucket, need_packages, open_bucket
from celery_dlq.errors import ArchiveError, ArchiveFileMissing, MissingExtra


@pytest.fixture(scope="module")
def s3():
    with s3_server() as address:
        yield address


@pytest.fixture
def s3_url(s3, monkeypatch, request):
    for name, value in s3_environment(s3).items():
        monkeypatch.setenv(name, value)
    client = fsspec.filesystem("s3", skip_instance_cache=True)
    bucket = f"letters-{abs(hash(request.node.name)) % 10**8}"
    client.mkdir(bucket)
    return f"s3://{bucket}/shop"


@pytest.fixture(params=["file", "s3"])
def bucket(request, tmp_path):
    url = f"file://{tmp_path}" if request.param == "file" else request.getfixturevalue("s3_url")
    return open_bucket(url)


def test_a_file_comes_back_as_it_was_put(bucket):
    bucket.put("segments/a", b"one\0two")
    assert bucket.read("segments/a") == b"one\0two"


def test_files_are_listed_by_folder_as_soon_as_they_are_there(bucket):
    assert bucket.list("segments") == []
    bucket.put("segments/b", b"")
    bucket.put("segments/a", b"")
    bucket.put("manifests/c", b"")
    assert bucket.list("segments") == ["segments/a", "segments/b"]
    assert bucket.list("manifests") == ["manifests/c"]


def test_files_in_deeper_folders_keep_their_key(bucket):
    bucket.put("segments/a", b"")
    bucket.put("segments/deep/a", b"")
    assert bucket.list("segments") == ["segments/a", "segments/deep/a"]


def test_a_second_client_sees_what_the_first_one_does(bucket):
    other = open_bucket(bucket.shown)
    assert other.list("segments") == []
    bucket.put("segments/a", b"1")
    assert other.list("segments") == ["segments/a"]
    bucket.delete("segments/a")
    assert other.list("segments") == []


def test_a_file_that_does_not_exist_is_named(bucket):
    with pytest.raises(ArchiveFileMissing, match="segments/a"):
        bucket.read("segments/a")


def test_deleting_a_file_twice_is_no_error(bucket):
    bucket.put("segments/a", b"1")
    assert bucket.has("segments/a")
    bucket.delete("segments/a")
    bucket.delete("segments/a")
    assert not bucket.has("segments/a")
    assert bucket.list("segments") == []


def test_the_part_that_a_killed_process_has_left_on_a_local_disk_goes_with_the_file(tmp_path):
    (tmp_path / "segments").mkdir()
    (tmp_path / "segments" / "a.part").touch()
    bucket = open_bucket(f"file://{tmp_path}")
    bucket.delete("segments/a")
    assert bucket.list("segments") == []


@pytest.mark.parametrize("act", [
    lambda bucket: bucket.list("segments"),
    lambda bucket: bucket.put("segments/a", b""),
    lambda bucket: bucket.read("segments/a"),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["file", "s3"])
def test_a_place_that_does_not_exist_is_not_an_empty_one(act, kind, tmp_path, request):
    urls = {"file": f"file://{tmp_path}/gone", "s3": "s3://no-such-bucket/shop"}
    request.getfixturevalue("s3_url")
    with pytest.raises(ArchiveError, match="does not exist") as caught:
        act(open_bucket(urls[kind]))
    assert not isinstance(caught.value, ArchiveFileMissing)
    assert not (tmp_path / "gone").exists()


def test_a_server_that_is_away_is_named(monkeypatch):
    for name, value in s3_environment("http://127.0.0.1:1").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(ArchiveError, match="s3://letters/shop failed; check"):
        open_bucket("s3://letters/shop").read("segments/a")


def test_a_client_that_does_not_work_with_gevent_is_refused():
    code = (
        "from gevent import monkey; monkey.patch_all()\n"
        "from celery_dlq.archive.bucket import open_bucket\n"
        "open_bucket('file:///tmp').list('gone')\n"
        "try:\n"
        "    open_bucket('s3://letters')\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(
        "ArchiveError The client for s3://letters does not work in a worker"
    )


def test_no_half_file_appears_on_a_local_disk(tmp_path, monkeypatch):
    def full(_handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    (tmp_path / "segments").mkdir()
    with pytest.raises(ArchiveError, match="is full; make room"):
        open_bucket(f"file://{tmp_path}").put("segments/a", b"1")
    assert list(tmp_path.rglob("*")) == [tmp_path / "segments"]


def test_only_the_owner_can_read_files_on_a_local_disk(tmp_path):
    open_bucket(f"file://{tmp_path}").put("segments/a", b"1")
    folder = tmp_path / "segments"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "a").stat().st_mode) == 0o600


class Failing(MemoryFileSystem):
    """Raises what it is given."""

    cachable = False

    def __init__(self, error):
        super().__init__()
        self.error = error

    def _fail(self, *_args, **_kwargs):
        raise self.error

    pipe_file = cat_file = info = find = rm_file = _fail


@pytest.mark.parametrize(("error", "said"), [
    (PermissionError("denied"), "denies access; let the worker's user"),
    (OSError(errno.EROFS, "Read-only file system"), "is read-only; make it writable"),
    (OSError(errno.EDQUOT, "Quota exceeded"), "raise the quota"),
    (RuntimeError("SlowDown"), "failed; check dlq_archive_url.*SlowDown"),
    (NotImplementedError(), "failed; check dlq_archive_url"),
])  # fmt: skip
@pytest.mark.parametrize("act", [
    lambda bucket: bucket.list("segments"),
    lambda bucket: bucket.put("segments/a", b""),
    lambda bucket: bucket.read("segments/a"),
    lambda bucket: bucket.has("segments/a"),
    lambda bucket: bucket.delete("segments/a"),
])  # fmt: skip
def test_each_failure_names_the_next_step(error, said, act):
    bucket = Bucket(Failing(error), "/x", shown="memory://x")
    with pytest.raises(ArchiveError, match=said):
        act(bucket)


class Hanging(MemoryFileSystem):
    """Does not answer until it is told to."""

    cachable = False

    def __init__(self):
        super().__init__()
        self.go = threading.Event()

    def cat_file(self, *_args, **_kwargs):
        return b""

    def pipe_file(self, *_args, **_kwargs):
        self.go.wait()

    def info(self, *_args, **_kwargs):
        return {"size": 0}


def test_a_place_that_does_not_answer_is_given_up():
    filesystem = Hanging()
    bucket = Bucket(filesystem, "/x", shown="memory://x", call_s=0.05)
    with pytest.raises(ArchiveError, match="did not answer within"):
        bucket.put("segments/a", b"1")
    with pytest.raises(ArchiveError, match="still does not answer an earlier call"):
        bucket.read("segments/a")
    before = [one for one in threading.enumerate() if one.name == "dlq-archive"]
    filesystem.go.set()
    for thread in before:
        thread.join()
    assert bucket.read("segments/a") == b""


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr("celery_dlq.archive.bucket.find_spec", lambda name: name != "s3fs" or None)
    with pytest.raises(MissingExtra, match="run: pip install s3fs"):
        need_packages("s3://letters")


def test_the_extra_is_named_if_it_is_missing(monkeypatch):
    monkeypatch.setattr("celery_dlq.archive.bucket.find_spec", lambda _name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'celery-dlq\[archive\]'"):
        need_packages("file:///letters")
