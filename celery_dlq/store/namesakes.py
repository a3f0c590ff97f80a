"""Messages of different tasks under one id: two apps that share a store and number their tasks, a task
that replaced itself by another. Each has a letter of its own, or one message would be lost."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from celery_dlq.letter import DeadLetter
from celery_dlq.store import tables
from celery_dlq.store.merge import redrive_of
from celery_dlq.store.rows import fit, stored_id


def named_apart(batch: Sequence[DeadLetter], owners: Mapping[str, str]) -> list[DeadLetter]:
    """``batch`` with other ids for letters that would meet one of another task.

    What was redriven is never renamed: it names its letter.

    :param batch: in the order in which letters are merged.
    :param owners: the tasks of the open letters that are stored, by id.
    """
    tasks, apart = dict(owners), []
    for letter in batch:
        owner = tasks.setdefault(letter.task_id, letter.task)
        same = owner == letter.task or owner == _stored_name(letter.task) or redrive_of(letter) > 0
        apart.append(letter if same else letter.with_(task_id=other_id(letter)))
    return apart


def other_id(letter: DeadLetter) -> str:
    """The id of a letter whose own is another task's: the same for every delivery of the message."""
    digest = hashlib.blake2b(letter.task.encode("utf-8", "surrogatepass"), digest_size=4)
    return stored_id(f"{letter.task_id}~{digest.hexdigest()}")


def _stored_name(task: str) -> str:
    return str(fit(tables.letter, {"task": task})["task"])
