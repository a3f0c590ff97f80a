"""Checks all files of the archive: every byte of every segment and manifest, and how they belong together."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

from celery_dlq.archive.bucket import Bucket
from celery_dlq.archive.chain import Chains, read_chains
from celery_dlq.archive.files import SEGMENTS, Manifest, check_segment, segment_of
from celery_dlq.archive.finding import UNREADABLE, Finding, Problem, finding_of

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
        """How many findings mean that letters cannot be read."""
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
