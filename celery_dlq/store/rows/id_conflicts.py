"""Messages of different tasks with the same id. They come from two apps that share a store and number their
tasks, or from a task that replaced itself with another one. Each message gets a letter of its own; otherwise
one would be lost."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from celery_dlq.model.letter import DeadLetter
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
        same = (
            owner == letter.task
            or owner == fit_text(tables.letter.c.task, letter.task)
            or redrive_of(letter) > 0
        )
        apart.append(letter if same else letter.with_(task_id=other_id(letter)))
    return apart


def other_id(letter: DeadLetter) -> str:
    """The id of a letter whose own id belongs to another task. It is the same for every delivery of the
    message."""
    digest = hashlib.blake2b(letter.task.encode("utf-8", "surrogatepass"), digest_size=4)
    return stored_id(f"{letter.task_id}~{digest.hexdigest()}")
