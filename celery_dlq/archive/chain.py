"""The chains of manifests in one place, and the check of all its files. Each store that uses the place has a
chain of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from itertools import groupby

from celery_dlq.archive.bucket import Bucket
from celery_dlq.archive.files import (
    MANIFESTS,
    SEGMENTS,
    UNREADABLE,
    Finding,
    Manifest,
    Problem,
    StoredManifest,
    check_segment,
    decode_manifest,
    finding_of,
    manifest_key,
    segment_of,
)
from celery_dlq.errors import (
    ArchiveDamaged,
    ArchiveError,
    ArchiveFileMissing,
    ArchiveNewer,
    UnknownSegment,
)


@dataclass(frozen=True)
class _Fork:
    """Several manifests in one place of a chain, which has room for one."""

    several: tuple[StoredManifest, ...]
    #: Their common claim, such as ``follow`` the same manifest.
    what: str

    def leftovers(self, committed: Container[str]) -> Iterator[StoredManifest]:
        """The manifests for which no letter was deleted: the store has committed another one in their place.
        One that replaces a segment is such a leftover only if the committed one replaces the same segment:
        otherwise it may hold the only copy of that segment's letters."""
        known = [one.manifest for one in self.several if one.manifest.segment in committed]
        if len(known) == 1:
            for one in self.several:
                if one.manifest != known[0] and one.manifest.replaces in (None, known[0].replaces):
                    yield one

    def findings(self, leftovers: Container[str]) -> Iterator[Finding]:
        """A finding for each manifest that is not a leftover, unless only one is left."""
        left = [one for one in self.several if one.manifest.segment not in leftovers]
        names = ", ".join(one.manifest.segment for one in left)
        for one in left if len(left) > 1 else ():
            reason = (
                f"{one.key}: {len(left)} manifests {self.what}: {names}. Check with the store that wrote "
                "them: it knows which one counts. Letters of the others may be in later segments, too, and a "
                "restore brings each letter back once."
            )
            yield Finding(key=one.key, problem=Problem.FORK, reason=reason)


