"""The directory of one process, the lock that it holds for as long as it lives, and the lock that it and the
processes of its pool hold: a process of the pool may outlive its parent, and end its task."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import socket
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any
from weakref import WeakSet

from celery_dlq.base.process import DIRECTORY_MODE, boot_of, identity, private_opener, try_lock

#: Seconds between two signs of life, and without one after which a process on another machine counts as gone.
BEAT_S, SILENT_S = 15.0, 180.0

#: Seconds after which a directory that was not made to its end is deleted.
HALF_MADE_S = 3_600.0

#: The file that is locked, and names the process; and the one that the processes of its pool hold, too.
_NAME, _POOL = "owner.json", "pool.lock"


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The process that a directory belongs to."""

    worker: str
    host: str
    pid: int | None
    #: See :func:`celery_dlq.base.process.identity`.
    process: str
    began_at: str
    #: The release that it ran: ``dlq_release``.
    release: str = ""

    @property
    def ran_on_this_boot(self) -> bool:
        """Whether it ran on this machine since the machine started. Only then does a lock that is free prove
        that the process is gone."""
        boot = boot_of(self.process)
        return bool(boot) and boot == boot_of(identity())


class OwnDirectory:
    """A new directory of this process in ``parent``, locked until the process ends or :meth:`release`.

    :raises OSError: it cannot be made, or its file system has no locks.
    """

    def __init__(self, parent: Path, worker: str, release: str = "") -> None:
        for one in (parent.parent, parent):  # which may be a spool that was not used yet
            one.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        host = re.sub(r"[^\w.-]", "_", socket.gethostname())
        name = f"{host}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        owner = Owner(
            worker=worker,
            host=socket.gethostname(),
            pid=os.getpid(),
            process=identity(),
            began_at=datetime.now(timezone.utc).isoformat(),
            release=release,
        )
        # Under another name until it is locked: others would take it for the directory of a dead process.
        made = parent / f".{name}"
        made.mkdir(mode=DIRECTORY_MODE)
        locks = contextlib.ExitStack()
        try:
            self._pool_lock = locks.enter_context(_locked_file(made / _POOL))
            self._lock = locks.enter_context(_locked_file(made / _NAME, owner))
            self.path: Path = made.rename(parent / name)
        except BaseException:
            locks.close()
            remove(made)
            raise
        _open.add(self)

    @property
    def is_in_place(self) -> bool:
        """Whether the directory still exists."""
        try:
            return os.path.samestat(os.stat(self.path / _NAME), os.fstat(self._lock.fileno()))
        except FileNotFoundError:
            return False
        except OSError:  # a network file system that does not answer
            return True

    def beat(self) -> bool:
        """Show processes on other machines that this one lives. False if the directory was removed."""
        with contextlib.suppress(OSError):
            os.utime(self.path / _NAME)
        return self.is_in_place

    def release(self) -> None:
        """Delete the directory, which has no files any more, and give up the locks."""
        with contextlib.suppress(OSError):
            (self.path / _POOL).unlink()
            (self.path / _NAME).unlink()
            self.path.rmdir()
        self.close()

    def close(self) -> None:
        """Give up the locks."""
        _open.discard(self)
        self._lock.close()
        self._pool_lock.close()

    def close_in_child(self) -> None:
        """Give up the lock in a process of the pool, which keeps its part of the pool's lock."""
        self._lock.close()


def _locked_file(path: Path, owner: Owner | None = None) -> IO[str]:
    file = open(path, "x", encoding="utf-8", opener=private_opener)  # noqa: SIM115 - kept open
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if owner is not None:
            json.dump(asdict(owner), file)
            file.flush()
    except BaseException:
        file.close()
        raise
    return file


def owner_in(directory: Path) -> Owner | None:
    """The owner of ``directory``; None if its file is missing or damaged."""
    try:
        data: Any = json.loads((directory / _NAME).read_text("utf-8"))
        owner = Owner(**data)
    except (OSError, ValueError, TypeError):
        return None
    texts = (owner.worker, owner.host, owner.process, owner.began_at, owner.release)
    return owner if all(isinstance(text, str) for text in texts) else None


