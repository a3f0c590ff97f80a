"""Reads and writes the files of segments, and checks them each time."""

from __future__ import annotations

from celery_dlq.archive.bucket import Bucket
from celery_dlq.archive.keys import manifest_key
from celery_dlq.archive.manifest import Manifest, StoredManifest, decode_manifest, encode_manifest
from celery_dlq.archive.segment import Facts, facts_of, sha256
from celery_dlq.errors import ArchiveDamaged


def put_segment(bucket: Bucket, key: str, data: bytes, facts: Facts) -> None:
    """Put the file of a segment, and read it back.

    :raises ArchiveError: the place failed, or returned other bytes than were put.
    """
    bucket.put(key, data)
    _check_same(bucket.read(key), facts.sha256, key)


def put_manifest(bucket: Bucket, manifest: Manifest) -> StoredManifest:
    """Put a manifest, and read it back; errors as in :func:`put_segment`."""
    key, data = manifest_key(manifest.segment), encode_manifest(manifest)
    bucket.put(key, data)
    _check_same(bucket.read(key), sha256(data), key)
    return StoredManifest(manifest=manifest, sha256=sha256(data))


def read_manifest(bucket: Bucket, segment_id: str) -> StoredManifest:
    """The manifest of a segment.

    :raises ArchiveFileMissing: the archive does not have it.
    :raises ArchiveDamaged: a byte of it has changed.
    :raises ArchiveNewer: a newer release wrote it.
    """
    key = manifest_key(segment_id)
    return decode_manifest(bucket.read(key), key)


def read_segment(bucket: Bucket, manifest: Manifest) -> bytes:
    """The file of a segment, as its manifest describes it.

    :raises ArchiveFileMissing: the archive does not have it.
    :raises ArchiveDamaged: it is not the file that was put.
    """
    data = bucket.read(manifest.key)
    _check_same(data, manifest.facts.sha256, manifest.key)
    return data


def check_segment(bucket: Bucket, manifest: Manifest) -> bytes:
    """The file of a segment, whose lines have been read and compared with all that its manifest says.

    :raises ArchiveFileMissing: the archive does not have it.
    :raises ArchiveDamaged: it is not the file that was put, or its manifest does not describe it.
    :raises ArchiveNewer: a newer release wrote a line.
    """
    data = read_segment(bucket, manifest)
    found, said = facts_of(data, manifest.key), manifest.facts
    if found != said:
        wrong = [name for name in vars(said) if getattr(found, name) != getattr(said, name)]
        raise ArchiveDamaged(
            f"{manifest.key} and its manifest do not agree about: {', '.join(wrong)}; restore both files "
            "from a backup."
        )
    return data


def _check_same(data: bytes, expected: str, key: str) -> None:
    if sha256(data) != expected:
        raise ArchiveDamaged(
            f"The archive returned other bytes for {key} than were put there: their SHA-256 is "
            f"{sha256(data)} and not {expected}. Check the place of the archive, "
            "then run: celery -A <app> dlq archive verify"
        )
