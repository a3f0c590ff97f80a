"""The files of the archive: their names, their manifests, and their problems. Each read checks a file.

A segment counts once its manifest is in place. The manifest says which letters the segment holds, and which
segment comes before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import Enum
from importlib.metadata import version
from typing import Any

from celery_dlq.archive.bucket import Bucket
from celery_dlq.archive.segment import Facts, Ids, Span, facts_of, moment, sha256
from celery_dlq.errors import ArchiveDamaged, ArchiveError, ArchiveFileMissing, ArchiveNewer
from celery_dlq.store.base import Segment


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


SEGMENTS, MANIFESTS = "segments", "manifests"

_ID = "[0-9a-f]{8}-[0-9]{8}-[0-9a-f]{8}"
_SEGMENT = re.compile(rf"{SEGMENTS}/({_ID})\.jsonl\.zst")
_PART = re.compile(rf"\w+/({_ID})\.(?:jsonl\.zst|json)\.[0-9a-f]+\.part")
_MANIFEST = re.compile(rf"{MANIFESTS}/({_ID})\.json")


def segment_key(segment_id: str) -> str:
    """The key of the lines of a segment."""
    return f"{SEGMENTS}/{segment_id}.jsonl.zst"


def manifest_key(segment_id: str) -> str:
    """The key of the manifest of a segment."""
    return f"{MANIFESTS}/{segment_id}.json"


def segment_of(key: str) -> str | None:
    """The id of the segment whose lines or manifest ``key`` names; None for other files."""
    match = _SEGMENT.fullmatch(key) or _MANIFEST.fullmatch(key)
    return match[1] if match else None


def part_of(key: str) -> str | None:
    """The id of the segment of whose lines or manifest ``key`` is a part: a process was killed while it
    wrote the file to a local disk. None for other files."""
    match = _PART.fullmatch(key)
    return match[1] if match else None


#: The format of manifests, as far as this release knows it.
MANIFEST_FORMAT = 1

#: The field with the SHA-256 of the manifest without that field. Every format has it, and ``format``.
_SELF = "self"


@dataclass(frozen=True, kw_only=True)
class Previous:
    """The segment before this one in its chain, and the SHA-256 of its manifest."""

    segment: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The contents of a segment, and its place in the chain."""

    segment: str
    chain: str
    number: int
    #: None for the first of a chain.
    previous: Previous | None
    #: The id of the segment whose letters this one holds, without those that were forgotten.
    replaces: str | None
    #: Name and version of the software that wrote it.
    software: str
    made_at: datetime
    facts: Facts

    @property
    def key(self) -> str:
        """The key of the segment's file."""
        return segment_key(self.segment)


@dataclass(frozen=True, kw_only=True)
class StoredManifest:
    """A manifest in the archive."""

    manifest: Manifest
    #: The hash of its file. The next manifest names it.
    sha256: str

    @property
    def key(self) -> str:
        """The key of the manifest's file."""
        return manifest_key(self.manifest.segment)


def make_manifest(
    segment: Segment, facts: Facts, *, now: datetime, replaces: str | None = None
) -> Manifest:
    """The manifest of a segment that the store has begun."""
    previous = Previous(segment=segment.previous_id, sha256=segment.previous)
    return Manifest(
        segment=segment.id, chain=segment.chain, number=segment.number,
        previous=previous if segment.previous_id else None, replaces=replaces,
        software=f"celery-dlq {version('celery-dlq')}", made_at=now, facts=facts,
    )  # fmt: skip


def encode_manifest(manifest: Manifest) -> bytes:
    """The file of a manifest."""
    facts = asdict(manifest.facts)
    for name in ("closed", "failed"):
        facts[name] = {"from": facts[name]["from_"], "until": facts[name]["until"]}
    return _canonical(
        {
            "format": MANIFEST_FORMAT,
            "segment": manifest.segment,
            "chain": manifest.chain,
            "number": manifest.number,
            "previous": asdict(manifest.previous) if manifest.previous else None,
            "replaces": manifest.replaces,
            "key": manifest.key,
            "software": manifest.software,
            "made_at": manifest.made_at.isoformat(),
            **facts,
        }
    )


def decode_manifest(data: bytes, key: str) -> StoredManifest:
    """The manifest in the file ``key``.

    :raises ArchiveDamaged: a byte of the file has changed, or it is the file of another segment.
    :raises ArchiveNewer: a newer release wrote it.
    """
    fields = _checked_fields(data, key)
    try:
        manifest = _manifest(fields)
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(key, f"{type(error).__name__}: {error}") from error
    if manifest_key(manifest.segment) != key or fields["key"] != manifest.key:
        raise _damaged(key, f"it is the manifest of {manifest.segment}")
    return StoredManifest(manifest=manifest, sha256=sha256(data))


def _checked_fields(data: bytes, key: str) -> Mapping[str, Any]:
    """The fields of a manifest whose bytes are as they were written."""
    try:
        fields = json.loads(data)
        said = fields.pop(_SELF)
        is_whole = _canonical(fields) == data
        is_newer = fields["format"] > MANIFEST_FORMAT
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _damaged(key, f"{type(error).__name__}: {error}") from error
    if not is_whole:
        raise _damaged(key, f"its content does not have the SHA-256 {said}")
    if is_newer:
        raise ArchiveNewer(
            f"A newer release wrote {key}, and it is left alone; run: pip install --upgrade celery-dlq"
        )
    return fields  # type: ignore[no-any-return]


def _canonical(fields: Mapping[str, Any]) -> bytes:
    named = {**fields, _SELF: sha256(_json(fields))}
    return _json(named) + b"\n"


def _json(fields: Mapping[str, Any]) -> bytes:
    text = json.dumps(
        fields, ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":")
    )
    return text.encode("ascii")


def _manifest(fields: Mapping[str, Any]) -> Manifest:
    previous = fields["previous"]
    return Manifest(
        segment=fields["segment"], chain=fields["chain"], number=fields["number"],
        previous=Previous(**previous) if previous else None, replaces=fields["replaces"],
        software=fields["software"], made_at=moment(fields["made_at"]), facts=_facts(fields),
    )  # fmt: skip


def _facts(fields: Mapping[str, Any]) -> Facts:
    return Facts(
        letters=fields["letters"], size=fields["size"], raw_size=fields["raw_size"],
        sha256=fields["sha256"], ids=Ids(**fields["ids"]), closed=_span(fields["closed"]),
        failed=_span(fields["failed"]), tasks=fields["tasks"], schema=fields["schema"],
    )  # fmt: skip


def _span(fields: Mapping[str, str]) -> Span:
    return Span(from_=fields["from"], until=fields["until"])


def _damaged(key: str, why: str) -> ArchiveDamaged:
    return ArchiveDamaged(f"{key} is damaged ({why}); restore the file from a backup.")


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
