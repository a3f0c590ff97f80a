"""The groups in which failures are counted, if these are not the groups that their fingerprints name."""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, case, delete, exists, select, update
from sqlalchemy.engine import Connection

from celery_dlq.errors import AmbiguousId, TriageError, UnknownGroup
from celery_dlq.model.group import (
    FOLD_WITHIN,
    GROUPS_OF_PLACE,
    Alias,
    AliasReason,
    Group,
    Merge,
    Split,
    home,
    place_name,
)
from celery_dlq.model.letter import DeadLetter
from celery_dlq.store.database import clock
from celery_dlq.store.database.namespaces import is_ours
from celery_dlq.store.database.tables import alias, group
from celery_dlq.store.rows.query import begins_with, count_rows, one_of
from celery_dlq.store.rows.rows import read_row, replace_rows

logger: logging.Logger = logging.getLogger("celery_dlq")


#: Marks a group whose letters have to be counted by the aliases of today.
BY_ALIASES = "-"

#: Whether a group has an alias, so that its letters are counted in another one.
HAS_ALIAS = exists().where(alias.c.name == group.c.fingerprint).correlate(group)

#: Aliases that lead to one group; a chain of merges that is longer is cut.
_CHAIN_LIMIT = 32


def homes(connection: Connection, names: Iterable[str]) -> dict[str, str]:
    """The groups of the ``names`` that have an alias; empty for a place that must not be folded."""
    found: dict[str, str] = {}
    wanted = asked = {name for name in names if name}
    for _ in range(_CHAIN_LIMIT):
        if not wanted:
            break
        these = one_of(connection, alias.c.name, sorted(wanted))
        rows = connection.execute(select(alias.c.name, alias.c.fingerprint).where(these))
        step = dict(map(tuple, rows))
        found |= step
        wanted = {name for name in step.values() if name} - found.keys()
    return {name: found[name] and _end_of(found, name) for name in asked if name in found}


def _end_of(found: Mapping[str, str], name: str) -> str:
    for _ in range(_CHAIN_LIMIT):
        if not found.get(name):
            break
        name = found[name]
    return name


def counted_in_groups(
    connection: Connection, letters: Sequence[DeadLetter]
) -> Sequence[DeadLetter]:
    """``letters``, each with the fingerprint of the group in which it is counted."""
    raws = [letter.raw_fingerprint or letter.fingerprint for letter in letters]
    known = homes(connection, {*raws, *(place_name(letter.place) for letter in letters)})
    return [
        _counted_in(letter, home(known, raw, letter.place), raw)
        for letter, raw in zip(letters, raws, strict=True)
    ]


def _counted_in(letter: DeadLetter, group_name: str, raw: str) -> DeadLetter:
    raw = "" if raw == group_name else raw
    if (letter.fingerprint, letter.raw_fingerprint) == (group_name, raw):
        return letter
    return letter.with_(fingerprint=group_name, raw_fingerprint=raw)


def fold_floods(
    connection: Connection, new: Sequence[Group], letters: Sequence[DeadLetter]
) -> None:
    """Fold the groups of each place that has made too many.

    :param new: the groups that have just been made, by ``letters``.
    """
    names = {one.fingerprint for one in new}
    for place, made in sorted(_by_place(letters, names).items()):
        known = homes(connection, [place_name(place)])
        newest = max(letter.last_failed_at for letter in made)
        recent = group.c.place == place, group.c.first_seen_at > newest - FOLD_WITHIN
        if not known and (number := count_rows(connection, group, *recent)) > GROUPS_OF_PLACE:
            _fold(connection, place, number)
        elif into := known.get(place_name(place)):
            # It was folded after this transaction had looked.
            strays = {letter.fingerprint for letter in made} - {into}
            mark(connection, one_of(connection, group.c.fingerprint, sorted(strays)))


def _by_place(letters: Sequence[DeadLetter], names: Container[str]) -> dict[str, list[DeadLetter]]:
    found: dict[str, list[DeadLetter]] = {}
    for letter in letters:
        if letter.fingerprint in names and letter.place:
            found.setdefault(letter.place, []).append(letter)
    return found


def _fold(connection: Connection, place: str, number: int) -> None:
    now = clock.now(connection)
    into = hashlib.blake2b(place.encode(), digest_size=8).hexdigest()
    write_alias(connection, place_name(place), into, AliasReason.FOLDED.value, "", now)
    mark(connection, group.c.place == place)
    logger.warning(
        "One place in the code made %s groups of failures within a day; they become one group, %s. To undo "
        "that: celery -A <app> dlq groups split %s",
        number, into, into,
    )  # fmt: skip