@dataclass(frozen=True)
class Chains:
    """All manifests of a place that could be read."""

    #: By chain and number.
    stored: tuple[StoredManifest, ...]
    #: Manifests that could not be read.
    unreadable: tuple[Finding, ...] = ()

    @cached_property
    def by_id(self) -> dict[str, StoredManifest]:
        """The manifests by the id of their segment."""
        return {one.manifest.segment: one for one in self.stored}

    @cached_property
    def replaced(self) -> dict[str, str]:
        """The ids of segments that were replaced, each with that of the one that replaces it."""
        return {
            one.manifest.replaces: one.manifest.segment
            for one in self.stored
            if one.manifest.replaces
        }

    def current(self) -> list[Manifest]:
        """The segments that hold letters, without those that were replaced, in the order in which they were
        made. A segment has the place of the one that it replaces, so letters that were archived later come
        later."""
        held = [one.manifest for one in self.stored if one.manifest.segment not in self.replaced]
        return sorted(held, key=self._place)

    def segment(self, segment_id: str) -> Manifest:
        """The segment with this id, or the one that replaces it.

        :raises UnknownSegment: the archive has none.
        :raises ArchiveDamaged: its manifest is damaged.
        :raises ArchiveNewer: a newer release wrote its manifest.
        """
        known = self.by_id.get(segment_id)
        if known is None:
            raise self._unread(segment_id) or UnknownSegment
        later = self.replaced.get(segment_id)
        return self.segment(later) if later else known.manifest

    def leftovers(self, committed: Container[str]) -> frozenset[str]:
        """The ids of segments that a killed or very late process has put there, and that the store never
        committed. Their letters are in the store, or in later segments.

        :param committed: the ids of the segments that the store has committed.
        """
        found = (one for fork in self._forks() for one in fork.leftovers(committed))
        return frozenset(one.manifest.segment for one in found)

    def findings(self, leftovers: Container[str]) -> Iterator[Finding]:
        """Manifests that cannot be read, gaps, forks and leftovers."""
        yield from self.unreadable
        for one in self.stored:
            yield from self._gap(one)
            if one.manifest.segment in leftovers:
                yield _leftover(one)
        for fork in self._forks():
            yield from fork.findings(leftovers)

    def _unread(self, segment_id: str) -> ArchiveError | None:
        """The error for the manifest of this segment if it could not be read, otherwise None."""
        for finding in self.unreadable:
            if segment_of(finding.key) == segment_id:
                is_newer = finding.problem is Problem.NEWER
                return ArchiveNewer(finding.reason) if is_newer else ArchiveDamaged(finding.reason)
        return None

    def _first(self, manifest: Manifest) -> Manifest:
        """The segment in whose place this one is."""
        before = self.by_id.get(manifest.replaces or "")
        return self._first(before.manifest) if before else manifest

    def _place(self, manifest: Manifest) -> tuple[datetime, str, int]:
        first = self._first(manifest)
        return self._moments[first.segment], first.chain, first.number

    @cached_property
    def _moments(self) -> dict[str, datetime]:
        """The moments by which segments of several chains are ordered: when each was made, or when one before
        it in its chain was, if that is later. So a clock that was set back does not change the order of a
        chain."""
        found = dict[str, datetime]()
        for _chain, several in groupby(self.stored, key=lambda one: one.manifest.chain):
            latest = datetime.min.replace(tzinfo=timezone.utc)
            for one in several:
                found[one.manifest.segment] = latest = max(latest, one.manifest.made_at)
        return found

    def lost(self, committed: Mapping[str, str]) -> Iterator[Finding]:
        """Manifests that should be there.

        :param committed: the segments that the store has committed, each with the SHA-256 of its manifest.
        """
        unread = {segment_of(finding.key) for finding in self.unreadable}
        for segment, expected in committed.items():
            key, found = manifest_key(segment), self.by_id.get(segment)
            if found is None and segment not in unread:
                reason = f"The store has committed {segment}, and {key} is missing; restore it from a backup."
                yield Finding(key=key, problem=Problem.MISSING, reason=reason)
            elif found is not None and found.sha256 != expected:
                reason = f"{key} is not the manifest that the store has committed; restore it from a backup."
                yield Finding(key=key, problem=Problem.DAMAGED, reason=reason)

    def _gap(self, one: StoredManifest) -> Iterator[Finding]:
        previous = one.manifest.previous
        if previous is None:
            return
        before = self.by_id.get(previous.segment)
        if before is None:
            if not any(segment_of(item.key) == previous.segment for item in self.unreadable):
                yield _gap(one, f"the manifest before it, {previous.segment}, does not exist")
        elif before.sha256 != previous.sha256:
            yield _gap(one, f"the manifest before it, {previous.segment}, is another one")
        elif before.manifest.number >= one.manifest.number:
            yield _gap(one, f"the manifest before it, {previous.segment}, has a higher number")

    def _forks(self) -> Iterator[_Fork]:
        following, replacing = defaultdict(list), defaultdict(list)
        for one in self.stored:
            previous = one.manifest.previous
            following[one.manifest.chain, previous.segment if previous else ""].append(one)
            if one.manifest.replaces:
                replacing[one.manifest.replaces].append(one)
        for (_chain, before), several in following.items():
            yield _Fork(tuple(several), f"follow {before}" if before else "begin the chain")
        for before, several in replacing.items():
            yield _Fork(tuple(several), f"replace {before}")


def read_chains(bucket: Bucket) -> Chains:
    """All manifests of a place.

    :raises ArchiveError: the place failed.
    """
    read = [_read_one(bucket, key) for key in bucket.list(MANIFESTS)]
    stored = [one for one in read if isinstance(one, StoredManifest)]
    stored.sort(key=lambda one: (one.manifest.chain, one.manifest.number, one.manifest.segment))
    return Chains(tuple(stored), tuple(one for one in read if isinstance(one, Finding)))


