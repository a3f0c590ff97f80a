"""The steps of a regrouping. Each is a transaction after which the rollups are right and another process can
continue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Column, Table, func, select, update
from sqlalchemy.engine import Connection

from celery_dlq.model.group import Group, hour_of
from celery_dlq.model.regrouping import Batch, Fate, Kept, Move, Regrouping, Ungrouped
from celery_dlq.store.database import clock, tables
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.groups.triage import group_from
from celery_dlq.store.letters.deleting import empty_examples
from celery_dlq.store.letters.save import Stored, lock_stored
from celery_dlq.store.regrouping import notes
from celery_dlq.store.regrouping.settling import settle_groups
from celery_dlq.store.rows import audit
from celery_dlq.store.rows.query import OF_LETTER, one_of
from celery_dlq.store.rows.tally import Tally, move_arrivals

letter, content, group = tables.letter, tables.content, tables.group

#: The history of a letter names its group, too: what was tried with one group does not count for another.
_FOLLOWING = (
    (tables.handling, tables.handling.c.fingerprint),
    (tables.auto_letter, tables.auto_letter.c.fingerprint),
    (tables.sending, tables.sending.c.cause),
    (tables.sending, tables.sending.c.fingerprint),
)

_COLUMNS = (
    letter.c.id, letter.c.task_id, letter.c.task, letter.c.exception_type, letter.c.message,
    letter.c.fingerprint, letter.c.last_failed_at, content.c.traceback,
)  # fmt: skip


class Regroupings(StoreRole):
    """Regroupings: at most one is under way."""

    @reads
    def last(self, connection: Connection) -> Regrouping | None:
        """The regrouping that is under way, or the one before."""
        return notes.read_progress(connection)

    @reads
    def fates(self, connection: Connection) -> Sequence[Fate]:
        """The ends of the groups that the last regrouping has settled, in the order of their names."""
        return notes.read_fates(connection)

    @reads
    def count(self, connection: Connection) -> int:
        """How many letters there are."""
        return int(connection.execute(select(func.count()).select_from(letter)).scalar_one())

    @reads
    def letters(
        self, connection: Connection, *, above: int, until: int | None = None, limit: int
    ) -> Sequence[Ungrouped]:
        """The next letters in the order of their numbers.

        :param above: only those with a higher number than this.
        :param until: only those up to this number.
        """
        these = [letter.c.id > above]
        if until is not None:
            these.append(letter.c.id <= until)
        stored = select(*_COLUMNS).join(content, OF_LETTER).where(*these)
        rows = connection.execute(stored.order_by(letter.c.id).limit(limit)).mappings()
        return [Ungrouped(**row) for row in rows]

    @reads
    def known(self, connection: Connection, fingerprints: Collection[str]) -> frozenset[str]:
        """Those of ``fingerprints`` that a group has or once had."""
        if not fingerprints:
            return frozenset()
        these = one_of(connection, group.c.fingerprint, sorted(fingerprints))
        return frozenset(connection.execute(select(group.c.fingerprint).where(these)).scalars())

    @reads
    def groups(
        self, connection: Connection, fingerprints: Collection[str], *, now: datetime
    ) -> Mapping[str, Group]:
        """The groups with these fingerprints; if several have one, the largest."""
        if not fingerprints:
            return {}
        these = one_of(connection, group.c.fingerprint, sorted(fingerprints))
        smallest = select(group).where(these).order_by(group.c.total_count)
        rows = connection.execute(smallest).mappings()
        return {row["fingerprint"]: group_from(row, now) for row in rows}

    @writes
    def begin(
        self, connection: Connection, *, recipe: str, who: str, why: str, detached: bool
    ) -> Regrouping:
        """Begin a regrouping of all letters that there are; audited. One that is under way continues instead;
        audited if another person does that, or gives a reason.

        :param recipe: the name of the recipe.
        :param detached: whether workers do it.
        """
        now = clock.now(connection)
        under_way = notes.read_progress(connection, is_locked=True)
        if under_way is not None and not under_way.is_over:
            if why or who != under_way.who:
                audit.write_audit(
                    connection, who=who, act="regroup", why=why, count=0, at=now,
                    detail={"recipe": recipe, "continued": under_way.who},
                )  # fmt: skip
            continued = replace(under_way, is_detached=detached)
            notes.write_progress(connection, continued, notes.audit_row(connection))
            return continued
        notes.forget_groups(connection)
        begun = Regrouping(
            recipe=recipe, who=who, why=why, began_at=now, is_detached=detached, above=0,
            until=_newest(connection), looked=0, moved=0, kept={}, is_over=False,
        )  # fmt: skip
        audit_id = audit.write_audit(
            connection, who=who, act="regroup", why=why, count=0, detail={"recipe": recipe}, at=now
        )
        notes.write_progress(connection, begun, audit_id)
        return begun

    @writes
    def move(self, connection: Connection, seen: Regrouping, batch: Batch) -> Regrouping:
        """Move the letters of a batch to their new groups, except for those that have failed again; returns
        how far the regrouping has come then. If another process has moved them, nothing changes.

        :param seen: how far it had come when the batch was chosen.
        """
        progress = notes.read_progress(connection, is_locked=True)
        if progress is None or not _is_same(progress, seen):
            return seen if progress is None else progress
        moved = _move(connection, batch.moves)
        audit_id = notes.audit_row(connection)
        audit.write_audit(
            connection, who=seen.who, act="regroup", count=moved, at=seen.began_at, detail={},
            row=audit_id,
        )  # fmt: skip
        after = replace(
            progress,
            above=batch.last,
            looked=progress.looked + batch.looked,
            moved=progress.moved + moved,
            kept=_sum(progress.kept, batch.kept),
        )
        notes.write_progress(connection, after, audit_id)
        return after

    @writes
    def settle(self, connection: Connection, seen: Regrouping, *, groups: int) -> Regrouping:
        """Let decisions follow the letters of the next groups, after all letters have been moved; over if
        there are no more. If another process has begun another regrouping, nothing changes."""
        progress = notes.read_progress(connection, is_locked=True)
        if progress is None or not _is_same(progress, seen) or progress.is_over:
            return seen if progress is None else progress
        if not settle_groups(connection, groups):
            progress = replace(progress, is_over=True)
        notes.write_progress(connection, progress, notes.audit_row(connection))
        return progress


def _is_same(progress: Regrouping, seen: Regrouping) -> bool:
    return (progress.began_at, progress.above) == (seen.began_at, seen.above)


def _newest(connection: Connection) -> int:
    return int(connection.execute(select(func.coalesce(func.max(letter.c.id), 0))).scalar_one())


def _sum(before: Mapping[Kept, int], more: Mapping[Kept, int]) -> dict[Kept, int]:
    return dict(Counter(before) + Counter(more))


def _move(connection: Connection, moves: Sequence[Move]) -> int:
    """Give letters and their history new fingerprints, and count them there; returns how many."""
    stored = lock_stored(connection, [one.task_id for one in moves])
    current = [one for one in moves if _is_current(one, stored)]
    if not current:
        return 0
    to = {one.task_id: (one.before, one.after) for one in current}
    for after, ids in _by_group((task_id, after) for task_id, (_, after) in to.items()):
        these = one_of(connection, letter.c.task_id, ids)
        connection.execute(update(letter).where(these).values(fingerprint=after))
    for table, column in _FOLLOWING:
        _follow(connection, table, column, to)
    _count(connection, current, stored)
    empty_examples(connection, {one.before for one in current})
    notes.add_moved(connection, Counter((one.before, one.after) for one in current))
    return len(current)


def _is_current(move: Move, stored: dict[str, Stored]) -> bool:
    found = stored.get(move.task_id)
    if found is None:
        return False
    its = found.member
    return (its.fingerprint, its.last_failed_at) == (move.before, move.failed_at)


def _follow(
    connection: Connection, table: Table, column: Column[str], to: Mapping[str, tuple[str, str]]
) -> None:
    """Change fingerprints in the history of letters.

    :param to: the former and the new fingerprint of each letter.
    """
    these = one_of(connection, table.c.task_id, sorted(to))
    rows = connection.execute(select(table.c.task_id, column).where(these).distinct())
    found = [(task_id, to[task_id][1]) for task_id, name in rows if name == to[task_id][0]]
    for after, ids in _by_group(found):
        its = one_of(connection, table.c.task_id, ids)
        earlier = one_of(connection, column, sorted({to[task_id][0] for task_id in ids}))
        connection.execute(update(table).where(its, earlier).values({column: after}))


def _by_group(letters: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Letters by their new groups, in one order for all processes."""
    found: dict[str, list[str]] = {}
    for task_id, after in sorted(letters):
        found.setdefault(after, []).append(task_id)
    return sorted(found.items())


def _count(connection: Connection, moves: Sequence[Move], stored: dict[str, Stored]) -> None:
    tally, arrivals = Tally(), Counter[tuple[str, datetime, str]]()
    for one in moves:
        member = stored[one.task_id].member
        tally.change(member, replace(member, fingerprint=one.after, message=one.message))
        arrivals[one.before, hour_of(one.failed_at), one.after] += 1
    tally.write(connection)
    move_arrivals(connection, arrivals)
