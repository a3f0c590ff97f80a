"""Finds letters in the archive, and brings them back into the store. The archive keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

from celery_dlq.archive.bucket import Bucket
from celery_dlq.archive.chain import Chains
from celery_dlq.archive.files import (
    UNREADABLE,
    Finding,
    Manifest,
    Problem,
    finding_of,
    read_segment,
)
from celery_dlq.archive.segment import Line, Span, encode_line, moment, read_lines

if TYPE_CHECKING:
    from celery_dlq.store.archiving import Archiving

#: Limits of one transaction: letters, and bytes of their lines. A letter that is larger has one of its own.
_TOGETHER = 200
_SIZE_TOGETHER = 8 << 20


def every_letter(_line: Line) -> bool:
    """The predicate that holds for all letters."""
    return True


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which letters to find: those for which all of this holds."""

    #: Task ids; empty for all.
    ids: frozenset[str] = frozenset()
    #: The id of a segment.
    segment: str | None = None
    #: The last failure was at or after the first, and before the second.
    failed_since: datetime | None = None
    failed_until: datetime | None = None
    #: Is given the line of a letter.
    where: Callable[[Line], bool] = every_letter

    def may_be_in(self, manifest: Manifest) -> bool:
        """Whether a segment can hold such a letter, by what its manifest says."""
        facts = manifest.facts
        return (
            facts.letters > 0
            and self._may_fail_within(facts.failed)
            and (not self.ids or any(facts.ids.first <= one <= facts.ids.last for one in self.ids))
        )

    def matches(self, line: Line) -> bool:
        """Whether the letter of ``line`` is wanted."""
        letter = line["letter"]
        if self.ids and letter["task_id"] not in self.ids:
            return False
        return self._includes(moment(letter["last_failed_at"])) and self.where(line)

    def _may_fail_within(self, failed: Span) -> bool:
        since, until = self.failed_since, self.failed_until
        return (since is None or moment(failed.until) >= since) and (
            until is None or moment(failed.from_) < until
        )

    def _includes(self, failed_at: datetime) -> bool:
        since, until = self.failed_since, self.failed_until
        return (since is None or failed_at >= since) and (until is None or failed_at < until)


@dataclass(frozen=True)
class Found:
    """A letter in the archive."""

    manifest: Manifest
    line: dict[str, Any]

    @property
    def task_id(self) -> str:
        """The task id of the letter."""
        return str(self.line["letter"]["task_id"])


class Search:
    """Finds the wanted letters of an archive, those that were archived last first. A letter that was archived
    twice is found once: the later copy."""

    def __init__(self, bucket: Bucket, chains: Chains, wanted: Wanted) -> None:
        self._bucket, self._chains = bucket, chains
        self.wanted = wanted
        #: Segments that should have been searched, and cannot be read.
        self.findings: list[Finding] = []

    def __iter__(self) -> Iterator[Found]:
        """The letters. One segment at a time is in memory.

        :raises UnknownSegment: the archive does not have the wanted segment.
        :raises ArchiveError: the place failed, or the manifest of the wanted segment cannot be read.
        """
        self.findings = [
            finding for finding in self._chains.unreadable if finding.problem is not Problem.UNNAMED
        ]
        seen = set[str]()
        for manifest in self._segments():
            for line in self._lines(manifest):
                found = Found(manifest, line)
                if found.task_id not in seen:
                    seen.add(found.task_id)
                    yield found
            if self.wanted.ids and seen >= self.wanted.ids:
                return

    def at_most(self) -> int:
        """The number of letters in the segments that are searched.

        :raises UnknownSegment: the archive does not have the wanted segment.
        :raises ArchiveError: the manifest of the wanted segment cannot be read.
        """
        return sum(manifest.facts.letters for manifest in self._segments())

    def _segments(self) -> list[Manifest]:
        if self.wanted.segment is not None:
            return [self._chains.segment(self.wanted.segment)]
        return [one for one in reversed(self._chains.current()) if self.wanted.may_be_in(one)]

    def _lines(self, manifest: Manifest) -> Iterator[dict[str, Any]]:
        try:
            data = read_segment(self._bucket, manifest)
            for line in read_lines(data, manifest.key):
                if self.wanted.matches(line):
                    yield line
        except UNREADABLE as error:
            self.findings.append(finding_of(manifest.key, error))


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
    search: Search, store: Archiving, *, who: str, reopen: bool, now: datetime
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
