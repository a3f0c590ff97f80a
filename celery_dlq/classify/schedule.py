"""How often and how long to try again, where a rule says so itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """A rule's own part of the retry schedule. What is None is left to the task."""

    #: Runs in all, the first included.
    max_attempts: int | None = None
    #: Upper bound of the first wait, in seconds; it doubles with each attempt.
    retry_backoff: float | None = None
    #: Upper bound of every wait, in seconds.
    retry_backoff_max: float | None = None
