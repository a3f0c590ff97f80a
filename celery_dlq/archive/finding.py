"""Problems of the archive's files, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from celery_dlq.errors import ArchiveDamaged, ArchiveError, ArchiveFileMissing, ArchiveNewer


class Problem(str, Enum):
    """The kind of a problem."""

    #: The content of a file is not what was written.
    DAMAGED = "damaged"
    #: A manifest names a file that does not exist.
    MISSING = "missing"
    #: The manifest before this one does not exist, or is another one.
    GAP = "gap"
    #: Two manifests follow the same one, or replace the same segment.
    FORK = "fork"
    #: The store has committed another manifest in the place of this one.
    LEFTOVER = "leftover"
    #: No manifest names the file.
    UNNAMED = "unnamed"
    #: The segment was replaced, but its file still exists.
    REPLACED = "replaced"
    #: A newer release wrote the file, so it was not read.
    NEWER = "newer"


_HARMLESS = frozenset({Problem.LEFTOVER, Problem.UNNAMED, Problem.REPLACED, Problem.NEWER})


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A problem of one file, and what it means."""

    #: The key of the file.
    key: str
    problem: Problem
    #: A sentence or more, with the next step.
    reason: str

    @property
    def is_harmless(self) -> bool:
        """Whether all letters of the archive can still be read, by this release or by a newer one."""
        return self.problem in _HARMLESS


#: The errors of files that cannot be read; others mean that the place failed.
UNREADABLE = (ArchiveDamaged, ArchiveFileMissing, ArchiveNewer)

_PROBLEMS: Mapping[type[ArchiveError], Problem] = {
    ArchiveDamaged: Problem.DAMAGED,
    ArchiveFileMissing: Problem.MISSING,
    ArchiveNewer: Problem.NEWER,
}


def finding_of(key: str, error: ArchiveError) -> Finding:
    """The problem of the file ``key``, which could not be read because of one of :data:`UNREADABLE`."""
    return Finding(key=key, problem=_PROBLEMS[type(error)], reason=str(error))
