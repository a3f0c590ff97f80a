"""The part of the Python API for letters that are done with: they are kept, archived, deleted, or erased for
a person.

Closed letters are deleted by default, open ones only on request and with a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from celery_dlq.api.parts import AppParts
from celery_dlq.errors import DeletionError, OpenLetters, SettingsError, page
from celery_dlq.model.states import CLOSED_STATES, DELETABLE_STATES, State
from celery_dlq.store.filter import Filter

if TYPE_CHECKING:
    from celery_dlq.api.erasure import Erasure
    from celery_dlq.archive.archiving import Archive
    from celery_dlq.upkeep.expiring import RetentionEngine


def deletable(wanted: Filter, *, is_open: bool) -> Filter:
    """``wanted`` with the states of the letters to delete.

    :param is_open: whether open letters were asked for: dead ones, if ``wanted`` names no state.
    :raises OpenLetters: it names open states, but open letters were not asked for.
    :raises DeletionError: it names closed states, but open letters were asked for; or it names a state in
        which no letter can be deleted.
    """
    if others := wanted.states - DELETABLE_STATES:
        raise DeletionError(
            f"Letters that are {_named(others)} cannot be deleted; only closed, dead or redriven ones can."
        )
    if is_open:
        if closed := wanted.states & CLOSED_STATES:
            raise DeletionError(
                f"Letters that are {_named(closed)} are closed; delete them apart from open ones."
            )
        return replace(wanted, states=wanted.states or frozenset({State.DEAD}))
    if still_open := wanted.states - CLOSED_STATES:
        raise OpenLetters(
            f"Letters that are {_named(still_open)} are open; delete them apart from closed ones, and with a "
            "reason, because their messages are lost."
        )
    return replace(wanted, states=wanted.states or CLOSED_STATES)


def check_reason(why: str, *, is_open: bool) -> None:
    """Check that there is a reason if open letters are to be deleted.

    :raises OpenLetters: the reason is missing.
    """
    if is_open and not why.strip():
        raise OpenLetters("Deleting open letters needs a reason, because their messages are lost.")


def _named(states: Iterable[State]) -> str:
    return " and ".join(sorted(states))


class RetentionAPI(AppParts):
    """The methods of a dead-letter queue for letters that are done with."""

    @cached_property
    def archive(self) -> Archive:
        """The archive at ``dlq_archive_url``. Does not connect.

        :raises SettingsError: the setting is missing or not valid.
        :raises MissingExtra: a package that the place needs is not installed.
        """
        url = self.settings.archive_url
        if url is None:
            raise SettingsError(
                "This app has no archive, because dlq_archive_url is not set. Set it to a place such as "
                f"s3://bucket/folder or file:///folder. See {page('settings')}."
            )
        from celery_dlq.archive.archiving import Archive
        from celery_dlq.archive.bucket import open_bucket

        return Archive(open_bucket(url), lambda: self.store)

    @cached_property
    def retention(self) -> RetentionEngine:
        """Deletes what was kept as long as ``dlq_retention`` says, or moves it into the archive.

        :raises SettingsError: a ``dlq_*`` setting is not valid.
        """
        from celery_dlq.upkeep.expiring import RetentionEngine
        from celery_dlq.upkeep.retention import Retention

        retention: Retention = self.settings.retention or Retention()
        # Opened only when letters are moved: history is deleted though the archive cannot be opened.
        archiver = (
            None
            if self.settings.archive_url is None
            else lambda lease, who, detail: self.archive.archiver(lease, who=who, detail=detail)
        )
        return RetentionEngine(lambda: self.store, retention, archiver=archiver)

    def delete(self, wanted: Filter, *, who: str, why: str = "", is_open: bool = False) -> int:
        """Delete the closed letters of ``wanted`` for ever, with their messages and attempts; returns how
        many. The audit records it. Counts of arrivals stay.

        :param who: the name in the audit.
        :param why: the reason in the audit; open letters need one.
        :param is_open: delete open letters instead of closed ones: dead ones, unless ``wanted`` names states.
            Their messages are lost.
        :raises OpenLetters: open letters would be deleted without ``is_open`` or without a reason.
        :raises DeletionError: letters in a state that ``wanted`` names cannot be deleted, or not in this way.
        :raises ApprovalNeeded: a second person has to approve it. The request was made, nothing else.
        :raises FilterError: ``dlq_approval`` is about deletions, and these are too many letters for one.
        :raises StoreError: the store failed. Letters that were deleted before that stay deleted.
        """
        check_reason(why, is_open=is_open)
        taken = self.gate.check("delete", deletable(wanted, is_open=is_open), who=who, why=why)
        return self.store.deleting.delete(taken, who=who, why=why, now=self.store.now())

    def erasure(
        self, *, ids: Sequence[str] = (), where: Sequence[str] = (), subject: str = ""
    ) -> Erasure:
        """An erasure of the letters with one of these task ids, of those that meet all conditions (of both,
        if both are given), or of those of a person.

        :param ids: whole task ids.
        :param where: conditions such as ``args.user_id=7``. Import the app's tasks first, because their
            parameters say which positional argument has that name.
        :param subject: the person as ``dlq_subject`` names it. The person's key is destroyed, so that letters
            in the archive, in backups and in replicas cannot be read, either.
        :raises ValueError: none of the three is given, or a person and another one.
        :raises RepairError: a condition is wrong.
        :raises SettingsError: the store has archived letters, and ``dlq_archive_url`` is not set.
        :raises StoreError: the store failed.
        """
        if not (ids or where or subject) or (subject and (ids or where)):
            raise ValueError("give ids, where or both, or subject")
        from celery_dlq.api.erasure import Condition, Erasure, Matcher, Meant
        from celery_dlq.redrive.letter.payload import accepted_by, parameters_of
        from celery_dlq.store.rows.rows import stored_id

        named = tuple(dict.fromkeys(map(stored_id, ids)))
        conditions = tuple(map(Condition.parse, where))
        person_id = self.store.keys.person_id(subject) if subject else ""
        meant = Meant(ids=named, conditions=conditions, subject=subject, person_id=person_id)
        # It reads what the workers of the app read, and knows its tasks.
        matcher = Matcher(
            meant, accepted=accepted_by(self.app), parameters=partial(parameters_of, self.app)
        )
        spool = Path(self.settings.spool_dir)
        archive, ring = None if subject else self._archive_to_erase(), self.keyring
        return Erasure(self.store, matcher, self.gate, archive=archive, spool=spool, ring=ring)

    def _archive_to_erase(self) -> Archive | None:
        if self.settings.archive_url is not None:
            return self.archive
        if self.store.archiving.newest():
            raise SettingsError(
                "This store has letters in an archive, and dlq_archive_url is not set. Set it, so that they "
                f"can be erased there, too. See {page('settings')}."
            )
        return None
