"""The part of the Python API that is about groups."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING

from celery_dlq.errors import UnknownGroup
from celery_dlq.group import (
    NOT_IGNORED,
    Annotate,
    Assign,
    Group,
    GroupAct,
    GroupFilter,
    Ignore,
    Reopen,
    Resolve,
)
from celery_dlq.store.filter import Filter

if TYPE_CHECKING:
    from celery_dlq.store.base import Store

_ALL = Filter()


class GroupAPI:
    """Groups as users of Python reach them, through the dead-letter queue of their app. A group is named
    by its whole fingerprint. What they do is audited under ``who``.

    All raise :class:`~celery_dlq.errors.StoreError` when the store fails.
    """

    @cached_property
    def store(self) -> Store:
        """The store, its schema checked."""
        raise NotImplementedError

    def groups(
        self, wanted: Filter = _ALL, *, which: GroupFilter = NOT_IGNORED, limit: int = 50
    ) -> list[Group]:
        """Groups of letters, most open letters first; without those that are ignored, unless ``which``
        names them.

        :raises FilterError: ``wanted`` asks for what groups do not have.
        """
        return self.store.groups(wanted, now=_now(), limit=limit, which=which)

    def group(self, fingerprint: str) -> Group:
        """The group with this fingerprint.

        :raises UnknownGroup: there is none.
        """
        found = self.store.group(fingerprint, now=_now())
        if found is None:
            raise UnknownGroup
        return found

    def ignore_group(
        self,
        fingerprint: str,
        *,
        who: str,
        until: datetime | None = None,
        rate: int | None = None,
        count: int | None = None,
    ) -> Group:
        """Leave a group out of lists until one of these comes true; with none of them, until somebody acts.
        Its letters are kept and counted as ever.

        :param until: the first failure from then on opens it again.
        :param rate: so many letters within an hour do.
        :param count: so many letters more do.
        :raises UnknownGroup: there is none with this fingerprint.
        :raises TriageError: ``rate`` or ``count`` is less than 1.
        """
        return self._triage(fingerprint, Ignore(until=until, rate=rate, count=count), who)

    def resolve_group(self, fingerprint: str, *, who: str, release: str = "") -> Group:
        """Say that the cause of a group is gone. Its letters stay what they are; the next failure opens it
        again, and it is marked as regressed.

        :param release: which ``dlq_release`` has the cure; then a failure in a release that had failed before
            is no regression.
        :raises UnknownGroup: there is none with this fingerprint.
        """
        return self._triage(fingerprint, Resolve(release=release), who)

    def reopen_group(self, fingerprint: str, *, who: str) -> Group:
        """Take back that it is ignored or resolved, or the mark that it has regressed.

        :raises UnknownGroup: there is none with this fingerprint.
        """
        return self._triage(fingerprint, Reopen(), who)

    def note_group(self, fingerprint: str, note: str, *, who: str) -> Group:
        """Write down what people are to know about a group, in the place of what was there.

        :raises UnknownGroup: there is none with this fingerprint.
        :raises TriageError: the note is too long.
        """
        return self._triage(fingerprint, Annotate(note=note), who)

    def assign_group(self, fingerprint: str, owner: str, *, who: str) -> Group:
        """Say who looks after a group; empty is nobody.

        :raises UnknownGroup: there is none with this fingerprint.
        """
        return self._triage(fingerprint, Assign(owner=owner), who)

    def _triage(self, fingerprint: str, act: GroupAct, who: str) -> Group:
        return self.store.triage(fingerprint, act, who=who, now=_now())


def _now() -> datetime:
    return datetime.now(timezone.utc)
