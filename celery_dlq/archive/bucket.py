"""The place of the archive's files, over fsspec. Every failure becomes an error that names the next step."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from celery_dlq.base.bounded import TakesTooLong, bounded
from celery_dlq.base.process import DIRECTORY_MODE, private_opener
from celery_dlq.base.redact import safe_message
from celery_dlq.errors import ArchiveError, ArchiveFileMissing, MissingExtra
from celery_dlq.settings import archive_package
from celery_dlq.spool.segment import fsync_directory

T = TypeVar("T")

#: Seconds that a call may take, and those that each MiB adds: a place that is slower than that is as good as
#: away, and a worker must not wait for it for ever.
CALL_S = 60.0
MIB_S = 4.0

#: The end of the name of a file that is being written to a local disk.
_PART = ".part"

#: The trouble and the remedy, by the error of the operating system.
_REMEDIES = {
    errno.ENOSPC: "is full; make room there",
    errno.EDQUOT: "is full; make room there, or raise the quota",
    errno.EROFS: "is read-only; make it writable",
    errno.EACCES: "denies access; let the worker's user read, write, list and delete files there",
    errno.EPERM: "denies access; let the worker's user read, write, list and delete files there",
}


def open_bucket(url: str) -> Bucket:
    """The place that ``dlq_archive_url`` names. Does not connect.

    :raises MissingExtra: a package that it needs is not installed.
    :raises ArchiveError: its client refuses the URL, or does not work in this process.
    """
    need_packages(url)
    import fsspec.core

    try:
        # Cached lists would hide what other processes have written and deleted.
        filesystem, root = fsspec.core.url_to_fs(
            url, use_listings_cache=False, skip_instance_cache=True
        )
    except Exception as error:
        raise _failure(url, error) from error
    if filesystem.async_impl and _threads_are_greenlets():
        raise ArchiveError(
            f"The client for {url} does not work in a worker with the gevent pool; run: celery -A <app> dlq "
            "archive run, or start a worker with another pool. Letters that are not in it stay in the store."
        )
    return Bucket(filesystem, root, shown=url)


def _threads_are_greenlets() -> bool:
    # Such a client runs an event loop in a thread, and refuses calls from the same thread.
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def need_packages(url: str) -> None:
    """Check that the archive's packages are installed, and that of the URL's scheme.

    :raises MissingExtra: one is missing.
    """
    for name in ("fsspec", "zstandard"):
        if find_spec(name) is None:
            raise MissingExtra(
                f"The archive needs the package {name}; run: pip install 'celery-dlq[archive]'"
            )
    package = archive_package(url)
    if package and find_spec(package) is None:
        raise MissingExtra(
            f"dlq_archive_url = {url!r} needs the package {package}; run: pip install {package}"
        )


class Bucket:
    """A place for files, which fsspec reaches. Keys are paths inside it, such as ``segments/<id>.jsonl.zst``.

    Every method raises :class:`~celery_dlq.errors.ArchiveError` if the place fails.

    :param filesystem: a file system of fsspec. Two calls never overlap.
    :param root: the folder of the archive in it.
    :param shown: the URL, for errors.
    :param call_s: seconds that a call may take; each MiB adds ``MIB_S``.
    """

    def __init__(self, filesystem: Any, root: str, *, shown: str, call_s: float = CALL_S) -> None:
        self._filesystem, self._root = filesystem, root.rstrip("/")
        self._call_s = call_s
        #: The URL of the place.
        self.shown = shown
        self._late: Future[Any] | None = None

    def put(self, key: str, data: bytes) -> None:
        """Write a file. On a local disk it appears as a whole, and is on the disk when this returns. If this
        fails, the file may exist or not."""
        path = self._path(key)
        try:
            if self._is_local:
                self._call(lambda: _write_durably(Path(self._root), Path(path), data), len(data))
            else:
                self._call(lambda: self._filesystem.pipe_file(path, data), len(data))
        except FileNotFoundError as error:
            raise ArchiveError(_missing(self.shown)) from error

    def read(self, key: str) -> bytes:
        """The content of a file.

        :raises ArchiveFileMissing: the file does not exist.
        """
        path = self._path(key)
        try:
            size = self._call(lambda: self._filesystem.info(path))["size"]
            content: bytes = self._call(lambda: self._filesystem.cat_file(path), size)
        except FileNotFoundError as error:
            self._check_root()
            raise ArchiveFileMissing(
                f"The archive {self.shown} has no file {key}; restore it from a backup, or run: "
                "celery -A <app> dlq archive verify"
            ) from error
        return content

    def has(self, key: str) -> bool:
        """Whether the file exists."""
        try:
            self._call(lambda: self._filesystem.info(self._path(key)))
        except FileNotFoundError:
            return False
        return True

    def list(self, folder: str) -> list[str]:
        """The keys of all files in ``folder``, sorted."""
        try:
            found = self._call(lambda: self._filesystem.find(self._path(folder)))
        except FileNotFoundError:
            found = []
        if not found:
            self._check_root()
        return sorted(path.removeprefix(f"{self._root}/") for path in found)

    def delete(self, key: str) -> None:
        """Delete a file, and the part of it that a killed process has left; a file that does not exist is not
        an error."""
        path = self._path(key)
        for one in (path, path + _PART) if self._is_local else (path,):
            with contextlib.suppress(FileNotFoundError):
                self._call(partial(self._filesystem.rm_file, one))

    @property
    def _is_local(self) -> bool:
        protocol = self._filesystem.protocol
        return "file" in ((protocol,) if isinstance(protocol, str) else protocol)

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    def _check_root(self) -> None:
        # A place that does not exist must not look like an empty archive. A prefix in a bucket exists only
        # while there are files below it, so the bucket itself counts.
        top = self._root if self._is_local else self._root.lstrip("/").partition("/")[0]
        if top and not self._call(lambda: self._filesystem.exists(top)):
            raise ArchiveError(_missing(self.shown))

    def _call(self, call: Callable[[], T], size: int = 0) -> T:
        """The result of ``call``, which runs in a thread of its own, because not all clients have a time
        limit.

        :raises FileNotFoundError: the file does not exist.
        """
        if self._late is not None and not self._late.done():
            # Otherwise each try would leave one more thread, and an old write might overtake a new one.
            raise ArchiveError(
                f"The archive {self.shown} still does not answer an earlier call; check the network, and "
                "the disk if it is a directory. Letters that are not in it stay in the store."
            )
        seconds = self._call_s + MIB_S * size / 2**20
        try:
            return bounded(call, seconds, thread_name="dlq-archive")
        except TakesTooLong as error:
            self._late = error.future
            raise ArchiveError(
                f"The archive {self.shown} did not answer within {seconds:.0f} s; check the network. "
                "Letters that are not in it stay in the store."
            ) from None
        except FileNotFoundError:
            raise
        except (Exception, SystemExit) as error:
            raise _failure(self.shown, error) from error


def _write_durably(root: Path, path: Path, data: bytes) -> None:
    if not root.is_dir():
        # Made here, it might be the empty mount point of a disk that is away.
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(root))
    if not path.parent.is_dir():
        path.parent.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        fsync_directory(root)
    part = path.with_name(path.name + _PART)
    try:
        with open(part, "wb", opener=private_opener) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    fsync_directory(path.parent)


def _failure(shown: str, error: BaseException) -> ArchiveError:
    if isinstance(error, PermissionError):
        remedy: str | None = _REMEDIES[errno.EACCES]
    else:
        remedy = _REMEDIES.get(error.errno or 0) if isinstance(error, OSError) else None
    said = f"{type(error).__name__}: {safe_message(error)}"
    if remedy is None:
        remedy = "failed; check dlq_archive_url, the network and the credentials in the environment"
    return ArchiveError(
        f"The archive {shown} {remedy} ({said}). Letters that are not in it stay in the store."
    )


def _missing(shown: str) -> str:
    return (
        f"The archive {shown} does not exist; make that directory or bucket, mount its disk, or set another "
        "dlq_archive_url. Letters that are not in it stay in the store."
    )
