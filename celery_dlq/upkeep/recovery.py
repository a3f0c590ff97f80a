"""Recovers messages from the flight recorder's files of processes that no longer run. Messages that the
broker still keeps for such a process are given back to it; the others become letters."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from celery_dlq.errors import CeleryDLQError, ContentsSealed
from celery_dlq.model.headers import redrive_of
from celery_dlq.model.letter import DeadLetter, Outcome, digest_of
from celery_dlq.model.worker import RecorderReport
from celery_dlq.recorder.files import LockedFiles, directories, locked_files
from celery_dlq.recorder.owner import Looker, pool_may_run, ran_on_this_boot, remove_half_made
from celery_dlq.recorder.segment import CopiedMessage
from celery_dlq.recorder.tags import forget_noted, has_noted, noted_in
from celery_dlq.spool.segment import Record
from celery_dlq.upkeep.lost_messages import Outcomes, Reporter, letter_of_lost, stuck, waiting
from celery_dlq.upkeep.periodic import Periodic
from celery_dlq.worker.celery_quirks.unacked import Whereabouts
from celery_dlq.worker.celery_quirks.visibility import kind_of

if TYPE_CHECKING:
    from celery_dlq.store import Store


logger: logging.Logger = logging.getLogger(__name__)


class GiveBack:
    """Gives messages back on the broker of ``app``. Those of another broker stay, for a worker there.

    :param is_on: ``dlq_restore_unacked``; without it, the visibility timeout decides.
    """

    def __init__(self, app: Any, *, is_on: bool = True) -> None:
        self._app, self._is_on, self._trouble = app, is_on, ""

    def run(self, found: LockedFiles) -> Mapping[str, Whereabouts]:
        """Give back the messages of a process that is gone. Returns where each message is now, by its tag.
        The notes stay for later if the broker is away, or if the pool of that process may still run a
        message."""
        directory = found.directory
        if not (self._is_on and found.ran_here and has_noted(directory)):
            # Of another machine, it will never be certain that its pool is gone. Without notes, the directory
            # is removed.
            forget_noted(directory, "*")
            return {}
        if pool_may_run(directory):
            return {}
        try:
            given = self._give_back(found)
        except Exception as error:  # noqa: BLE001 - transports raise anything
            if str(error) != self._trouble:
                self._trouble = str(error)
                logger.error(  # noqa: TRY400 - the message names the cause
                    "messages of the killed worker %s cannot be given back now: %s",
                    found.worker,
                    error,
                )
            return {}
        self._trouble = ""
        back = sum(place is Whereabouts.GIVEN_BACK for place in given.values())
        if back:
            logger.warning(
                "%d messages that the killed worker %s had received are back in their queues",
                back, found.worker,
            )  # fmt: skip
        return given

    def _give_back(self, found: LockedFiles) -> Mapping[str, Whereabouts]:
        # Not its default channel, which would wait for a broker that is away.
        with self._app.connection_for_read() as connection, connection.channel() as channel:
            kind = kind_of(channel)
            if kind is None:
                return {}
            broker = kind.broker_of(channel)
            noted = noted_in(found.directory, broker)
            if noted:
                # The types of the exchanges decide in which queues a message belongs.
                for queue in self._app.amqp.queues.values():
                    queue(channel).declare()
            if not kind.is_repeatable:
                forget_noted(found.directory, broker)
            given = kind.give_back(channel, noted, found.directory.name)
        forget_noted(found.directory, broker)
        return given


#: Letters that are saved together.
BATCH = 100

#: Seconds between two rounds that look at the files of all processes that are gone; and between two looks for
#: processes that have gone since, by one worker of the machine.
ROUND_S, LOOK_S = 60.0, 1.0

#: Seconds after which a worker that has begun takes the messages that waited in its queues.
SETTLED_S = 15.0

#: Stores letters and outcomes; returns the indexes of those that the store refuses.
Save = Callable[[Sequence[Record]], Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """The results of recovering the files of one or more processes."""

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
    #: Reports for the store about everything that is left for later.
    reports: tuple[RecorderReport, ...] = ()

    def __add__(self, other: Recovered) -> Recovered:
        names = [item.name for item in fields(self)]
        return Recovered(**{name: getattr(self, name) + getattr(other, name) for name in names})


class Recovery:
    """Makes letters of the messages in ``directory``.

    :param wiring: the app's parts, from which letters are made.
    :param save: stores letters and outcomes that may already be stored.
    :param put_aside: keeps one that the store refuses.
    :param give_back: gives messages back to the broker that it still keeps for the killed worker.
    """

    def __init__(
        self,
        app: Any,
        wiring: Any,
        directory: Path,
        *,
        save: Save,
        put_aside: Callable[[Record], object],
        give_back: Callable[[LockedFiles], Mapping[str, Whereabouts]] = lambda _: {},
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._now = now
        self._app, self._wiring, self._directory = app, wiring, directory
        self._save, self._put_aside, self._give_back = save, put_aside, give_back
        #: The directories that stayed when their process was found gone; and how often they were looked at
        #: since all processes of its pool were gone, too.
        self._known: dict[Path, int] = {}
        #: The reasons why directories stay, which were logged.
        self._logged: set[tuple[Path, str]] = set()

    def run(
        self,
        store: Callable[[], Store],
        *,
        began_at: datetime | None = None,
        only_new: bool = False,
    ) -> Iterator[Recovered]:
        """Recover the files of each process that is gone; yields what was found in each. A step that was
        interrupted may be repeated: nothing is doubled.

        :param store: opens the store; called only if there is something to recover.
        :param began_at: when the worker began that this is part of; None if it is part of none.
        :param only_new: only processes of this machine that were not found gone before.
        :raises StoreError: the store failed; the rest stays for the next time.
        :raises OSError: the directory cannot be read.
        """
        open_store = cache(store)
        ask = cache(lambda: Outcomes(self._app, open_store()))
        every = directories(self._directory)
        self._known = {one: looks for one, looks in self._known.items() if one in every}
        for directory in every:
            try:
                if only_new and not self._is_new(directory):
                    continue
                with locked_files(directory, self._wiring.keyring) as found:
                    if found is None:
                        continue
                    done = self._recover(found, ask, began_at)
                    if found.ran_here and directory not in self._known:
                        open_store().leases.end_of(found.process)
            except FileNotFoundError:  # another process has recovered it
                continue
            except ContentsSealed as error:
                done = self._stays(directory, str(error))
            except CeleryDLQError:
                raise
            except Exception as error:  # noqa: BLE001 - the others are recovered
                done = self._stays(directory, f"{type(error).__name__}: {error}")
            self._known.setdefault(directory, 0)
            yield done
        if self._directory.exists() and not only_new:
            remove_half_made(self._directory)

    def _is_new(self, directory: Path) -> bool:
        """Whether there may be more to do about a process of this machine than before: its pool was alive, or
        the broker was away. The pauses between two tries double."""
        if directory not in self._known:
            return ran_on_this_boot(directory)
        if pool_may_run(directory):
            return False
        self._known[directory] = looks = self._known[directory] + 1
        return looks & (looks - 1) == 0 and has_noted(directory)

    def _stays(self, directory: Path, why: str) -> Recovered:
        if (directory, why) not in self._logged:
            self._logged.add((directory, why))
            logger.error("%s cannot be recovered, and stays: %s", directory, why)
        return Recovered(failed=(directory,), reports=(stuck(directory, why),))

    def _recover(
        self, found: LockedFiles, ask: Callable[[], Outcomes], began_at: datetime | None
    ) -> Recovered:
        done = Recovered(processes=1)
        ends: list[tuple[Record, Callable[[], None]]] = []
        # When the messages were accepted that the broker may still deliver again.
        early: list[datetime] = []
        for message, settle in self._not_with_the_broker(found):
            outcomes = ask()
            try:
                letter = letter_of_lost(message, self._app, self._wiring, found.release)
            except Exception as error:  # noqa: BLE001 - the others become letters
                why = f"the message {message.headers.get('id')} of {message.task}: {error!r}"
                done += self._stays(found.directory, why)
                continue
            how = outcomes.how_ended(message, letter)
            if not how and not message.has_succeeded and self._may_come_again(message, began_at):
                early.append(message.accepted_at)
                continue
            if how:
                logger.info(
                    "%s[%s] was running when its worker was killed, but %s",
                    letter.task, letter.task_id, how,
                )  # fmt: skip
                settle()
                done += Recovered(ended=1)
                continue
            if message.has_succeeded:
                ends.append((_success_of(message, letter), settle))
            else:
                ends.append((outcomes.remarked(letter), settle))
            if len(ends) >= BATCH:
                done += self._store(ends)
                ends = []
        done += self._store(ends)
        if early:
            done += Recovered(waiting=len(early), reports=(waiting(found, early),))
        damaged = found.finish()
        for path in damaged:
            logger.error(
                "%s is damaged; what could be read was recovered, and the file is kept", path
            )
        return done + Recovered(damaged=tuple(damaged))

    def _not_with_the_broker(
        self, found: LockedFiles
    ) -> Iterator[tuple[CopiedMessage, Callable[[], None]]]:
        """The messages that had not ended, except those that the broker has or delivers again."""
        # First, because a message that cannot be read must not be given back: it could not be settled.
        messages = [*found.messages()]
        where = self._give_back(found)
        for message, settle in messages:
            if found.has_returned(message):
                message = replace(message, has_succeeded=True)
            place = where.get(message.properties.get("delivery_tag", ""))
            if place is None:
                yield message, settle
            elif place is Whereabouts.ACKNOWLEDGED:
                yield replace(message, is_acknowledged=True), settle
            else:
                settle()

    def _may_come_again(self, message: CopiedMessage, began_at: datetime | None) -> bool:
        """Whether it is too early to tell that the broker has forgotten the message."""
        if message.is_acknowledged:
            return False
        now = self._now()
        waited_s = (now - message.accepted_at).total_seconds()
        # After all workers were down, the message waits in its queue until one of them has begun.
        has_just_begun = began_at is not None and (now - began_at).total_seconds() < SETTLED_S
        return has_just_begun or bool(waited_s < self._wiring.hold.given_back_after_s)

    def _store(self, ends: Sequence[tuple[Record, Callable[[], None]]]) -> Recovered:
        records = [record for record, _ in ends]
        refused = {*self._save(records)} if records else set()
        for place, (record, settle) in enumerate(ends):
            if place in refused:
                self._put_aside(record)
            _log(record, is_refused=place in refused)
            settle()
        letters = sum(isinstance(record, DeadLetter) for record in records)
        return Recovered(letters=letters, ended=len(records) - letters)


def _success_of(message: CopiedMessage, letter: DeadLetter) -> Outcome:
    """The success of a message whose worker was killed before the store knew it.

    :param letter: the one that it would otherwise become.
    """
    return Outcome(
        task_id=letter.task_id,
        redrive=redrive_of(message.headers),
        succeeded_at=message.accepted_at,  # the latest moment that is known
        worker=message.worker,
        task=letter.task,
        digest=digest_of(letter.envelope.body),
        namespace=letter.namespace,
    )


def _log(record: Record, *, is_refused: bool) -> None:
    if isinstance(record, DeadLetter):
        logger.warning(
            "%s[%s] was running when its worker %s was killed: %s, reason lost",
            record.task, record.task_id, record.worker,
            "a letter in the spool" if is_refused else "a dead letter now",
        )  # fmt: skip
    else:
        logger.info(
            "%s[%s] had succeeded when its worker %s was killed, before that was stored",
            record.task, record.task_id, record.worker,
        )  # fmt: skip


class RecoveryThread(Periodic):
    """Recovers the messages of processes that no longer run: when the worker starts, once a minute, and
    as soon as one of the machine's workers sees that a process is gone. It reports messages that
    cannot be recovered.

    :param wake: called when there are letters, or when leases of a process that is gone are free.
    """

    does = "recovery"
    text_stopped = "messages of killed workers are not recovered"
    text_resumed = "messages of killed workers are recovered again"

    def __init__(
        self,
        dlq: Any,
        *,
        wake: Callable[[], object] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(dlq)
        self._wake, self._monotonic = wake, monotonic
        self._reporter, self._looker = Reporter(lambda: dlq.store), Looker(dlq.recorder_dir)
        self._began_at, self._whole_at = datetime.now(timezone.utc), 0.0
        self._has_begun = False

    def pause_s(self) -> float:
        """Seconds until the next round; 0 before the first."""
        return LOOK_S if self._has_begun else 0.0

    def end(self) -> None:
        """Withdraw the reports about this worker."""
        self._looker.close()
        self.guarded(self._reporter.end)

    def round(self) -> None:
        """Recover the messages of processes that are gone; in whole rounds, report those that stay."""
        is_whole = not self._has_begun or self._monotonic() >= self._whole_at
        if is_whole:
            self._has_begun, self._whole_at = True, self._monotonic() + ROUND_S
        elif not self._looker.looks():
            return
        left = self._recover(only_new=not is_whole)
        if is_whole and not self.stopping.is_set():
            self._reporter.report([*left, *self._dlq.recorder.uncovered()])

    def _recover(self, *, only_new: bool) -> list[RecorderReport]:
        """Recover; returns reports about the messages that are left."""
        left: list[RecorderReport] = []
        try:
            for done in self._dlq.recorder.recover(began_at=self._began_at, only_new=only_new):
                if self._dlq.meter is not None:
                    self._dlq.meter.recovered(letters=done.letters, ended=done.ended)
                left += done.reports
                self._wake()
                if self.stopping.is_set():
                    return left
        except OSError as error:
            self.log_once(str(error))
        else:
            self.log_once("")
        return left
