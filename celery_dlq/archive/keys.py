"""The names of the archive's files. All are made from the id of a segment."""

from __future__ import annotations

import re

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
