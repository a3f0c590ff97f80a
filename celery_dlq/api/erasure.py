"""Erases the letters of a person.

Task ids, a person as ``dlq_subject`` names it, or conditions on arguments such as ``args.user_id=7``, enter.
A condition is checked against the current message of a letter, and against its message before each edit. A
look says where such letters are; an erasure removes them from the store and from the archive, with what is
noted about them elsewhere. A person's letters in the archive stay there, and cannot be read without the key,
which is destroyed. Letters in the files of the spool are found, but stay there: a drain moves them into the
store.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from celery_dlq.archive.archiving import Archive, Archiver, chunks
from celery_dlq.archive.reading import Holders, Search, Wanted, holders
from celery_dlq.base.sealing import Keyring
from celery_dlq.errors import ContentsSealed, PayloadError, RepairError
from celery_dlq.model.assignment import Assignment, parse_assignment
from celery_dlq.model.letter import DeadLetter, Envelope
from celery_dlq.model.states import State
from celery_dlq.redrive.letter.contents import is_same
from celery_dlq.redrive.letter.payload import Parameters, read_payload
from celery_dlq.settings.validation import is_number
from celery_dlq.spool.look import look
from celery_dlq.spool.segment import decode
from celery_dlq.store.archiving import Line, envelopes_of
from celery_dlq.store.base import Filter, Lease, OngoingAct, Portion
from celery_dlq.store.letters.erasing import Mention
from celery_dlq.store.rows.audit import by_filter
from celery_dlq.store.rows.rows import stored_id

if TYPE_CHECKING:
    from celery_dlq.redrive.gate import Gate
    from celery_dlq.store import Store

T = TypeVar("T")


class UnknownParameters(Exception):
    """The argument may be a positional one, whose names are unknown."""


@dataclass(frozen=True)
class Condition:
    """A value that a message has at some place.

    ``args.user_id`` is the argument with that name, however it was passed; the other places are those of an
    assignment. A list at the place has the value if one of its items is the value.
    """

    wanted: Assignment

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read a condition.

        :raises RepairError: ``text`` is not a condition.
        """
        wanted = parse_assignment(text, "--where", by_name=False)
        if not wanted.written.strip():
            raise RepairError(f"--where {text}: write a value after the equals sign")
        return cls(wanted)

    @property
    def place(self) -> str:
        """The place of the value."""
        return self.wanted.place

    @property
    def text(self) -> str:
        """The value as a text."""
        value = self.wanted.value
        return value if isinstance(value, str) else self.wanted.written

    def holds(self, parts: Mapping[str, Any], parameters: Parameters) -> bool:
        """Whether a message has the value at the place.

        :param parts: args, kwargs and headers of the message.
        :param parameters: of the message's task.
        :raises UnknownParameters: the answer depends on the names of parameters, which are unknown.
        """
        try:
            found = self._resolved(parts, parameters).find(parts)
        except LookupError:
            return False
        return self._is_value(found)

    def _resolved(self, parts: Mapping[str, Any], parameters: Parameters) -> Assignment:
        """The place in this message."""
        name, *inner = self.wanted.steps
        if self.wanted.root != "args" or isinstance(name, int) or name.isdecimal():
            return self.wanted
        if name in parts["kwargs"] or not parts["args"]:
            return replace(self.wanted, root="kwargs")
        if parameters is None:
            raise UnknownParameters
        if name not in parameters:
            raise LookupError(name)
        return replace(self.wanted, steps=(parameters.index(name), *inner))

    def _is_value(self, found: Any) -> bool:
        # Not by recursion: a message may be nested as deep as its sender likes.
        left = [found]
        while left:
            one = left.pop()
            if self._is_one(one):
                return True
            if isinstance(one, (list, tuple, set, frozenset)):
                left += one
        return False

    def _is_one(self, found: Any) -> bool:
        if is_number(found) and is_number(self.wanted.value):
            return bool(found == self.wanted.value)
        if isinstance(found, (list, tuple, set, frozenset)):
            return is_same(found, self.wanted.value)
        return is_same(found, self.wanted.value) or _text_of(found) == self.text


