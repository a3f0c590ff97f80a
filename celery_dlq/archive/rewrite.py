"""Removes letters from the archive, when a person asks for that.

A segment that holds such a letter is replaced by one without it, at the end of the chain. Its file is
deleted. Its manifest stays, so that the chain has no gap.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from celery_dlq.archive.archiving import Archiver
from celery_dlq.archive.bucket import Bucket
from celery_dlq.archive.chain import Chains, read_chains
from celery_dlq.archive.files import (
    SEGMENTS,
    UNREADABLE,
    Finding,
    Manifest,
    check_segment,
    finding_of,
    part_of,
    read_segment,
    segment_of,
)
from celery_dlq.archive.reading import Wanted
from celery_dlq.archive.segment import Line, read_lines, write_segment


@dataclass(frozen=True, kw_only=True)
class Rewritten:
    """A segment that was replaced."""

    before: str
    after: Manifest
    #: Task ids of the letters that were removed.
    removed: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Holders:
    """The segments that hold wanted letters."""

    #: The task ids of such letters by segment.
    own: Mapping[str, tuple[str, ...]]
    #: Number of such letters in segments of other stores.
    others: Mapping[str, int]
    #: Files that cannot be read, and may hold such letters.
    unread: tuple[Finding, ...]


def holders(bucket: Bucket, wanted: Wanted, *, chain: str, committed: Mapping[str, str]) -> Holders:
    """The segments that hold wanted letters. One segment at a time is in memory.

    :param chain: identifies this store.
    :param committed: the segments that this store has committed, each with the SHA-256 of its manifest.
    :raises ArchiveError: the place failed.
    """
    chains = read_chains(bucket)
    found, unread = dict[str, tuple[str, ...]](), [*chains.unreadable, *chains.lost(committed)]
    for manifest in chains.current():
        if wanted.may_be_in(manifest):
            try:
                found[manifest.segment] = _ids_in(bucket, manifest, wanted)
            except UNREADABLE as error:
                unread.append(finding_of(manifest.key, error))
    own = {key: ids for key, ids in found.items() if ids and _is_in(key, chain)}
    others = {key: len(ids) for key, ids in found.items() if ids and key not in own}
    return Holders(own=own, others=others, unread=tuple(unread))


def forget(
    bucket: Bucket,
    archiver: Archiver,
    wanted: Wanted,
    *,
    chain: str,
    before: Callable[[Sequence[Line]], None] = lambda _: None,
    after: Callable[[Rewritten], None] = lambda _: None,
) -> tuple[Rewritten, ...]:
    """Remove the wanted letters from all segments of ``chain`` that can be read. A process may die at any
    step: a second run ends the work. Segments of other chains belong to other stores, which may be reading
    them.

    :param archiver: for the same place; its lease is held throughout.
    :param before: is given the lines of a segment that are about to be removed.
    :param after: is given each segment that was replaced.
    :raises ArchiveError: the archive failed. The segments before that are rewritten.
    :raises StoreError: the store failed, or the lease was lost.
    """
    archiver.finish()
    # In this order: the manifest of a file in the list is found, if it has one.
    files = bucket.list(SEGMENTS)
    chains = read_chains(bucket)
    _delete_leftovers(bucket, files, chains, chain, archiver.segments_to_keep())
    done = []
    for manifest in chains.current():
        if manifest.chain == chain and wanted.may_be_in(manifest):
            removed = _removed_from(bucket, manifest, wanted)
            if removed:
                before(removed)
                done.append(_rewrite(bucket, archiver, manifest, wanted, removed))
                after(done[-1])
    return tuple(done)


def _ids_in(bucket: Bucket, manifest: Manifest, wanted: Wanted) -> tuple[str, ...]:
    lines = read_lines(read_segment(bucket, manifest), manifest.key)
    return tuple(line["letter"]["task_id"] for line in lines if wanted.matches(line))


def _removed_from(bucket: Bucket, manifest: Manifest, wanted: Wanted) -> list[Line]:
    """The lines to remove; none if the segment cannot be read."""
    try:
        lines = read_lines(read_segment(bucket, manifest), manifest.key)
        removed: list[Line] = [line for line in lines if wanted.matches(line)]
        if removed:
            check_segment(bucket, manifest)
    except UNREADABLE:
        return []
    return removed


def _rewrite(
    bucket: Bucket, archiver: Archiver, manifest: Manifest, wanted: Wanted, removed: list[Line]
) -> Rewritten:
    lines = read_lines(read_segment(bucket, manifest), manifest.key)
    kept = (line for line in lines if not wanted.matches(line))
    after = archiver.put(*write_segment(kept), replaces=manifest.segment).manifest
    archiver.drop_replaced(after)
    ids = tuple(line["letter"]["task_id"] for line in removed)
    return Rewritten(before=manifest.segment, after=after, removed=ids)


def _delete_leftovers(
    bucket: Bucket, files: list[str], chains: Chains, chain: str, kept: Collection[str]
) -> None:
    """Delete segments that were replaced, those without a manifest, and parts of segments.

    :param kept: segments that the store knows: without a manifest, they have lost it, or another process has
        taken the lease and is writing it.
    """
    unreadable = {segment_of(finding.key) for finding in chains.unreadable}
    named = unreadable.union(chains.by_id, kept)
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
    return segment is not None and _is_in(segment, chain)


def _is_in(segment: str, chain: str) -> bool:
    return segment.startswith(f"{chain}-")