def _read_one(bucket: Bucket, key: str) -> StoredManifest | Finding | None:
    if segment_of(key) is None:
        return _unnamed(key)
    try:
        return decode_manifest(bucket.read(key), key)
    except ArchiveFileMissing:
        return None  # an abandoned segment, whose files were deleted since they were listed
    except UNREADABLE as error:
        return finding_of(key, error)


def _unnamed(key: str) -> Finding:
    reason = f"{key} is not a file of the archive; move it elsewhere."
    return Finding(key=key, problem=Problem.UNNAMED, reason=reason)


def _gap(one: StoredManifest, what: str) -> Finding:
    reason = f"{one.key}: {what}; restore the files of the archive from a backup."
    return Finding(key=one.key, problem=Problem.GAP, reason=reason)


def _leftover(one: StoredManifest) -> Finding:
    reason = (
        f"A process wrote {one.key}, and the store has committed another manifest in its place. No letter "
        f"was deleted for it. Delete {one.key} and {one.manifest.key}."
    )
    return Finding(key=one.key, problem=Problem.LEFTOVER, reason=reason)


_COMMITTED = "The store has committed it, so keep it: it may hold the only copy of its letters."
_UNCOMMITTED = "This store has not committed it, so it deleted no letter for it; others may have."


@dataclass(frozen=True, kw_only=True)
class Verified:
    """The result of a check."""

    #: Segments whose content was read, and their letters and bytes.
    segments: int
    letters: int
    size: int
    findings: tuple[Finding, ...]

    @property
    def damaged(self) -> int:
        """The number of findings that mean that letters cannot be read."""
        return sum(not finding.is_harmless for finding in self.findings)

    @property
    def is_whole(self) -> bool:
        """Whether all letters of the archive can be read."""
        return not self.damaged


def verify(bucket: Bucket, committed: Mapping[str, str]) -> Verified:
    """Check all files. Changes nothing. One segment at a time is in memory.

    :param committed: the segments that the store has committed, each with the SHA-256 of its manifest. The
        files alone do not show that the last ones of a chain are missing.
    :raises ArchiveError: the place failed.
    """
    # Listed first: a segment that is written during the check then has its manifest, or is not in the list.
    segments = bucket.list(SEGMENTS)
    chains = read_chains(bucket)
    leftovers = chains.leftovers(committed)
    findings = [*chains.findings(leftovers), *chains.lost(committed)]
    whole = []
    for manifest in chains.current():
        if manifest.segment in leftovers:
            continue
        finding = _check(bucket, manifest)
        if finding is None:
            whole.append(manifest.facts)
        else:
            findings.append(finding)
    findings += _other_files(segments, chains, committed)
    return Verified(
        segments=len(whole), letters=sum(facts.letters for facts in whole),
        size=sum(facts.size for facts in whole), findings=tuple(findings),
    )  # fmt: skip


def _check(bucket: Bucket, manifest: Manifest) -> Finding | None:
    try:
        check_segment(bucket, manifest)
    except UNREADABLE as error:
        return finding_of(manifest.key, error)
    return None


def _other_files(keys: list[str], chains: Chains, known: Container[object]) -> Iterator[Finding]:
    unread = {segment_of(finding.key) for finding in chains.unreadable}
    for key in keys:
        segment = segment_of(key)
        if segment in chains.replaced:
            reason = (
                f"{key} was replaced by {chains.replaced[segment]}, and still exists; the next run of the "
                "archive deletes it."
            )
            yield Finding(key=key, problem=Problem.REPLACED, reason=reason)
        elif segment is None or (segment not in chains.by_id and segment not in unread):
            reason = (
                f"No manifest names {key}: it is being written now, its writer was killed, or its manifest "
                f"is gone. {_COMMITTED if segment in known else _UNCOMMITTED}"
            )
            yield Finding(key=key, problem=Problem.UNNAMED, reason=reason)
