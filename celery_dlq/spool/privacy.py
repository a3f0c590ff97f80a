"""File permissions of a spool: its files hold whole messages, so only their owner may read them."""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from celery_dlq.private_files import DIRECTORY_MODE, FILE_MODE

logger = logging.getLogger(__name__)

_OTHERS = stat.S_IRWXG | stat.S_IRWXO

#: Bits that a directory does not have by default: if one is set, the directory is shared on purpose, as
#: /tmp is.
_SHARED = stat.S_ISVTX | stat.S_ISGID

#: The names of files of :mod:`~celery_dlq.spool.segment`, and of lines that were set aside.
_OURS = re.compile(r"\d+-[\w.-]+-\d+-[0-9a-f]{8}\.(?:jsonl|torn|refused)")

#: The flight recorder's directory, unless dlq_recorder_dir names another.
_RECORDER = "recorder"


def make_private(directory: Path) -> None:
    """Make a spool of an earlier version private. Files that this process does not own stay as they
    are, and so does a directory that is shared or has other files in it."""
    for path in exposed_files(directory):
        _take_rights(path, FILE_MODE)
    is_only_ours = all(
        _OURS.fullmatch(path.name) or path.name == _RECORDER for path in _entries(directory)
    )
    if is_exposed(directory) and is_only_ours and not is_shared(directory):
        _take_rights(directory, DIRECTORY_MODE)


def exposed_files(directory: Path) -> list[Path]:
    """The files of a spool whose modes let other users than the owner open them."""
    return [path for path in _entries(directory) if _OURS.fullmatch(path.name) and is_exposed(path)]


def is_exposed(path: Path) -> bool:
    """Whether users other than the owner of ``path`` have any permission on it."""
    try:
        mode = path.lstat().st_mode
    except OSError:  # it was just removed, or this process may not see it
        return False
    return bool(mode & _OTHERS) and not stat.S_ISLNK(mode)


def is_shared(directory: Path) -> bool:
    """Whether ``directory`` was prepared for several users."""
    try:
        return bool(directory.stat().st_mode & _SHARED)
    except OSError:
        return False


def _entries(directory: Path) -> Iterator[Path]:
    try:
        yield from directory.iterdir()
    except OSError:
        return


def _take_rights(path: Path, mode: int) -> None:
    """Set the mode of ``path``, if this user owns it. It changes the opened file, because the name may
    lead to another file by now."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return
    try:
        status = os.fstat(handle)
        is_known = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
        if is_known and status.st_uid == os.geteuid():
            os.fchmod(handle, mode)
    except OSError as error:
        logger.warning("the mode of %s cannot be changed to %o: %s", path, mode, error)
    finally:
        os.close(handle)
