"""Moves stored letters to the groups in which they are counted today. Each step is a transaction after which
all counts are right, and after which another process can continue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Column, Select, Table, and_, bindparam, case, func, select, update
from sqlalchemy.engine import Connection

from celery_dlq.base.codec import dump_json, record_of
from celery_dlq.model.group import GroupStatus, Judged, Waiting, heir_of, home, hour_of, place_name
from celery_dlq.store.database import clock, tables
from celery_dlq.store.database.sealing import read_shown, sealing_of
from celery_dlq.store.database.tables import content, group, letter
from celery_dlq.store.database.transactions import StoreRole, reads, writes
from celery_dlq.store.groups import aliases
from celery_dlq.store.letters.acts import empty_examples
from celery_dlq.store.letters.save import Stored, lock_stored
from celery_dlq.store.rows import audit
from celery_dlq.store.rows.query import OF_LETTER, check_keys, count_rows, one_of, sums_by
from celery_dlq.store.rows.rows import letter_from
from celery_dlq.store.rows.tally import Tally, move_arrivals

#: The history of a letter names its group, too: what was tried with one group does not count for another.
_FOLLOWING = (
    (tables.handling, tables.handling.c.fingerprint),
    (tables.sending, tables.sending.c.cause),
    (tables.sending, tables.sending.c.fingerprint),
)

_WHOLE = select(letter, content.c.args, content.c.kwargs, content.c.grounds).join(
    content, OF_LETTER
)

_LETTERS = group.c.open_count + group.c.resolved_count + group.c.discarded_count
_WAITING = (
    group.c.fingerprint, group.c.task, group.c.exception_type, group.c.regroup.label("recipe"),
    group.c.regrouped_to.label("above"), _LETTERS.label("letters"),
)  # fmt: skip

# People have decided about it, so it stays if several groups become one.
_IS_DECIDED = case(
    (
        and_(group.c.status == GroupStatus.OPEN.value, group.c.owner == "", group.c.note.is_(None)),
        0,
    ),
    else_=1,
)


class Regroupings(StoreRole):
    """Groups whose letters may belong to other groups. They are marked, and regrouped one after another."""

    @writes
    def begin(self, *, recipe: str, who: str, why: str) -> int:
        """Mark all groups, so that ``recipe`` is applied to their letters; audited. Returns the number of
        letters.

        :raises ContentsSealed: letters are encrypted with a key that is not here.
        """
        check_keys(self.connection)
        number = count_rows(self.connection, letter)
        aliases.forget_claims(self.connection, recipe)
        aliases.mark(self.connection, recipe=recipe)
        audit.write_audit(
            self.connection, who=who, act="regroup", why=why, count=number, at=clock.now(self.connection),
            detail={"recipe": recipe},
        )  # fmt: skip
        return number

    @reads
    def next(self, recipe: str, *, limit: int) -> Sequence[Waiting]:
        """The next groups: those that people have decided about, then the largest.

        :param recipe: the recipe of this process. Groups that wait for another one are left out.
        """
        is_next = self.ours(group), group.c.regroup.in_([aliases.BY_ALIASES, recipe])
        return _waiting(self.connection, select(*_WAITING).where(*is_next).limit(limit))

    @reads
    def all(self) -> Sequence[Waiting]:
        """All groups, as if they waited, in the order in which they would be regrouped."""
        return _waiting(self.connection, select(*_WAITING).where(self.ours(group)))

    @reads
    def waiting(self) -> Mapping[str, int]:
        """How many groups wait, by the recipe that they wait for; empty for aliases only."""
        marked = [group.c.regroup > ""]
        found = sums_by(self.connection, func.count(), group.c.regroup, where=marked)
        return {_recipe(name): number for name, number in found.items()}

    @reads
    def folded(self) -> list[str]:
        """The groups into which the groups of one place were folded."""
        return aliases.folded(self.connection)

    @reads
    def homes(self, names: Iterable[str]) -> dict[str, str]:
        """The groups of the ``names`` that have an alias; empty for a place that must not be folded."""
        return aliases.homes(self.connection, names)

    @reads
    def ids(self, fingerprint: str, *, above: int, limit: int) -> Sequence[int]:
        """The numbers of the next letters of a group, in their order."""
        these = select(letter.c.id).where(letter.c.fingerprint == fingerprint, letter.c.id > above)
        # In the order of the key itself, a database would look through all letters for those of the group.
        return list(self.connection.scalars(these.order_by(letter.c.id + 0).limit(limit)))

    @reads
    def letters(self, fingerprint: str, ids: Sequence[int]) -> Sequence[Judged]:
        """The letters of a group with these numbers, and the fingerprints that the letters have."""
        these = one_of(self.connection, letter.c.id, ids), letter.c.fingerprint == fingerprint
        # A letter that cannot be read has no grounds, and keeps its group.
        in_order = _WHOLE.where(*these).order_by(letter.c.id)
        shown = read_shown(self.connection, letter, in_order)
        found = [(row["id"], letter_from(row)) for row in shown]
        return [
            Judged(
                id=number, letter=one,
                after=one.with_(fingerprint=one.raw_fingerprint or one.fingerprint),
            )
            for number, one in found
        ]  # fmt: skip

    @writes
    def move(self, seen: Waiting, judged: Sequence[Judged], *, last: int, is_last: bool) -> int:
        """Store the fingerprints of some letters of a group, and move letters that belong to other groups.
        Letters that have failed again are not moved. If another process was faster, nothing changes. Returns
        how many letters were moved.

        :param last: the number of the last letter that was looked at.
        :param is_last: whether the group has no further letters.
        """
        if not _lock(self.connection, seen):
            return 0
        done = {"regroup": "", "regrouped_to": 0} if is_last else {"regrouped_to": last}
        marks = [aliases.BY_ALIASES, seen.recipe]
        rows = update(group).where(
            group.c.fingerprint == seen.fingerprint, group.c.regroup.in_(marks)
        )
        self.connection.execute(rows.values(done))
        if not judged:
            return 0
        homes = _homes_of(self.connection, seen, judged)
        to = {one.letter.task_id: home(homes, one.raw, one.after.place) for one in judged}
        stored = lock_stored(self.connection, [one.letter.task_id for one in judged])
        current = [one for one in judged if _is_current(one, stored)]
        _write_raws(self.connection, current, to)
        _write_grounds(self.connection, current, stored)
        moved = [one for one in current if to[one.letter.task_id] != seen.fingerprint]
        _move(self.connection, moved, to, stored)
        return len(moved)


def _waiting(connection: Connection, these: Select[Any]) -> list[Waiting]:
    ordered = these.order_by(
        _IS_DECIDED.desc(), group.c.total_count.desc(), *group.primary_key.columns
    )
    found: dict[str, Waiting] = {}
    for row in connection.execute(ordered).mappings():
        one = Waiting(**{**row, "recipe": _recipe(row["recipe"])})
        # A group has several rows if its letters have several tasks or exception types.
        first = found.setdefault(one.fingerprint, one)
        if first is not one:
            found[one.fingerprint] = replace(
                first, letters=first.letters + one.letters, recipe=first.recipe or one.recipe
            )
    return list(found.values())


def _recipe(mark: str) -> str:
    return "" if mark == aliases.BY_ALIASES else mark


def _lock(connection: Connection, seen: Waiting) -> bool:
    """Lock the rows of a group; returns whether no other process has looked at its next letters."""
    these = select(group.c.regroup, group.c.regrouped_to).where(
        group.c.fingerprint == seen.fingerprint
    )
    ordered = these.order_by(*group.primary_key.columns).with_for_update()
    return any(
        mark and _recipe(mark) == seen.recipe and above == seen.above
        for mark, above in connection.execute(ordered)
    )


def _homes_of(connection: Connection, seen: Waiting, judged: Sequence[Judged]) -> Mapping[str, str]:
    """The homes of the fingerprints and places of ``judged``. With a new recipe, the group itself becomes the
    home of the fingerprint that most of them have."""
    raws = Counter(one.raw for one in judged)
    places = {place_name(one.after.place) for one in judged}
    homes = aliases.homes(connection, {*raws, *places})
    if seen.recipe and not aliases.claimed(connection, seen.fingerprint, seen.recipe):
        heir = heir_of(seen.fingerprint, raws, homes)
        if heir is not None:
            now = clock.now(connection)
            aliases.write_alias(connection, heir, seen.fingerprint, seen.recipe, "", now)
            # Workers with this recipe may have made the group already.
            aliases.mark(connection, group.c.fingerprint == heir)
            homes[heir] = seen.fingerprint
    return homes


def _is_current(judged: Judged, stored: Mapping[str, Stored]) -> bool:
    found = stored.get(judged.letter.task_id)
    return found is not None and (
        (found.member.fingerprint, found.member.last_failed_at)
        == (judged.letter.fingerprint, judged.letter.last_failed_at)
    )


def _write_raws(connection: Connection, judged: Sequence[Judged], to: Mapping[str, str]) -> None:
    raws = [(one, "" if one.raw == to[one.letter.task_id] else one.raw) for one in judged]
    changed = [(raw, one.letter.task_id) for one, raw in raws if raw != one.letter.raw_fingerprint]
    for raw, ids in _grouped(changed):
        these = one_of(connection, letter.c.task_id, ids)
        connection.execute(update(letter).where(these).values(raw_fingerprint=raw))


def _write_grounds(
    connection: Connection, judged: Sequence[Judged], stored: Mapping[str, Stored]
) -> None:
    sealing = sealing_of(connection)
    rows = [
        {"of_id": one.id, "new_grounds": sealing.seal(letter, row)["grounds"]}
        for one in judged
        if one.after.grounds not in (None, one.letter.grounds)
        for its in [stored[one.letter.task_id]]
        for grounds in [dump_json(record_of(one.after.grounds))]
        for row in [{"task_id": its.task_id, "sealed_by": its.sealed_by, "grounds": grounds}]
    ]
    if rows:
        changed = update(content).where(content.c.id == bindparam("of_id"))
        connection.execute(changed.values(grounds=bindparam("new_grounds")), rows)


def _move(
    connection: Connection,
    moved: Sequence[Judged],
    to: Mapping[str, str],
    stored: Mapping[str, Stored],
) -> None:
    """Give letters and their history the fingerprints of other groups, and count them there."""
    if not moved:
        return
    pairs = {one.letter.task_id: (one.letter.fingerprint, to[one.letter.task_id]) for one in moved}
    for after, ids in _grouped((after, task_id) for task_id, (_, after) in pairs.items()):
        these = one_of(connection, letter.c.task_id, ids)
        connection.execute(update(letter).where(these).values(fingerprint=after))
    for table, column in _FOLLOWING:
        _follow(connection, table, column, pairs)
    _count(connection, moved, pairs, stored)
    empty_examples(connection, {before for before, _ in pairs.values()})


def _follow(
    connection: Connection, table: Table, column: Column[str], to: Mapping[str, tuple[str, str]]
) -> None:
    """Change fingerprints in the history of letters.

    :param to: the former and the new fingerprint of each letter.
    """
    these = one_of(connection, table.c.task_id, sorted(to))
    rows = connection.execute(select(table.c.task_id, column).where(these).distinct())
    found = [(to[task_id][1], task_id) for task_id, name in rows if name == to[task_id][0]]
    for after, ids in _grouped(found):
        its = one_of(connection, table.c.task_id, ids)
        earlier = one_of(connection, column, sorted({to[task_id][0] for task_id in ids}))
        connection.execute(update(table).where(its, earlier).values({column: after}))


def _grouped(items: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """The second items by the first ones, in one order for all processes."""
    found: dict[str, list[str]] = {}
    for name, item in sorted(items):
        found.setdefault(name, []).append(item)
    return sorted(found.items())


def _count(
    connection: Connection,
    moved: Sequence[Judged],
    to: Mapping[str, tuple[str, str]],
    stored: Mapping[str, Stored],
) -> None:
    tally, arrivals = Tally(), Counter[tuple[str, datetime, str]]()
    changes = Counter[str]()
    for one in moved:
        before, after = to[one.letter.task_id]
        member = stored[one.letter.task_id].member
        there = replace(
            member, fingerprint=after, message=one.letter.message, place=one.after.place
        )
        tally.change(member, there)
        arrivals[before, hour_of(member.last_failed_at), after] += 1
        changes.update({after: 1, before: -1})
    tally.write(connection)
    move_arrivals(connection, arrivals)
    # The ignoring of groups ends after as many further letters as before.
    for name, change in sorted(changes.items()):
        ends = group.c.ignored_total + change
        its = (group.c.fingerprint == name, group.c.ignored_total.is_not(None))
        values = {"ignored_total": case((ends < 1, 1), else_=ends)}
        connection.execute(update(group).where(*its).values(values))
