"""Groups of letters in the Python API: ``dlq.groups``."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING

from celery_dlq.api.parts import AppParts
from celery_dlq.errors import UnknownGroup
from celery_dlq.model.group import (
    NOT_IGNORED,
    Annotate,
    Assign,
    Group,
    GroupAct,
    GroupFilter,
    Ignore,
    Merge,
    Reopen,
    Resolve,
    Split,
)
from celery_dlq.store.filter import Filter

if TYPE_CHECKING:
    from celery_dlq.upkeep.regroup import Regrouper

_ALL = Filter()

#: Seconds for which the process of a person moves letters.
_MOVE_FOR_S = 2.0


class Groups:
    """The groups of a dead-letter queue. A group is named by its whole fingerprint. The audit records each
    act under ``who``.

    All methods raise :class:`~celery_dlq.errors.StoreError` if the store fails.

    :param parts: has the store.
    """

    def __init__(self, parts: AppParts) -> None:
        self._parts = parts

    def find(
        self, wanted: Filter = _ALL, *, which: GroupFilter = NOT_IGNORED, limit: int = 50
    ) -> list[Group]:
        """Groups of letters, those with the most open letters first; without ignored ones, unless
        ``which`` asks for them.

        :raises FilterError: ``wanted`` filters by a field that groups do not have.
        """
        store = self._parts.store
        return store.groups.find(wanted, now=store.now(), limit=limit, which=which)

    def get(self, fingerprint: str) -> Group:
        """The group with this fingerprint.

        :raises UnknownGroup: no group has it.
        """
        store = self._parts.store
        found = store.groups.get(fingerprint, now=store.now())
        if found is None:
            raise UnknownGroup
        return found

    def ignore(
        self,
        fingerprint: str,
        *,
        who: str,
        until: datetime | None = None,
        rate: int | None = None,
        count: int | None = None,
    ) -> Group:
        """Leave a group out of lists until one of these conditions is met; without any condition, until the
        next decision. Its letters are still kept and counted.

        :param until: the first failure from then on opens it again.
        :param rate: this many failures within an hour open it again.
        :param count: this many further failures open it again.
        :raises UnknownGroup: no group has this fingerprint.
        :raises TriageError: ``rate`` or ``count`` is less than 1.
        """
        return self.decide(fingerprint, Ignore(until=until, rate=rate, count=count), who=who)

    def resolve(self, fingerprint: str, *, who: str, release: str = "") -> Group:
        """Mark the cause of a group as fixed. Its letters do not change; the next failure opens the
        group again and marks it as regressed.

        :param release: the ``dlq_release`` that has the fix; then a failure in a release that had
            failed before is not a regression.
        :raises UnknownGroup: no group has this fingerprint.
        """
        return self.decide(fingerprint, Resolve(release=release), who=who)

    def reopen(self, fingerprint: str, *, who: str) -> Group:
        """Reopen an ignored or resolved group, or clear its regressed mark.

        :raises UnknownGroup: no group has this fingerprint.
        """
        return self.decide(fingerprint, Reopen(), who=who)

    def note(self, fingerprint: str, note: str, *, who: str) -> Group:
        """Set the note of a group, which replaces the previous one.

        :raises UnknownGroup: no group has this fingerprint.
        :raises TriageError: the note is too long.
        """
        return self.decide(fingerprint, Annotate(note=note), who=who)

    def assign(self, fingerprint: str, owner: str, *, who: str) -> Group:
        """Set the owner of a group; an empty one removes it.

        :raises UnknownGroup: no group has this fingerprint.
        """
        return self.decide(fingerprint, Assign(owner=owner), who=who)

    def regrouper(self) -> Regrouper:
        """The engine that gives stored letters the fingerprints of the recipe in ``dlq_fingerprint``.

        :raises SettingsError: the recipe cannot be imported, or cannot be called.
        """
        from celery_dlq.upkeep.regroup import Regrouper

        return Regrouper(self._parts.store, self._parts.grouping)

    def merge(self, fingerprint: str, *, into: str, who: str) -> Group:
        """Count the letters of a group, also the future ones, in another group, because they have the same
        cause. The decisions about it wait until it is split off again.

        :param into: the fingerprint of the other group.
        :raises UnknownGroup: one of the groups does not exist.
        :raises TriageError: both are the same group.
        """
        return self.decide(fingerprint, Merge(into=into), who=who)

    def split(self, fingerprint: str, *, who: str, member: str = "") -> Group:
        """Undo merges into a group, or the folding of the groups of one place.

        :param member: the fingerprint of the group that was merged; all if it is empty.
        :raises UnknownGroup: no group has this fingerprint.
        :raises TriageError: no such group was merged into it.
        """
        return self.decide(fingerprint, Split(member=member), who=who)

    def decide(
        self, fingerprint: str, act: GroupAct, *, who: str, now: datetime | None = None
    ) -> Group:
        """Carry out ``act``. After a merge or a split, stored letters are moved for a few seconds at most;
        workers move the others.

        :raises UnknownGroup: a group does not exist.
        :raises TriageError: the act is not possible.
        """
        store = self._parts.store
        store.groups.triage(fingerprint, act, who=who, now=now or store.now())
        if isinstance(act, (Merge, Split)):
            until = time.monotonic() + _MOVE_FOR_S
            self.regrouper().run(should_stop=lambda: time.monotonic() >= until)
        return self.get(fingerprint)
