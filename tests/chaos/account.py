"""Finds where each task that was sent has ended, and whether that is right."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chaos.kinds import DONE, DROPPED
from chaos.ledger import FINISHED, IGNORED, STARTED, Row
from chaos.producer import Sent
from chaos.redis_log import Undone

from celery_dlq import DeadLetter, Filter
from celery_dlq.model.states import OPEN_STATES, Reason, State
from celery_dlq.spool.segment import Record, decode, find_record

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: An end that no worker can know of: a master of Redis had accepted the message, was killed, and its
#: successor has no copy. See "What can still be lost" in docs/operations.md.
NOT_COPIED = "not copied before a failover"
#: A retry that was parked could be written into a worker's log only, and was imported when no worker was left
#: to send it.
STILL_PARKED = "parked, imported at the end"
#: The writer's words when neither store nor spool accepted a letter; the letter follows.
_LAST_RESORT = "dead letter neither stored nor spooled"
#: How a letter of poison names each delivery that did not end.
_DELIVERY = re.compile(r"delivery (\d+) started")


@dataclass(frozen=True)
class Case:
    """Everything known about one task."""

    sent: Sent
    rows: Sequence[Row]
    letter: DeadLetter | None
    #: A broker that was killed had accepted the message, or handed it out, and its successor does not know.
    not_copied: bool = False
    handed_out_again: bool = False
    #: Its letter was in a worker's log only, and was imported when all workers had stopped.
    from_log: bool = False

    @property
    def finishes(self) -> int:
        """How often its side effect happened."""
        return sum(row.what == FINISHED for row in self.rows)

    @property
    def starts(self) -> int:
        return sum(row.what == STARTED for row in self.rows)

    @property
    def deliveries(self) -> int:
        """How often its message was handed out, as far as the rows show: one that came back before it first
        began had been handed out once already."""
        return self.starts + bool(self.rows and self.rows[0].redelivered)

    @property
    def ran_on(self) -> bool:
        """Whether it began again after its work was done, because of another delivery, and did not end."""
        return self.came_again and bool(self.rows) and self.rows[-1].what == STARTED

    @property
    def done_before_import(self) -> bool:
        """Whether a later delivery finished while its letter was in a log only. A success closes the letter
        that the store has, and the store had none."""
        if not (self.from_log and self.letter and self.came_again):
            return False
        failed_at = self.letter.last_failed_at.timestamp()
        return any(row.what == FINISHED and row.at > failed_at for row in self.rows)

    @property
    def open_letter(self) -> DeadLetter | None:
        letter = self.letter
        return letter if letter is not None and letter.state in OPEN_STATES else None

    @property
    def end(self) -> str | Reason | None:
        """Where it ended; None if it was lost."""
        if self.open_letter is not None:
            return self.open_letter.reason
        if self.finishes:
            return DONE
        if self.sent.kind.name == "expires" or any(row.what == IGNORED for row in self.rows):
            return DROPPED
        if self.from_log and self.letter and self.letter.state is State.PARKED:
            return STILL_PARKED
        return NOT_COPIED if self.not_copied else None

    @property
    def is_settled(self) -> bool:
        """Whether nothing more is expected."""
        is_open = self.sent.kind.is_sent_back and self.open_letter is not None
        return self.end is not None and not is_open

    @property
    def came_again(self) -> bool:
        """Whether its message was handed out, or perhaps sent, more than once."""
        is_marked = any(row.redelivered for row in self.rows)
        return self.sent.tries > 1 or self.handed_out_again or is_marked


def complaint(case: Case, deliveries: int) -> str | None:
    """What is wrong with the end of ``case``; None if it is right.

    :param deliveries: the number after which a message that kills its worker becomes a letter.
    """
    kind, end = case.sent.kind, case.end
    if end is None:
        return "lost: neither finished, nor a letter, nor dropped"
    if case.finishes > 1 and not case.came_again:
        return f"its side effect happened {case.finishes} times, of one delivery"
    if end is Reason.UNSTORED:
        return None if case.finishes else "a letter says that the body finished; it did not"
    is_explained = case.ran_on or case.done_before_import
    if case.open_letter is not None and case.finishes and not is_explained:
        return f"finished, and has an open letter ({case.open_letter.reason.value})"
    if end in (kind.end, NOT_COPIED, STILL_PARKED) or _excused(case, deliveries):
        return None
    return f"ended as {_word(end)}, not as {_word(kind.end)}"


def _excused(case: Case, deliveries: int) -> bool:
    """Whether harm explains an end that is not the kind's own."""
    letter = case.open_letter
    if letter is None:
        return False
    if case.from_log and case.sent.kind.is_sent_back:
        # Imported when no worker was left to send it back.
        return True
    if letter.reason is Reason.POISON:
        # Its process was killed under it that often, though not by itself. Once that may have been after
        # it was handed the task and before the body's first line: then only the letter names it.
        return case.deliveries >= deliveries - (_last_named(letter) >= deliveries)
    refused = "the retry could not be published" in letter.explanation.evidence
    return letter.reason is Reason.REJECTED and case.sent.kind.retries and refused


def _last_named(letter: DeadLetter) -> int:
    """The number of the last delivery that the letter names."""
    return max(map(int, _DELIVERY.findall(letter.explanation.evidence)), default=0)


def cases(
    sent: Iterable[Sent],
    rows: Mapping[str, Sequence[Row]],
    letters: Mapping[str, DeadLetter],
    from_logs: Collection[str] = (),
    undone: Undone = Undone(),  # noqa: B008
) -> list[Case]:
    return [
        Case(
            task, rows.get(task.task_id, ()), letters.get(task.task_id),
            from_log=task.task_id in from_logs,
            not_copied=task.task_id in undone.accepted,
            handed_out_again=task.task_id in undone.handed_out,
        )
        for task in list(sent)
    ]  # fmt: skip


def stored(store: Store) -> dict[str, DeadLetter]:
    """All letters of the store, without their messages."""
    found, after = dict[str, DeadLetter](), None
    while True:
        page = store.letters.find(Filter(states=frozenset(State)), limit=500, after=after)
        found.update({letter.task_id: letter for letter in page.letters})
        after = page.next
        if after is None:
            return found


def kept_elsewhere(spooled: Iterable[Path], logs: Iterable[Path]) -> dict[str, DeadLetter]:
    """Letters that wait in a spool file or a worker's log to be brought back."""
    found = [record for path in spooled for record in _spooled(path)]
    found += [record for log in logs for record in last_resort(log)]
    return {record.task_id: record for record in found if isinstance(record, DeadLetter)}


def last_resort(log: Path) -> list[Record]:
    """The letters that a worker could write only into its log."""
    with log.open(errors="replace") as lines:
        return _records(find_record, (line for line in lines if _LAST_RESORT in line))


def totals(found: Iterable[Case]) -> Counter[str]:
    """How many tasks ended where."""
    return Counter(_word(case.end) if case.end else "lost" for case in found)


def _word(end: str | Reason) -> str:
    return end.value if isinstance(end, Reason) else end


def _spooled(path: Path) -> list[Record]:
    try:
        return _records(decode, path.read_bytes().splitlines())
    except FileNotFoundError:  # drained since
        return []


def _records(read: Callable[[Any], Record | None], lines: Iterable[Any]) -> list[Record]:
    found = []
    for line in lines:
        # A line that is still being written, or whose writer was killed, is not a record.
        with contextlib.suppress(ValueError):
            found.append(read(line))
    return [record for record in found if record is not None]
