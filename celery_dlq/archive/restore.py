"""Brings letters back from the archive into the store. The archive keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from celery_dlq.archive.finding import Finding
from celery_dlq.archive.reading import Found, Search
from celery_dlq.archive.role import ArchivingRole
from celery_dlq.archive.segment import encode_line

#: Limits of one transaction: letters, and bytes of their lines. A letter that is larger has one of its own.
_TOGETHER = 200
_SIZE_TOGETHER = 8 << 20


@dataclass(frozen=True, kw_only=True)
class Restoration:
    """The result of a restore."""

    #: Task ids of the letters that came back.
    restored: tuple[str, ...] = ()
    #: Task ids of letters that were found, and that the store has already. They stay as they are.
    living: tuple[str, ...] = ()
    #: Wanted task ids that the archive does not have, as far as it could be read.
    missing: tuple[str, ...] = ()
    #: Segments and manifests that could not be read.
    findings: tuple[Finding, ...] = ()


def restore(
    search: Search, store: ArchivingRole, *, who: str, reopen: bool, now: datetime
) -> Restoration:
    """Bring the letters that ``search`` finds back. A second run changes nothing.

    :param who: the name in the audit.
    :param reopen: whether they can be redriven afterwards; otherwise they come back closed.
    :raises UnknownSegment: the archive does not have the wanted segment.
    :raises ArchiveError: the place failed. Letters that came back before that stay.
    :raises StoreError: the store failed. Letters that came back before that stay.
    """
    restored, living = list[str](), list[str]()
    for origin, of_segment in groupby(search, key=lambda found: found.manifest.segment):
        for some in _portions(of_segment):
            lines = [found.line for found in some]
            result = store.restore(lines, who=who, reopen=reopen, origin=origin, now=now)
            restored += result.restored
            living += result.living
    return Restoration(
        restored=tuple(restored), living=tuple(living),
        missing=tuple(sorted(search.wanted.ids.difference(restored, living))),
        findings=tuple(search.findings),
    )  # fmt: skip


def _portions(found: Iterable[Found]) -> Iterator[list[Found]]:
    portion, size = list[Found](), 0
    for one in found:
        more = len(encode_line(one.line))
        if portion and (len(portion) >= _TOGETHER or size + more > _SIZE_TOGETHER):
            yield portion
            portion, size = [], 0
        portion.append(one)
        size += more
    if portion:
        yield portion
