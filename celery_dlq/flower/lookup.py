"""Letters and operations by the beginning of their id, as the command line takes them."""

from __future__ import annotations

from collections.abc import Sequence

from celery_dlq.errors import AmbiguousId, UnknownLetter, UnknownOperation
from celery_dlq.letter import DeadLetter
from celery_dlq.redact import clip
from celery_dlq.store.base import Operation, Store

#: Ids that are named when a beginning fits more than one.
_CANDIDATES = 10

#: Characters of an id that an error repeats.
_SHOWN = 80


def full_id(store: Store, beginning: str) -> str:
    """The task id that begins like this.

    :raises UnknownLetter: there is none.
    :raises AmbiguousId: there are several, and none is ``beginning`` itself.
    """
    found = store.match_ids(beginning, limit=_CANDIDATES + 1)
    if not found:
        raise UnknownLetter(
            f"No dead letter has the id {clip(beginning, _SHOWN)!r}, or one that begins like this."
        )
    return _only(beginning, found)


def whole_letter(store: Store, beginning: str) -> DeadLetter:
    """The letter whose id begins like this.

    :raises UnknownLetter: there is none.
    :raises AmbiguousId: there are several.
    """
    # An id that the store has written otherwise (it is too long, or holds NUL) is found only so.
    letter = store.get(beginning) or store.get(full_id(store, beginning))
    if letter is None:
        raise UnknownLetter
    return letter


def whole_operation(store: Store, beginning: str) -> Operation:
    """The operation whose id begins like this.

    :raises UnknownOperation: there is none.
    :raises AmbiguousId: there are several.
    """
    found = store.match_operations(beginning, limit=_CANDIDATES + 1)
    operation = store.operation(_only(beginning, found)) if found else None
    if operation is None:
        raise UnknownOperation(
            f"No operation has the id {clip(beginning, _SHOWN)!r}, or one that begins like this."
        )
    return operation


def _only(beginning: str, found: Sequence[str]) -> str:
    if beginning in found or len(found) == 1:
        return beginning if beginning in found else found[0]
    more = " and more" if len(found) > _CANDIDATES else ""
    named = ", ".join(found[:_CANDIDATES])
    raise AmbiguousId(
        f"More than one id begins with {clip(beginning, _SHOWN)!r}: {named}{more}; "
        "give more characters."
    )
