"""The directories in a recorder's directory, and the messages that processes left there before they ended."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from functools import cached_property, partial
from pathlib import Path

from celery_dlq.base.sealing import Keyring
from celery_dlq.recorder import owner
from celery_dlq.recorder.bodies import remove_returned, returned_in
from celery_dlq.recorder.owner import Owner
from celery_dlq.recorder.segment import (
    SUFFIX,
    CopiedMessage,
    EntryState,
    ListedEntry,
    message_from,
    opened,
    read,
)

#: The suffix of a file that is kept because it is damaged, after what can be read in it was recovered.
DAMAGED_SUFFIX = ".damaged"


class FilesState(str, Enum):
    """The state of a process's directory."""

    #: Its process lives.
    IN_USE = "in use"
    #: Its process is gone.
    GONE = "gone"
    #: Only damaged files are left in it.
    DAMAGED = "damaged"
    #: This user may not read it.
    UNREADABLE = "unreadable"


@dataclass(frozen=True, kw_only=True)
class ProcessFiles:
    """A process's directory."""

    path: Path
    state: FilesState
    owner: Owner | None = None
    #: Messages that have not ended, and those of them that the broker has certainly forgotten; 0 if they
    #: cannot be counted.
    messages: int = 0
    forgotten: int = 0
    #: Bytes; 0 if they cannot be counted.
    size: int = 0
    #: When it was last written to.
    written_at: datetime


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The messages in all directories of a recorder."""

    #: Messages that living workers run.
    running: int
    #: Messages of killed workers that wait for recovery, and those of them that the broker has certainly
    #: forgotten. It may deliver the others again.
    unrecovered: int
    forgotten: int
    #: When the oldest files with forgotten messages of killed workers were last changed; None without any.
    oldest_at: datetime | None
    #: Directories whose messages cannot be counted, because they cannot be read.
    uncounted: int = 0


def standing(found: Iterable[ProcessFiles]) -> Standing:
    """The messages in these directories."""
    every = [*found]
    gone = [one for one in every if one.state is FilesState.GONE]
    return Standing(
        running=sum(one.messages for one in every if one.state is FilesState.IN_USE),
        unrecovered=sum(one.messages for one in gone),
        forgotten=sum(one.forgotten for one in gone),
        oldest_at=min((one.written_at for one in gone if one.forgotten), default=None),
        uncounted=sum(one.state is FilesState.UNREADABLE for one in every),
    )


@dataclass
class _File:
    path: Path
    #: The positions of the entries that are not settled yet.
    unsettled: set[int]
    is_damaged: bool

    def settle(self, start: int) -> None:
        """Mark the entry at ``start`` as ended."""
        with self.path.open("r+b") as opened:
            opened.seek(start)
            opened.write(bytes([EntryState.ENDED]))
        self.unsettled.discard(start)


class LockedFiles:
    """The files of a process that is gone, held by this process.

    :param ring: opens messages that are encrypted.
    """

    def __init__(self, directory: Path, ring: Keyring | None = None) -> None:
        self.directory, self._ring = directory, ring
        owner_found = owner.owner_in(directory)
        self.worker: str = owner_found.worker if owner_found else ""
        self.host: str = owner_found.host if owner_found else ""
        self.process: str = owner_found.process if owner_found else ""
        self.release: str = owner_found.release if owner_found else ""
        #: Whether it certainly is gone: it ran on this machine since the machine started.
        self.ran_here: bool = owner_found is not None and owner_found.ran_on_this_boot
        #: The files that were read.
        self._files: list[_File] = []

    def has_returned(self, message: CopiedMessage) -> bool:
        """Whether the body of a message returned in its process, and its result was on its way.

        :raises OSError: no permission.
        """
        task_id = message.headers.get("id") or message.fields.get("id")
        return (message.pid, task_id) in self._returned

    @cached_property
    def _returned(self) -> frozenset[tuple[int, str]]:
        return returned_in(self.directory)

    def messages(self) -> Iterator[tuple[CopiedMessage, Callable[[], None]]]:
        """The messages that had not ended, each with a function that marks it as settled.

        :raises ContentsSealed: they are encrypted with a key that is not in the ring.
        :raises OSError: a file cannot be read.
        """
        for path in _files(self.directory):
            contents = read(path.read_bytes())
            file = _File(path, {entry.start for entry in contents.entries}, contents.is_damaged)
            self._files.append(file)
            for entry in contents.entries:
                message = self._message_of(entry)
                if message is not None:
                    yield message, partial(file.settle, entry.start)
                else:
                    file.is_damaged = True
                    file.unsettled.discard(entry.start)

    def _message_of(self, entry: ListedEntry) -> CopiedMessage | None:
        try:
            facts, body = opened(entry.facts, entry.body, self._ring)
            return message_from(
                facts, body, worker=self.worker, process=self.process, marks=entry.marks
            )
        except ValueError:
            return None

    def finish(self) -> list[Path]:
        """Delete the files whose messages were read and are all settled; returns the damaged ones, which are
        kept."""
        damaged = []
        for file in self._files:
            if file.unsettled:
                continue
            if file.is_damaged:
                damaged.append(file.path.rename(file.path.with_suffix(DAMAGED_SUFFIX)))
            else:
                file.path.unlink(missing_ok=True)
        if not any(file.unsettled for file in self._files):
            remove_returned(self.directory)
        owner.remove(self.directory)
        return damaged


def look(parent: Path) -> Iterator[ProcessFiles]:
    """The directories in ``parent``, by name; none if it does not exist. Changes nothing.

    :raises OSError: no permission to read them, or it is not a directory.
    """
    for directory in directories(parent):
        with contextlib.suppress(FileNotFoundError):  # just removed
            try:
                found = _look_at(directory)
            except PermissionError:
                found = _unreadable(directory)
            yield found


@contextlib.contextmanager
def locked_files(directory: Path, ring: Keyring | None = None) -> Iterator[LockedFiles | None]:
    """The files in ``directory``, if its process is gone; no other process has them within the block. None if
    the process may live, another one recovers them, or only damaged files are left.

    :raises OSError: they cannot be read.
    """
    with owner.lock_of_gone(directory) as is_free:
        is_left = is_free and not owner.may_live_elsewhere(directory)
        yield LockedFiles(directory, ring) if is_left and not _has_only_damaged(directory) else None


def _look_at(directory: Path) -> ProcessFiles:
    files = [*directory.iterdir()]
    entries = [entry for path in _files(directory) for entry in read(path.read_bytes()).entries]
    statuses = [path.stat() for path in files] or [directory.stat()]
    return ProcessFiles(
        path=directory,
        state=_state(directory),
        owner=owner.owner_in(directory),
        messages=len(entries),
        forgotten=sum(entry.is_acknowledged for entry in entries),
        size=sum(status.st_blocks * 512 for status in statuses),
        written_at=datetime.fromtimestamp(max(s.st_mtime for s in statuses), timezone.utc),
    )


def _state(directory: Path) -> FilesState:
    with owner.lock_of_gone(directory) as is_free:
        if not is_free or owner.may_live_elsewhere(directory):
            return FilesState.IN_USE
    return FilesState.DAMAGED if _has_only_damaged(directory) else FilesState.GONE


def _has_only_damaged(directory: Path) -> bool:
    is_damaged = any(path.suffix == DAMAGED_SUFFIX for path in directory.iterdir())
    return is_damaged and not _files(directory)


def _unreadable(directory: Path) -> ProcessFiles:
    written_at = datetime.fromtimestamp(directory.stat().st_mtime, timezone.utc)
    return ProcessFiles(path=directory, state=FilesState.UNREADABLE, written_at=written_at)


def directories(parent: Path) -> list[Path]:
    """The directories of processes in ``parent``, by name; none if it does not exist.

    :raises OSError: no permission to read it, or it is not a directory.
    """
    if not parent.exists():
        return []
    with os.scandir(parent) as entries:
        found = [Path(e.path) for e in entries if e.is_dir() and not e.name.startswith(".")]
    return sorted(found)


def _files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*" + SUFFIX))
