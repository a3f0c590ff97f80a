"""A started delivery: the record that is kept until its run ends."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

#: Begins the "cause of death" of a run whose own code gave the message back.
GIVEN_BACK = "given back by its task"


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """A delivery of a message whose run has started. It is forgotten when the run ends, unless the run ended
    with the death of its process, or gave the message back."""

    task_id: str
    #: Name of the task, because ids are not unique if two apps share a store.
    task: str
    #: Which redrive the message belongs to; 0 is the original message.
    redrive: int
    #: The attempt that the message asks for: Celery's ``retries`` + 1.
    attempt: int
    #: 1 for the first delivery, which is recorded only if a worker saw its process die.
    number: int
    started_at: datetime
    #: Node name of the worker, and an id of its parent process on its machine.
    worker: str
    process: str
    #: Whether nothing else ran in that worker.
    alone: bool = False
    #: The cause of death that the worker's parent saw; empty if the parent died, too.
    death: str = ""

    @property
    def is_to_blame(self) -> bool:
        """Whether only this message can have killed its process, if its run has no end."""
        return self.alone or bool(self.death)

    @property
    def is_given_back(self) -> bool:
        """Whether it ended, and its own code gave the message back. Such runs are counted by themselves."""
        return self.death.startswith(GIVEN_BACK)
