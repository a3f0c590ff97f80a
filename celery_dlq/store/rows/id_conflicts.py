"""Messages of different tasks with the same id. They come from two apps that share a store and number their
tasks, or from a task that replaced itself with another one. Each message gets a letter of its own; otherwise
one would be lost."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from celery_dlq.model.letter import DeadLetter, Outcome
from celery_dlq.store.database import tables
from celery_dlq.store.rows.merge import redrive_of
from celery_dlq.store.rows.rows import fit_text, stored_id


def named_apart(batch: Sequence[DeadLetter], owners: Mapping[str, str]) -> list[DeadLetter]:
    """``batch`` with other ids for letters whose ids belong to letters of another task.

    The letter of a redriven message is never renamed, because the message names it.

    :param batch: in the order in which letters are merged.
    :param owners: the tasks of the open letters that are stored, by id.
    """
    tasks, apart = dict(owners), []
    for letter in batch:
        owner = tasks.setdefault(letter.task_id, letter.task)
        same = _is_of(owner, letter.task) or redrive_of(letter) > 0
        other = letter if same else letter.with_(task_id=other_id(letter.task_id, letter.task))
        apart.append(other)
    return apart


def ids_of_success(outcome: Outcome) -> list[str]:
    """The ids that the letter of a success may have."""
    own = stored_id(outcome.task_id)
    # The message of a redrive names its letter, and may have been sent to another task.
    if outcome.redrive or not outcome.task:
        return [own]
    return [own, other_id(outcome.task_id, outcome.task)]


def letter_of_success(outcome: Outcome, owners: Mapping[str, str]) -> str:
    """The id of the letter that a success is of.

    :param owners: the tasks of the letters that are stored under :func:`ids_of_success`, by id.
    """
    own, *other = ids_of_success(outcome)
    return other[0] if other and not _is_of(owners.get(own), outcome.task) else own


def other_id(task_id: str, task: str) -> str:
    """The id of a letter of ``task`` if its own id belongs to another task. It is the same for every delivery
    of the message."""
    digest = hashlib.blake2b(task.encode("utf-8", "surrogatepass"), digest_size=4)
    return stored_id(f"{task_id}~{digest.hexdigest()}")


def _is_of(owner: str | None, task: str) -> bool:
    """Whether ``owner``, a stored name, is that of ``task``."""
    return owner == task or owner == fit_text(tables.letter.c.task, task)
