"""Removes letters from the archive, when a person asks for that.

A segment that holds such a letter is replaced by one without it, at the end of the chain. Its file is
deleted. Its manifest stays, so that the chain has no gap.
"""

from __future__ import annotations

from dataclasses import dataclass

from celery_dlq.archive.archiving import Archiver
from celery_dlq.archive.bucket import Bucket
from celery_dlq.archive.chain import Chains, read_chains
from celery_dlq.archive.files import check_segment
from celery_dlq.archive.finding import Finding
from celery_dlq.archive.keys import SEGMENTS, part_of, segment_of
from celery_dlq.archive.manifest import Manifest
from celery_dlq.archive.reading import Wanted
from celery_dlq.archive.segment import read_lines, write_segment


@dataclass(frozen=True, kw_only=True)
class Rewritten:
    """A segment that was replaced."""

    before: str
    after: Manifest
    #: Task ids of the letters that were removed.
    removed: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Forgotten:
    """The result of removing letters."""

    rewritten: tuple[Rewritten, ...]
    #: Manifests that cannot be read: their segments may hold such letters.
    unread: tuple[Finding, ...]


def forget(bucket: Bucket, archiver: Archiver, wanted: Wanted, *, chain: str) -> Forgotten:
    """Remove the wanted letters from all segments of ``chain``. A process may die at any step: a second run
    ends the work. Segments of other chains belong to other stores, which may be reading them.

    :param archiver: for the same place; its lease is held throughout.
    :raises ArchiveError: the archive failed, or a segment is damaged. The segments before it are rewritten.
    :raises StoreError: the store failed, or the lease was lost.
    """
    archiver.finish()
    # In this order: the manifest of a file in the list is found, if it has one.
    files = bucket.list(SEGMENTS)
    chains = read_chains(bucket)
    _delete_leftovers(bucket, files, chains, chain)
    concerned = [one for one in chains.current() if one.chain == chain and wanted.may_be_in(one)]
    rewritten = [_rewrite(bucket, archiver, manifest, wanted) for manifest in concerned]
    return Forgotten(
        rewritten=tuple(one for one in rewritten if one is not None),
        unread=tuple(one for one in chains.unreadable if _is_of(one.key, chain)),
    )


def _rewrite(
    bucket: Bucket, archiver: Archiver, manifest: Manifest, wanted: Wanted
) -> Rewritten | None:
    data = check_segment(bucket, manifest)
    removed = [
        line["letter"]["task_id"] for line in read_lines(data, manifest.key) if wanted.matches(line)
    ]
    if not removed:
        return None
    kept = (line for line in read_lines(data, manifest.key) if not wanted.matches(line))
    after = archiver.put(*write_segment(kept), replaces=manifest.segment).manifest
    archiver.drop_replaced(after)
    return Rewritten(before=manifest.segment, after=after, removed=tuple(removed))


def _delete_leftovers(bucket: Bucket, files: list[str], chains: Chains, chain: str) -> None:
    """Delete segments that were replaced, those without a manifest, and parts of segments. All segments that
    a process had begun are ended, so no process waits for one of these."""
    named = {segment_of(finding.key) for finding in chains.unreadable}.union(chains.by_id)
    for key in files:
        if not _is_of(key, chain):
            continue
        segment = segment_of(key)
        if segment in chains.replaced:
            check_segment(bucket, chains.segment(segment))
            bucket.delete(key)
        elif segment is None or segment not in named:
            bucket.delete(key)


def _is_of(key: str, chain: str) -> bool:
    segment = segment_of(key) or part_of(key)
    return segment is not None and segment.startswith(f"{chain}-")
