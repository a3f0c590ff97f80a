"""A line in the worker's log for each letter that was written, with a logger of its own."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import State
from celery_dlq.spool.segment import Record

#: Give it a level of its own, or switch it off, in the configuration of ``logging``.
logger: logging.Logger = logging.getLogger("celery_dlq.letters")

#: The most lines in each of these spans of seconds. In a storm, the other letters are counted.
MOST, SPAN_S = 20, 1.0


class Notices:
    """Writes the lines, and how many letters had none. One thread at a time may use it."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._until, self._said, self._others = float("-inf"), 0, 0

    def log(self, records: Sequence[Record]) -> None:
        """Log the dead letters among ``records``, which are in the store or in the spool."""
        if not logger.isEnabledFor(logging.INFO):
            return
        for record in records:
            if isinstance(record, DeadLetter) and record.state is not State.PARKED:
                self._log(record)

    def _log(self, letter: DeadLetter) -> None:
        self.log_others()
        if self._is_over():
            self._until, self._said = self._monotonic() + SPAN_S, 0
        if self._said >= MOST:
            self._others += 1
            return
        self._said += 1
        # Names may come from a hostile message, and repr() leaves no control characters in them.
        logger.info(
            "dead letter %s of task %s: %s, %s by rule %s", *(
                repr(str(one))[1:-1]
                for one in (
                    letter.task_id, letter.task, letter.reason.value,
                    letter.exception_type, letter.explanation.rule,
                )
            ),
        )  # fmt: skip

    def log_others(self, *, at_once: bool = False) -> None:
        """Log how many letters had no line of their own, once their span is over, or at once."""
        if self._others and (at_once or self._is_over()):
            logger.info("dead letters without a line of their own: %d", self._others)
            self._others = 0

    def _is_over(self) -> bool:
        return self._monotonic() >= self._until
