"""The modes of directories and files that hold whole messages: only their owner may read them."""

from __future__ import annotations

import os

#: A umask can only remove bits.
DIRECTORY_MODE, FILE_MODE = 0o700, 0o600


def private_opener(path: str, flags: int) -> int:
    """An ``opener`` for :func:`open` that makes files that only their owner may read."""
    return os.open(path, flags, FILE_MODE)
