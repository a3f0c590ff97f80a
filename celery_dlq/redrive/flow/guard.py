"""Decides when an operation stops by itself because its letters fail again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from celery_dlq.model.operation import Counts, Guard, Sending, SendingState

#: Letters that a cause names one by one.
_NAMED = 3


def judged(guard: Guard, counts: Counts, canary: int) -> int:
    """How many of the newest endings :func:`why_stop` has to judge: at most a window, without those of the
    canary, whose successes would hide later failures."""
    ended = counts.succeeded + counts.failed
    return max(0, min(max(guard.window, guard.in_a_row), ended - canary))


def least_of(guard: Guard) -> int:
    """The outcomes that a failure ratio is a share of, at least. A window never holds more than its size."""
    return min(guard.least, guard.window)


def why_stop(guard: Guard, endings: Sequence[Sending]) -> str | None:
    """Why an operation with these ``endings``, newest first, must stop; None if it may continue."""
    if not guard.enabled:
        return None
    return (
        _failed_in_a_row(guard, endings)
        or _failed_too_often(guard, endings[: guard.window])
        or _failed_the_same_way(guard, endings[: guard.window])
    )


def why_no_more(canary: int, counts: Counts, endings: Sequence[Sending]) -> str | None:
    """Why no letter may be sent after a canary of this many letters; None if letters may be sent, or while
    that is undecided."""
    if canary and canary_is_out(canary, counts):
        failed = _failed(endings)
        if failed:
            return f"the canary failed: {_letters(failed)}"
        if counts.unknown:
            return f"{counts.unknown} of the canary have no outcome"
    return None


def canary_is_out(canary: int, counts: Counts) -> bool:
    """Whether at most the canary has been sent."""
    return counts.out <= canary


def canary_succeeded(canary: int, counts: Counts) -> bool:
    """Whether more than the canary may be sent. If more has been sent already, an earlier run saw it
    succeed."""
    return not canary_is_out(canary, counts) or counts.succeeded >= canary


def _failed_in_a_row(guard: Guard, endings: Sequence[Sending]) -> str | None:
    row = endings[: guard.in_a_row]
    if len(row) < guard.in_a_row or len(_failed(row)) < len(row):
        return None
    return f"{len(row)} in a row came back: {_letters(row)}"


def _failed_too_often(guard: Guard, endings: Sequence[Sending]) -> str | None:
    failed = _failed(endings)
    # Before the guard has enough outcomes, it assumes that all others succeed.
    if len(failed) < guard.ratio * max(len(endings), least_of(guard)):
        return None
    return f"{len(failed)} of the last {len(endings)} came back: {_letters(failed)}"


def _failed_the_same_way(guard: Guard, endings: Sequence[Sending]) -> str | None:
    failed = [ending for ending in _failed(endings) if ending.fingerprint]
    for fingerprint, count in Counter(ending.fingerprint for ending in failed).most_common(1):
        if count >= least_of(guard):
            same = [ending for ending in failed if ending.fingerprint == fingerprint]
            return f"{count} of the last {len(endings)} came back the same way: {_letters(same)}"
    return None


def _failed(endings: Sequence[Sending]) -> list[Sending]:
    return [ending for ending in endings if ending.state is SendingState.FAILED]


def _letters(failed: Sequence[Sending]) -> str:
    """The most frequent failure, and the letters that came back."""
    [(fingerprint, count)] = Counter(ending.fingerprint for ending in failed).most_common(1)
    example = next(ending for ending in failed if ending.fingerprint == fingerprint)
    most = "" if count == len(failed) else f"{count} times "
    ids = ", ".join(ending.task_id for ending in failed[:_NAMED])
    more = f" and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
    group = f" (group {fingerprint})" if fingerprint else ""
    return f"{most}{example.why}{group}; letters {ids}{more}"
