"""How a run ended, as the process that ran the body reports it to the worker's parent.

It travels as one attribute of the ``ExceptionInfo`` of the run, the only object that reaches the parent in
every case. Both processes run the same release, so the value needs no other form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from celery_dlq.model.letter import Failure, Parking


@dataclass(frozen=True)
class RunEnd:
    """The end of a run that did not succeed."""

    #: The failure that its message died of; None if it did not die.
    failure: Failure | None = None
    #: Whether another message takes the place of this one.
    retried: bool = False
    #: Whether it was retried for an error. A body may also ask to run again later without one.
    for_error: bool = False
    #: The rule that decided for the retry.
    rule: str = ""
    #: The retry, if the parent has to park it in the store.
    parking: Parking | None = None


#: The end of a run that reported none: its process died, or Celery failed before the body.
UNREPORTED = RunEnd()


def report(einfo: Any, end: RunEnd) -> None:
    """Let ``end`` travel to the parent on ``einfo``."""
    einfo.dlq_end = end


def reported(einfo: Any) -> RunEnd:
    """The end that ``einfo`` carries."""
    end: RunEnd = vars(einfo).get("dlq_end", UNREPORTED)
    return end
