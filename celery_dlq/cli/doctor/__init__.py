"""Health checks: ``doctor`` examines an installation for people. The app and the store enter; findings and an
exit status leave. Nothing is changed. This module has the findings, and helpers that several checks share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from celery_dlq.cli.exits import one_line
from celery_dlq.errors import CeleryDLQError
from celery_dlq.view.text import some

#: Seconds to wait for the broker.
BROKER_TIMEOUT_S = 3

#: Tasks that a finding lists.
_NAMED = 5


class Level(str, Enum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """The result of a check: one line, with the next step if there is one."""

    level: Level
    text: str


Findings = Iterator[Finding]


def ok(text: str) -> Finding:
    """A part that works."""
    return Finding(Level.OK, text)


def warning(text: str) -> Finding:
    """A part that may do harm."""
    return Finding(Level.WARNING, text)


def failure(text: str) -> Finding:
    """A part that does not work."""
    return Finding(Level.ERROR, text)


def why_not_writable(directory: Path) -> str:
    """Why no file could be made in ``directory``, or it could not be made itself; empty if it could."""
    nearest = next(path for path in (directory, *directory.parents) if path.exists())
    try:
        # Permissions alone do not reveal a file system that is read-only, full, or not made for files.
        Path(tempfile.mkdtemp(prefix=".celery_dlq-", dir=nearest)).rmdir()
    except OSError as error:
        return f"{nearest} is not writable ({error.strerror})"
    return ""


def judged(problem: str, fine: str) -> Finding:
    """A warning about ``problem``; if it is empty, that the part works."""
    return warning(problem) if problem else ok(fine)


def worker_facts(statistics: Any, name: str) -> Mapping[str, Any]:
    """The facts ``name`` in the statistics of a worker with this package; empty for another worker."""
    own = (statistics or {}).get("dlq") or {}
    found: Mapping[str, Any] = own.get(name) or {}
    return found


def named(names: Iterable[str]) -> str:
    """The first few names, and the number of the others."""
    return some(sorted(names), _NAMED)


def said(error: Exception) -> str:
    """``error`` on one line."""
    named = str(error) if isinstance(error, CeleryDLQError) else f"{type(error).__name__}: {error}"
    return one_line(named)
