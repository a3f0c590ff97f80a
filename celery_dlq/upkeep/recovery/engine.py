"""Recovers the messages that processes which are gone have left in the flight recorder's files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from celery_dlq.model.letter import DeadLetter
from celery_dlq.recorder import Accepted, LeftState, Taken, look, taken
from celery_dlq.upkeep.recovery.letters import letter_of_lost
from celery_dlq.upkeep.recovery.outcomes import Outcomes

if TYPE_CHECKING:
    from celery_dlq.store import Store

logger = logging.getLogger(__name__)

#: Letters that are saved together.
BATCH = 100

#: Stores letters; returns the indexes of those that the store refuses.
Save = Callable[[Sequence[DeadLetter]], Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """What was found in the files of one or more processes."""

    #: Processes whose files were recovered.
    processes: int = 0
    #: Messages that are letters now.
    letters: int = 0
    #: Messages that had ended after all.
    ended: int = 0
    #: Messages that the broker may still have, which are left for later.
    waiting: int = 0
    #: Files that are kept, because something in them cannot be read.
    damaged: tuple[Path, ...] = ()
    #: Directories that cannot be read.
    failed: tuple[Path, ...] = ()

    def __add__(self, other: Recovered) -> Recovered:
        return Recovered(
            processes=self.processes + other.processes,
            letters=self.letters + other.letters,
            ended=self.ended + other.ended,
            waiting=self.waiting + other.waiting,
            damaged=self.damaged + other.damaged,
            failed=self.failed + other.failed,
        )


class Recovery:
    """Makes letters of the messages in ``directory``.

    :param wiring: the app's parts, from which letters are made.
    :param save: stores letters that may already be stored.
    :param put_aside: keeps a letter that the store refuses.
    """

    def __init__(
        self,
        app: Any,
        wiring: Any,
        directory: Path,
        *,
        save: Save,
        put_aside: Callable[[DeadLetter], object],
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._now = now
        self._app, self._wiring, self._directory = app, wiring, directory
        self._save, self._put_aside = save, put_aside

    def run(self, store: Callable[[], Store]) -> Iterator[Recovered]:
        """Recover the files of each process that is gone; yields what was found in each. A step that was
        interrupted may be repeated: nothing is doubled.

        :param store: opens the store; called only if there is something to recover.
        :raises StoreError: the store failed; the rest stays for the next time.
        :raises OSError: the directory cannot be read.
        """
        for left in look(self._directory):
            if left.state is not LeftState.GONE:
                continue
            try:
                with taken(left.path) as found:
                    if found is not None:
                        yield self._recover(found, store)
            except OSError as error:
                logger.error("%s cannot be recovered, and stays: %s", left.path, error)  # noqa: TRY400 - the line says why
                yield Recovered(failed=(left.path,))

    def _recover(self, found: Taken, store: Callable[[], Store]) -> Recovered:
        done, outcomes = Recovered(processes=1), None
        waiting: list[tuple[DeadLetter, Callable[[], None]]] = []
        for message, settle in found.messages():
            outcomes = outcomes or Outcomes(self._app, store())
            letter = letter_of_lost(message, self._app, self._wiring)
            how = outcomes.how_ended(message, letter)
            if not how and self._may_come_again(message):
                done += Recovered(waiting=1)
                continue
            if how:
                logger.info(
                    "%s[%s] was running when its worker was killed, but %s",
                    letter.task,
                    letter.task_id,
                    how,
                )
                settle()
                done += Recovered(ended=1)
                continue
            letter = letter_of_lost(message, self._app, self._wiring, remark=outcomes.remark)
            waiting.append((letter, settle))
            if len(waiting) >= BATCH:
                done += self._store(waiting)
                waiting = []
        done += self._store(waiting)
        damaged = found.finish()
        for path in damaged:
            logger.error(
                "%s is damaged; what could be read was recovered, and the file is kept", path
            )
        return done + Recovered(damaged=tuple(damaged))

    def _may_come_again(self, message: Accepted) -> bool:
        """Whether it is too early to tell that the broker has forgotten the message."""
        if message.is_acknowledged:
            return False
        waited_s = (self._now() - message.accepted_at).total_seconds()
        return bool(waited_s < self._wiring.hold.given_back_after_s)

    def _store(self, waiting: Sequence[tuple[DeadLetter, Callable[[], None]]]) -> Recovered:
        letters = [letter for letter, _ in waiting]
        for place in self._save(letters) if letters else ():
            self._put_aside(letters[place])
        for letter, settle in waiting:
            logger.warning(
                "%s[%s] was running when its worker %s was killed: a dead letter now, reason lost",
                letter.task, letter.task_id, letter.worker,
            )  # fmt: skip
            settle()
        return Recovered(letters=len(waiting))
