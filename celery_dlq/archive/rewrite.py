"""Removes letters from the archive, when a person asks for that.

A segment that holds such a letter is replaced by one without it, at the end of the chain. Its file is
deleted. Its manifest stays, so that the chain has no gap.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from celery_dlq.archive.archiving import Archiver
from celery_dlq.archive.bucket import Bucket
from celery_dlq.archive.chain import Chains, read_chains
from celery_dlq.archive.files import check_segment, read_segment
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
    #: Task ids and groups of the letters that were removed.
    removed: tuple[str, ...]
    fingerprints: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Holders:
    """The segments that hold wanted letters."""

    #: Number of such letters by segment.
    own: Mapping[str, int]
    #: The same for segments of other stores.
    others: Mapping[str, int]
    #: Files of this store that cannot be read, and may hold such letters.
    unread: tuple[Finding, ...]


def holders(bucket: Bucket, wanted: Wanted, *, chain: str, committed: Mapping[str, str]) -> Holders:
    """The segments that hold wanted letters. One segment at a time is in memory.

    :param chain: identifies this store.
    :param committed: the segments that this store has committed, each with the SHA-256 of its manifest.
    :raises ArchiveError: the place failed, or a segment is damaged.
    """
    chains = read_chains(bucket)
    found = {
        one.segment: _count(bucket, one, wanted)
        for one in chains.current()
        if wanted.may_be_in(one)
    }
    own = {key: count for key, count in found.items() if count and _is_in(key, chain)}
    return Holders(
        own=own,
        others={key: count for key, count in found.items() if count and key not in own},
        unread=(
            *(one for one in chains.unreadable if _is_of(one.key, chain)),
            *chains.lost(committed),
        ),
    )


def forget(
    bucket: Bucket,
    archiver: Archiver,
    wanted: Wanted,
    *,
    chain: str,
    on_rewritten: Callable[[Rewritten], None] = lambda _: None,
) -> tuple[Rewritten, ...]:
    """Remove the wanted letters from all segments of ``chain``. A process may die at any step: a second run
    ends the work. Segments of other chains belong to other stores, which may be reading them.

    :param archiver: for the same place; its lease is held throughout.
    :param on_rewritten: is called after each segment.
    :raises ArchiveError: the archive failed, or a segment is damaged. The segments before it are rewritten.
    :raises StoreError: the store failed, or the lease was lost.
    """
    archiver.finish()
    # In this order: the manifest of a file in the list is found, if it has one.
    files = bucket.list(SEGMENTS)
    chains = read_chains(bucket)
    _delete_leftovers(bucket, files, chains, chain, archiver.committed())
    done = []
    for manifest in chains.current():
        if manifest.chain == chain and wanted.may_be_in(manifest):
            rewritten = _rewrite(bucket, archiver, manifest, wanted)
            if rewritten is not None:
                on_rewritten(rewritten)
                done.append(rewritten)
    return tuple(done)


def _count(bucket: Bucket, manifest: Manifest, wanted: Wanted) -> int:
    data = read_segment(bucket, manifest)
    return sum(wanted.matches(line) for line in read_lines(data, manifest.key))


def _rewrite(
    bucket: Bucket, archiver: Archiver, manifest: Manifest, wanted: Wanted
) -> Rewritten | None:
    data = check_segment(bucket, manifest)
    lines = read_lines(data, manifest.key)
    removed = [line["letter"] for line in lines if wanted.matches(line)]
    if not removed:
        return None
    kept = (line for line in read_lines(data, manifest.key) if not wanted.matches(line))
    after = archiver.put(*write_segment(kept), replaces=manifest.segment).manifest
    archiver.drop_replaced(after)
    return Rewritten(
        before=manifest.segment,
        after=after,
        removed=tuple(letter["task_id"] for letter in removed),
        fingerprints=frozenset(letter["fingerprint"] for letter in removed),
    )


def _delete_leftovers(
    bucket: Bucket, files: list[str], chains: Chains, chain: str, committed: Collection[str]
) -> None:
    """Delete segments that were replaced, those without a manifest, and parts of segments. All segments that
    a process had begun are ended, so no process waits for one of these. A segment that was committed has lost
    its manifest, and stays."""
    unreadable = {segment_of(finding.key) for finding in chains.unreadable}
    named = unreadable.union(chains.by_id, committed)
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
