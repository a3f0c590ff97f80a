"""The store as screens read it: without secrets; and its letters, operations and groups by prefixes of ids.

``see`` is the command that lists them. It stands at the end of the error for an unknown id; a screen without
such a command leaves it empty.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from celery_dlq.base.known import unknown_name
from celery_dlq.base.redact import Redactor, clip
from celery_dlq.errors import (
    AmbiguousId,
    CeleryDLQError,
    FilterError,
    LetterDeleted,
    UnknownGroup,
    UnknownLetter,
    UnknownOperation,
)
from celery_dlq.model.group import Group
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import CLOSED_STATES, State
from celery_dlq.store import hiding
from celery_dlq.store.base import Filter, Operation, Page, Rows
from celery_dlq.view import times
from celery_dlq.view.text import counted

if TYPE_CHECKING:
    from celery_dlq.store import Store
    from celery_dlq.store.base import Argument

#: The roles of the store that screens read, each with the function that hides the secrets in its values, and
#: the methods that return such values.
_READ: Mapping[str, tuple[Callable[..., Any], Collection[str]]] = {
    "letters": (hiding.hide_letter, ("get", "find")),
    "groups": (hiding.hide_group, ("get", "find", "triage")),
    "operations": (hiding.hide_operation, ("get", "find")),
    "sendings": (hiding.hide_sending, ("of_letter", "of_cause", "of_operation")),
    "edits": (hiding.hide_change, ("of_letter",)),
    "automations": (hiding.hide_automation, ("get", "find", "statuses")),
    "audit": (hiding.hide_act, ("find",)),
    "requests": (hiding.hide_request, ("get", "find")),
}


def redacting(store: Store, redactor: Redactor) -> Store:
    """``store``, as screens read it. The values that it returns are without secrets, and must not be sent or
    stored."""
    shown = copy(store)
    for name, (hide, methods) in _READ.items():
        role = _RedactingRole(getattr(store, name), partial(hide, redactor=redactor), methods)
        setattr(shown, name, role)
    return shown


class _RedactingRole:
    """A role of the store. The values that ``methods`` return are without secrets; all other methods are
    unchanged."""

    def __init__(self, role: Any, hide: Callable[[Any], Any], methods: Collection[str]) -> None:
        self._role, self._hide, self._methods = role, hide, methods

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._role, name)
        if name not in self._methods:
            return method
        return lambda *args, **kwargs: self._hidden(method(*args, **kwargs))

    def _hidden(self, found: Any) -> Any:
        """The value, list or page that was found, without secrets."""
        if found is None:
            return None
        if isinstance(found, list):
            return [self._hide(one) for one in found]
        if isinstance(found, dict):
            return {name: self._hide(one) for name, one in found.items()}
        if isinstance(found, Page):
            return replace(found, letters=tuple(map(self._hide, found.letters)))
        if isinstance(found, Rows):
            return replace(found, rows=tuple(map(self._hide, found.rows)))
        return self._hide(found)


#: The error for a filter by values that are not kept.
NOT_KEPT = (
    "dlq_search_values is 0, so the values of letters are not kept; search for a text, or set it to 24 and "
    "restart the workers."
)

#: The most closed letters that are counted.
_CLOSED_COUNTED = 50

#: Candidates that an error lists for an ambiguous prefix.
_CANDIDATES = 10

#: Characters of an id that an error repeats.
_SHOWN = 80


def unknown_names(store: Store, wanted: Filter, fields: Collection[str]) -> Iterator[str]:
    """Says for each of ``fields`` whose name in ``wanted`` no letter has, which name may be meant. That is
    not an error: letters with it may come."""
    for name in sorted(wanted.given & frozenset(fields)):
        value = getattr(wanted, name)
        alone = Filter(**{name: value}, states=frozenset(State))
        if not store.letters.find(alone, limit=1).letters:
            yield unknown_name(f"the {name} of a letter", value, store.counts.names(name))


def closed_too(store: Store, wanted: Filter, *, patience_s: float) -> tuple[str, Sequence[str]]:
    """How many closed letters match, in words, and their states; empty if a search of at most ``patience_s``
    finds none."""
    closed = replace(wanted, states=CLOSED_STATES)
    page = store.letters.find(closed, limit=_CLOSED_COUNTED, patience_s=patience_s)
    number = len(page.letters)
    if not number:
        return "", ()
    some = " or more" if page.next else ""
    said = f"{counted(number, 'closed letter')}{some} also match{'es' if number == 1 else ''}"
    return said, sorted({one.state.value for one in page.letters})


def letter_id(store: Store, prefix: str, *, see: str = "") -> str:
    """The task id that starts with ``prefix``.

    :raises UnknownLetter: no id matches.
    :raises AmbiguousId: several ids match, and none is ``prefix`` itself.
    """
    return _only(store.letters, prefix, UnknownLetter, "dead letter has an id", see)


def letter(store: Store, prefix: str, *, see: str = "") -> DeadLetter:
    """The letter, with its message, whose id starts with ``prefix``.

    :raises UnknownLetter: no id matches.
    :raises AmbiguousId: several ids match.
    """
    # The store changes ids that are too long or contain NUL, so only get() finds those.
    found = store.letters.get(prefix) or store.letters.get(letter_id(store, prefix, see=see))
    if found is None:
        raise UnknownLetter
    return found


def letter_to_show(store: Store, prefix: str, *, see: str = "") -> DeadLetter:
    """The letter whose id starts with ``prefix``, for a screen. If there is none, the error may
    repeat the reason of its deletion, so ``store`` must be one without secrets.

    :raises LetterDeleted: the letter with this id was deleted, and the audit says so.
    :raises UnknownLetter: no id matches.
    :raises AmbiguousId: several ids match.
    """
    try:
        return letter(store, prefix, see=see)
    except UnknownLetter as error:
        # Acts on several letters have no letter, which an empty id would match.
        rows = store.audit.find(letter=prefix, act="delete", limit=1).rows if prefix else ()
        for act in rows:
            at, why = times.iso(act.at.replace(microsecond=0)), f": {act.why}" if act.why else ""
            raise LetterDeleted(
                f"The letter {clip(prefix, _SHOWN)!r} was deleted by {act.who} on {at}{why}."
            ) from error
        raise


def operation(store: Store, prefix: str, *, see: str = "") -> Operation:
    """The operation whose id starts with ``prefix``.

    :raises UnknownOperation: no id matches.
    :raises AmbiguousId: several ids match.
    """
    only = _only(store.operations, prefix, UnknownOperation, "operation has an id", see)
    found = store.operations.get(only)
    if found is None:
        raise UnknownOperation
    return found


def fingerprint(store: Store, prefix: str, *, see: str = "") -> str:
    """The fingerprint of the group that starts with ``prefix``.

    :raises UnknownGroup: no fingerprint matches.
    :raises AmbiguousId: several fingerprints match.
    """
    return _only(store.groups, prefix, UnknownGroup, "group has a fingerprint", see)


def audited(find: Callable[[Store, str], str], store: Store, prefix: str) -> str:
    """The whole id that begins with ``prefix``, or ``prefix`` itself if no letter or group has such an id:
    they may have been deleted, and the audit still has the acts on them.

    :param find: :func:`letter_id` or :func:`fingerprint`.
    :raises AmbiguousId: several ids match.
    """
    try:
        return find(store, prefix)
    except (UnknownLetter, UnknownGroup):
        return prefix


def group(store: Store, prefix: str, now: datetime, *, see: str = "") -> Group:
    """The group whose fingerprint starts with ``prefix``.

    :raises UnknownGroup: no fingerprint matches.
    :raises AmbiguousId: several fingerprints match.
    """
    found = store.groups.get(fingerprint(store, prefix, see=see), now=now)
    if found is None:
        raise UnknownGroup
    return found


def _only(role: Any, prefix: str, unknown: type[CeleryDLQError], subject: str, see: str) -> str:
    """The id that starts with ``prefix``.

    :param role: the role of the store that has the ids.
    :param unknown: the error if there is none.
    :param subject: the subject of that error.
    """
    found: list[str] = role.match(prefix, limit=_CANDIDATES + 1) if prefix else []
    shown = repr(clip(prefix, _SHOWN))
    if not found:
        said = f"No {subject} that begins with {shown}"
        raise unknown(f"{said}; see: {see}" if see else f"{said}.")
    if prefix in found or len(found) == 1:
        return prefix if prefix in found else found[0]
    what = "group" if unknown is UnknownGroup else "id"
    more = " and more" if len(found) > _CANDIDATES else ""
    raise AmbiguousId(
        f"More than one {what} begins with {shown}: {', '.join(found[:_CANDIDATES])}{more}; give more "
        "characters."
    )


def hash_secret_arguments(redactor: Redactor, wanted: Filter) -> Filter:
    """``wanted``, in which stand-ins replace the values of arguments whose names say that they are secret.

    :raises FilterError: redacted arguments cannot be found, or another text has a secret. No letter has that
        text, and the filter may be kept: in the audit, in an operation, or under a name.
    """
    args = tuple(_without_secret(redactor, item) for item in wanted.args)
    given = (
        one.value for one, stands_in in zip(wanted.args, args, strict=True) if one is stands_in
    )
    if any(redactor.text(text) != text for text in (wanted.search or "", *wanted.values, *given)):
        raise FilterError(
            "A text of the filter looks like a secret, and letters are kept without secrets; search for "
            "another part of it."
        )
    return replace(wanted, args=args)


def is_secret(redactor: Redactor, argument: Argument) -> bool:
    """Whether the values of an argument with this path are redacted."""
    return any(map(redactor.is_sensitive, argument.path.split(".")))


def _without_secret(redactor: Redactor, argument: Argument) -> Argument:
    if not is_secret(redactor, argument):
        return argument
    if not redactor.has_hashes:
        raise FilterError(
            f"The values of {argument.path} are redacted, and so not kept. To find letters from now on by "
            "them, set dlq_search_redacted_key and restart the workers."
        )
    return replace(argument, value=redactor.stand_in(argument.value))


def with_positions(app: Any, wanted: Filter) -> Filter:
    """``wanted``, whose arguments are also found where a task of ``app`` was called with them in their
    position."""
    from celery_dlq.redrive.letter.payload import parameters_of

    named = {name: parameters_of(app, name) or () for name in sorted(app.tasks)}
    return replace(
        wanted,
        args=tuple(
            replace(
                argument,
                positions=tuple(
                    (task, list(names).index(argument.name))
                    for task, names in named.items()
                    if argument.name in names
                ),
            )
            for argument in wanted.args
        ),
    )
