"""A delivery that was started: what is remembered of it until its run comes to an end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """One handing-over of a message, whose run was started and has no end that is known, or ended in
    the death of its process. A run that ends in any other way is forgotten."""

    task_id: str
    #: Name of the task: ids are not unique where two apps share a store.
    task: str
    #: Which redrive the message belongs to; 0 is the original message.
    redrive: int
    #: The attempt that the message asks for: Celery's ``retries`` + 1.
    attempt: int
    #: 1 for the first delivery, which is on record only when its process was seen to die.
    number: int
    started_at: datetime
    #: Node name of the worker, and what identifies its parent process on its machine.
    worker: str
    process: str
    #: Whether nothing else ran in that worker.
    alone: bool = False
    #: What the worker's parent saw it die of; empty when nobody was left to see.
    death: str = ""

    @property
    def is_its_own(self) -> bool:
        """Whether its end, if it has none, can be the doing of no other message."""
        return self.alone or bool(self.death)