def _text_of(value: Any) -> str | None:
    """``value`` as a text; None if it cannot be converted. A message may hold any object."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - the object's own method
        return None


#: The fewest characters of a value that is searched in notes and in the audit: shorter ones are part of too
#: many other texts.
SHORTEST_TEXT = 4


@dataclass(frozen=True, kw_only=True)
class Meant:
    """Which letters are to be erased: those with one of the ids, those of a person, or those that meet all
    conditions."""

    #: Task ids, as stored.
    ids: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    #: The person as ``dlq_subject`` names it, and the id of that person's key; empty for others.
    subject: str = ""
    person_id: str = ""

    @property
    def detail(self) -> dict[str, object]:
        """The detail of the act for the audit, without the values."""
        if len(self.ids) == 1:
            return {"letter": self.ids[0]}
        if self.ids:
            return by_filter(Filter(ids=self.ids))
        if self.subject:
            return {"person": self.person_id}
        return {"where": [one.place for one in self.conditions]}

    @property
    def texts(self) -> tuple[str, ...]:
        """The values that are long enough to be searched in other texts."""
        return tuple(one for one in self._texts if len(one) >= SHORTEST_TEXT)

    @property
    def _texts(self) -> list[str]:
        return [*filter(None, [self.subject]), *(one.text for one in self.conditions)]

    @property
    def short(self) -> tuple[str, ...]:
        """The places of the other values."""
        return tuple(one.place for one in self.conditions if len(one.text) < SHORTEST_TEXT)


class Matcher:
    """Decides which letters are meant.

    :param accepted: the content types that may be decoded.
    :param parameters: returns the parameters of a task, given its name.
    """

    def __init__(
        self, meant: Meant, *, accepted: frozenset[str], parameters: Callable[[str], Parameters]
    ) -> None:
        self.meant = meant
        self._accepted, self._parameters = accepted, parameters
        #: Letters that could not be read, by task id, each with the reason.
        self.unread: dict[str, str] = {}

    def is_line(self, line: Line, opened: Callable[[Line], Line] = lambda line: line) -> bool:
        """Whether the letter of a line is meant.

        :param opened: decrypts a line.
        """
        letter = line["letter"]
        if self.meant.subject:
            return bool(letter.get("sealed_by") == f"@{self.meant.person_id}")
        try:
            found = envelopes_of(opened(line)) if self.meant.conditions else ()
        except ContentsSealed as error:
            self.unread[letter["task_id"]] = str(error)
            return False
        return self._is_meant(letter["task_id"], letter["task"], found)

    def is_letter(self, letter: DeadLetter) -> bool:
        """Whether ``letter`` is meant."""
        if letter.unreadable and not self.meant.ids:
            self.unread[letter.task_id] = letter.unreadable
            return False
        if self.meant.subject:
            return letter.subject == self.meant.subject
        return self._is_meant(letter.task_id, letter.task, [letter.envelope])

    def _is_meant(self, task_id: str, task: str, messages: Iterable[Envelope]) -> bool:
        if self.meant.ids and stored_id(task_id) not in self.meant.ids:
            return False
        if not self.meant.conditions:
            return True
        try:
            return any(self._meets_all(task, message) for message in messages)
        except UnknownParameters:
            self.unread[task_id] = (
                f"the app does not have its task {task}, so the names of its arguments are unknown"
            )
        except PayloadError as error:
            self.unread[task_id] = str(error)
        return False

    def _meets_all(self, task: str, message: Envelope) -> bool:
        payload = read_payload(message, self._accepted)
        parts = {"args": payload.args, "kwargs": payload.kwargs, "headers": message.headers}
        named = message.headers.get("task")
        parameters = self._parameters(named if isinstance(named, str) else task)
        return all(condition.holds(parts, parameters) for condition in self.meant.conditions)


@dataclass(frozen=True, kw_only=True)
class SpooledLetters:
    """Letters in one file."""

    #: The name of the file.
    name: str
    letters: int
    #: Lines that cannot be read, and may hold such letters.
    unread: int


def spooled(
    directory: Path, matcher: Matcher, ring: Keyring | None = None
) -> Iterator[SpooledLetters]:
    """The files of the spool that hold letters for ``matcher``, or lines that cannot be read.

    :param ring: opens lines that are encrypted.
    :raises OSError: the directory cannot be read.
    """
    for file in look(directory):
        with contextlib.suppress(FileNotFoundError):  # just drained
            found = _letters_in(directory / file.name, matcher, ring)
            if found.letters or found.unread:
                yield found


def _letters_in(path: Path, matcher: Matcher, ring: Keyring | None) -> SpooledLetters:
    letters = unread = 0
    with path.open("rb") as file:
        for line in file:
            try:
                record = decode(line, ring)
            except (ValueError, RecursionError, ContentsSealed):
                unread += 1
                continue
            letters += isinstance(record, DeadLetter) and matcher.is_letter(record)
    return SpooledLetters(name=path.name, letters=letters, unread=unread)


#: Letters that are read together, and those that are deleted in one transaction; and texts.
_READ_TOGETHER, _DELETED_TOGETHER, _REPLACED_TOGETHER = 200, 500, 200

_STORED = frozenset(State) - {State.PARKED}


@dataclass(frozen=True, kw_only=True)
class ErasurePlan:
    """Where such letters are."""

    #: In the spool of this machine.
    spooled: tuple[SpooledLetters, ...]
    #: Task ids of retries that wait in the store.
    parked: tuple[str, ...]
    #: Letters in the store by task id. Those that a redrive is sending count as redriven.
    stored: Mapping[str, State]
    #: In the archive; None without one.
    archived: Holders | None
    #: Whether a process was killed while it changed the archive.
    is_unfinished: bool
    #: Letters that could not be read, by task id, each with the reason.
    unread: Mapping[str, str]
    #: Texts of people, handlers and filters that mention the values.
    mentions: tuple[Mention, ...]
    #: Whether the person has a key.
    has_key: bool = False

    @property
    def ids(self) -> frozenset[str]:
        """Task ids of the letters that would be erased."""
        own = self.archived.ids.values() if self.archived else ()
        return frozenset(self.stored).union(*own)

    @property
    def has_work(self) -> bool:
        """Whether there is anything to erase."""
        return bool(self.ids or self.mentions or self.is_unfinished or self.has_key)

    @property
    def is_elsewhere(self) -> bool:
        """Whether such letters are, or may be, where an erasure does not remove them."""
        archived = self.archived and self.archived.unread
        return bool(self.parked or self.spooled or self.unread or archived)


@dataclass(frozen=True, kw_only=True)
class Erased:
    """The result of an erasure."""

    #: Letters that were removed from the store, and from the archive.
    stored: int
    archived: int
    #: Segments that were replaced, each with the one that replaces it; empty if no letter of it was left.
    segments: Mapping[str, str]
    #: Texts that were changed.
    mentions: int
    #: Whether the person's key was destroyed.
    key: bool = False


class Erasure:
    """Erases letters.

    :param archive: None if the store has none, or if a person's key is destroyed, without which what it has
        sealed there cannot be read.
    :param spool: the directory of the spool on this machine.
    :param ring: opens the lines in it that are encrypted.
    :param gate: the check whether it needs a second person.
    """

    def __init__(
        self, store: Store, matcher: Matcher, gate: Gate, *, archive: Archive | None, spool: Path,
        ring: Keyring | None,
    ) -> None:  # fmt: skip
        self._store, self._matcher, self._gate = store, matcher, gate
        #: Which letters.
        self.meant: Meant = matcher.meant
        self._archive, self._spool, self._ring = archive, spool, ring

    def look(self) -> ErasurePlan:
        """Find the letters, and say where they are. Reads every message, unless task ids are given. Changes
        nothing.

        :raises OSError: the spool cannot be read.
        :raises ArchiveError: the place of the archive failed.
        :raises StoreError: the store failed.
        :raises ContentsSealed: messages have to be read, and are encrypted with a key that is not here.
        """
        self._matcher.unread.clear()
        if self.meant.conditions:
            self._store.erasing.check_keys()
        archive = self._archive
        # In the order in which letters move, so that none moves past the search.
        in_spool = tuple(self._spooled())
        waiting = tuple(self._parked())
        stored = {
            line["letter"]["task_id"]: State(line["letter"]["state"]) for line in self._stored()
        }
        return ErasurePlan(
            spooled=in_spool,
            parked=waiting,
            stored=stored,
            archived=None
            if archive is None
            else holders(self._search(archive), archive.unknown_files()),
            is_unfinished=not all(one.counts for one in self._store.archiving.segments()),
            unread=dict(self._matcher.unread),
            mentions=tuple(self._store.erasing.mentions(self.meant.texts)),
            has_key=self._store.keys.has_person(self.meant.person_id),
        )

    def carry_out(
        self, found: ErasurePlan, lease: Lease, *, who: str, why: str, is_approved: bool = False
    ) -> Erased:
        """Erase what was found, while ``lease`` is held. If the process is killed, a second run ends the
        work. Look again afterwards: letters may have come, or moved, meanwhile. The audit has one row, which
        is written first and names neither the values nor the contents of letters.

        :param lease: the one under which letters are removed; it keeps them from being archived meanwhile.
        :param is_approved: whether a second person has approved it.
        :raises ApprovalNeeded: a second person has to approve it. The request was made, nothing else.
        :raises ArchiveError: the place of the archive failed.
        :raises StoreError: the store failed, or the lease was lost.
        """
        if not is_approved:
            # Without ids, a filter takes all letters.
            stored = Filter(ids=(*found.stored,) or ("",), states=_STORED)
            # A person's key stands for the letters in the archive, which are not searched.
            meant, where = self.meant, self.meant.conditions
            person = {f"the key of person {meant.person_id}"} if meant.person_id else set[str]()
            self._gate.check(
                "forget", stored, who=who, why=why,
                archived=found.ids.difference(found.stored) | person,
                changes={"where": [one.wanted.text for one in where], "subject": meant.subject},
                shown={"where": [one.place for one in where]},
            )  # fmt: skip
        detail, now = self.meant.detail, self._store.now()
        act = OngoingAct(who=who, act="forget", why=why, detail=detail, at=now)
        act = self._store.erasing.begin(act, lease)
        segments, archived = self._erase_archived(lease, act)
        deleted = self._delete([*found.stored], lease, act)
        self._store.erasing.erase_operations(found.ids)
        return Erased(
            stored=deleted,
            archived=archived,
            segments=segments,
            mentions=self._replace_texts(),
            key=found.has_key and self._destroy_key(),
        )

    def _destroy_key(self) -> bool:
        """Destroy the person's key, unless a message of that person still needs it: one that a redrive is
        sending, waits for a retry, or is in the spool."""
        left = [*self._stored(), *self._parked(), *self._spooled()]
        return not left and self._store.keys.destroy(self.meant.person_id)

    def _erase_archived(self, lease: Lease, act: OngoingAct) -> tuple[Mapping[str, str], int]:
        """The segments that were replaced, and how many letters were removed from them."""
        if self._archive is None:
            return {}, 0
        archiver = Archiver(self._archive.bucket, self._store.archiving, lease, act)
        archiver.clean()
        search, erasing = self._search(self._archive), self._store.erasing
        replaced, count = dict[str, str](), 0
        for segment, found in groupby(search.copies(), key=lambda one: one.segment):
            letters = [one.line["letter"] for one in found]
            groups = {(one["fingerprint"], one["task"], one["exception_type"]) for one in letters}
            # First: after a kill, the letters could no longer be found.
            erasing.erase_notes([one["task_id"] for one in letters], groups)
            after = archiver.rewrite(segment, search.wanted.matches)
            replaced[segment.id] = after.id if after else ""
            act = erasing.note_segment(act, segment.id, replaced[segment.id], letters=len(letters))
            count += len(letters)
        return replaced, count

    def _delete(self, task_ids: Sequence[str], lease: Lease, act: OngoingAct) -> int:
        portion, deleted, left = Portion(_DELETED_TOGETHER), 0, task_ids
        while left:
            these = partial(self._delete_first, left, lease, act)
            deleted += portion.attempt(these)
            left = left[portion.size :]
        return deleted

    def _delete_first(
        self, task_ids: Sequence[str], lease: Lease, act: OngoingAct, size: int
    ) -> int:
        return self._store.erasing.delete(task_ids[:size], lease, act)

    def _replace_texts(self) -> int:
        mentions = self._store.erasing.mentions(self.meant.texts)
        return sum(
            self._store.erasing.replace_texts(some) for some in chunks(mentions, _REPLACED_TOGETHER)
        )

    def _search(self, archive: Archive) -> Search:
        return archive.find(Wanted(ids=frozenset(self.meant.ids), where=self._is_line))

    def _stored(self) -> Iterator[Line]:
        for ids in self._pages():
            lines = self._store.archiving.read(ids, _STORED)
            yield from (line for line in lines if self._is_line(line))

    def _is_line(self, line: Line) -> bool:
        return self._matcher.is_line(line, self._store.archiving.opened)

    def _pages(self) -> Iterator[Sequence[str]]:
        """The task ids of the letters that may be meant."""
        if self.meant.ids:
            yield from chunks(self.meant.ids, _READ_TOGETHER)
            return
        if (
            self.meant.subject and not self.meant.person_id
        ):  # no letter is sealed with a person's key
            return
        some = partial(self._store.erasing.letters_after, person_id=self.meant.person_id)
        yield from _until_none(some)

    def _parked(self) -> Iterator[str]:
        for letters in _until_none(self._store.erasing.parked_after):
            yield from (one.task_id for one in letters if self._matcher.is_letter(one))

    def _spooled(self) -> Iterator[SpooledLetters]:
        return spooled(self._spool, self._matcher, self._ring)


def _until_none(after: Callable[..., tuple[list[T], int]]) -> Iterator[list[T]]:
    """What the calls of ``after`` return, each with the number of the previous one, until nothing is left."""
    some, last = after(0, limit=_READ_TOGETHER)
    while some:
        yield some
        some, last = after(last, limit=_READ_TOGETHER)