def write_alias(
    connection: Connection, name: str, fingerprint: str, why: str, who: str, at: datetime
) -> None:
    """Write an alias, in place of the one that ``name`` has."""
    values = {"fingerprint": fingerprint, "why": why, "who": who, "at": at}
    replace_rows(connection, alias, [{"name": name, **values}], values)


def mark(connection: Connection, *which: ColumnElement[bool], recipe: str = BY_ALIASES) -> None:
    """Mark groups whose letters may belong to others.

    :param recipe: the recipe that has to be applied to them first. A mark with a recipe stays.
    """
    is_free = group.c.regroup.in_(["", BY_ALIASES])
    kept = case((is_free, recipe), else_=group.c.regroup) if recipe == BY_ALIASES else recipe
    # Below the number of any letter, and another one each time: a process that has looked at the letters
    # before must not call the group done.
    values = {"regroup": kept, "regrouped_to": -1 - secrets.randbelow(2**62)}
    connection.execute(update(group).where(is_ours(connection, group), *which).values(values))


def matching(connection: Connection, prefix: str, limit: int = 10) -> list[str]:
    """Up to ``limit`` groups whose fingerprints begin with ``prefix``, in their order. If a group was merged
    into another one, that one takes its place."""
    its = is_ours(connection, group), begins_with(group.c.fingerprint, prefix)
    these = select(group.c.fingerprint).where(*its)
    ordered = these.distinct().order_by(group.c.fingerprint).limit(limit)
    found = list(connection.scalars(ordered))
    known = homes(connection, found)
    return sorted({known.get(name) or name for name in found})


def one_group(connection: Connection, prefix: str) -> str:
    """The group whose fingerprint begins with ``prefix``.

    :raises UnknownGroup: no group has such a fingerprint.
    :raises AmbiguousId: several groups have one.
    """
    found = matching(connection, prefix, 2) if prefix else []
    if not found:
        raise UnknownGroup
    if len(found) > 1 and prefix not in found:
        raise AmbiguousId(f"More than one group begins with {prefix!r}; give more characters.")
    return prefix if prefix in found else found[0]


def merge(connection: Connection, fingerprint: str, act: Merge, who: str, now: datetime) -> None:
    """Count the letters of a group, also the future ones, in another one.

    :raises TriageError: both are the same group.
    """
    if act.into == fingerprint:
        raise TriageError(f"Group {fingerprint} cannot be merged into itself. Nothing was changed.")
    write_alias(connection, fingerprint, act.into, AliasReason.MERGED.value, who, now)
    mark(connection, group.c.fingerprint == fingerprint)


def split(connection: Connection, fingerprint: str, act: Split) -> None:
    """Undo merges into a group, or its folding.

    :raises TriageError: there is nothing to undo.
    """
    found = [one for one in aliases_of(connection, fingerprint) if one.name.startswith(act.member)]
    if not found:
        what = f"{act.member} was not" if act.member else "No group was"
        raise TriageError(f"{what} merged into group {fingerprint}. Nothing was changed.")
    folded = [one.name for one in found if one.why is AliasReason.FOLDED]
    merged = [one.name for one in found if one.why is AliasReason.MERGED]
    # The place is remembered, because it would be folded again at once.
    these = update(alias).where(one_of(connection, alias.c.name, folded))
    connection.execute(these.values(fingerprint=""))
    connection.execute(delete(alias).where(one_of(connection, alias.c.name, merged)))
    mark(connection, group.c.fingerprint == fingerprint)


def aliases_of(connection: Connection, fingerprint: str) -> list[Alias]:
    """The groups that people merged into this one, and the places that were folded into it."""
    shown = [AliasReason.MERGED.value, AliasReason.FOLDED.value]
    these = select(alias).where(alias.c.fingerprint == fingerprint, alias.c.why.in_(shown))
    rows = connection.execute(these.order_by(alias.c.at, alias.c.name)).mappings()
    return [read_row(Alias, row) for row in rows]


def claimed(connection: Connection, fingerprint: str, recipe: str) -> bool:
    """Whether a fingerprint that ``recipe`` has made is counted in this group."""
    these = select(alias.c.name).where(alias.c.fingerprint == fingerprint, alias.c.why == recipe)
    return connection.execute(these.limit(1)).first() is not None


def forget_claims(connection: Connection, recipe: str) -> None:
    """Let another run of ``recipe`` choose groups for its fingerprints; those of earlier runs stay."""
    these = update(alias).where(alias.c.why == recipe, is_ours(connection, alias))
    connection.execute(these.values(why=AliasReason.RECIPE.value))


def folded(connection: Connection) -> list[str]:
    """The groups into which the groups of one place were folded."""
    these = select(alias.c.fingerprint).where(
        alias.c.why == AliasReason.FOLDED.value, alias.c.fingerprint != ""
    )
    ours = these.where(is_ours(connection, alias))
    return list(connection.scalars(ours.order_by(alias.c.fingerprint)))