@contextlib.contextmanager
def lock_of_gone(directory: Path) -> Iterator[bool]:
    """Whether no process has the lock of ``directory``. If so, this one has it within the block.

    :raises OSError: no permission to open the file.
    """
    try:
        # For writing, because network file systems lock only such files exclusively.
        file = (directory / _NAME).open("r+b")
    except FileNotFoundError:
        yield not (directory / _NAME).exists() and directory.exists()
        return
    with file:
        if not try_lock(file):
            yield False
            return
        try:
            # The previous holder of the lock may have removed the directory.
            yield os.fstat(file.fileno()).st_nlink > 0
        finally:
            # A process that was forked in the meantime has a copy of the file.
            fcntl.flock(file, fcntl.LOCK_UN)


def pool_may_run(directory: Path) -> bool:
    """Whether processes of the pool of a process that is gone may still run its tasks. Only on the machine
    where they ran can that be known.

    :raises OSError: no permission to open the file.
    """
    if not ran_on_this_boot(directory):
        return True
    try:
        with (directory / _POOL).open("r+b") as file:
            return not try_lock(file)
    except FileNotFoundError:
        return True


def ran_on_this_boot(directory: Path) -> bool:
    """Whether the process of ``directory`` ran on this machine since the machine started."""
    found = owner_in(directory)
    return found is not None and found.ran_on_this_boot


class Looker:
    """One of the processes of the machine that looks for processes that are gone, as long as it lives.
    The others do not look.

    :param parent: the parent of the processes' directories.
    """

    def __init__(self, parent: Path) -> None:
        self._path = parent / ".looker"
        self._file: IO[bytes] | None = None

    def looks(self) -> bool:
        """Whether this process is the one."""
        if self._file is not None:
            return True
        try:
            file = open(self._path, "ab", opener=private_opener)  # noqa: SIM115 - kept open
        except OSError:  # no process has made its directory yet
            return False
        try:
            # Unlike flock, this lock is not inherited by processes of the pool, which may live longer.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return False
        self._file = file
        return True

    def close(self) -> None:
        """Let another process look."""
        if self._file is not None:
            self._file.close()
            self._file = None


def may_live_elsewhere(directory: Path) -> bool:
    """Whether the process of ``directory``, whose lock is free, may live on another machine that shares the
    volume without its locks."""
    found = owner_in(directory)
    if found is None or found.ran_on_this_boot:
        return False
    return silent_s(directory / _NAME) < SILENT_S


def silent_s(path: Path) -> float:
    """Seconds since ``path``, a directory or a file in it, was last written to.

    :raises OSError: it does not exist, or no permission.
    """
    # By the clock of the volume, because those of two machines may differ.
    parent = path.parent if path.is_dir() else path.parent.parent
    with tempfile.TemporaryFile(dir=parent) as clock:
        return os.fstat(clock.fileno()).st_mtime - path.stat().st_mtime


def remove_half_made(parent: Path) -> None:
    """Delete the directories in ``parent`` whose process was killed before the directory was complete.

    :raises OSError: no permission.
    """
    for directory in parent.glob(".*-*-*"):
        with contextlib.suppress(FileNotFoundError), lock_of_gone(directory) as is_free:
            if is_free and silent_s(directory) > HALF_MADE_S:
                remove(directory)


def remove(directory: Path) -> None:
    """Delete the directory of a process that is gone, if it has no other files any more."""
    with contextlib.suppress(OSError):
        if all(path.name in (_NAME, _POOL) for path in directory.iterdir()):
            (directory / _POOL).unlink(missing_ok=True)
            (directory / _NAME).unlink(missing_ok=True)
            directory.rmdir()


_open: WeakSet[OwnDirectory] = WeakSet()


def _in_child() -> None:
    """Close the lock's file in a process of the pool: the lock lasts while any copy of the file is open."""
    for own in list(_open):
        own.close_in_child()


os.register_at_fork(after_in_child=_in_child)
