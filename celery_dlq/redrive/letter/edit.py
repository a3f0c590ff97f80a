"""Permanent edits of a letter's message by hand: the text to edit, and the edit that is made from it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kombu.utils import json

from celery_dlq.base.codec import dump_json
from celery_dlq.base.redact import Redactor
from celery_dlq.base.unpack import SHOWN_LIMIT
from celery_dlq.errors import NothingChanged, RepairError
from celery_dlq.model.letter import DeadLetter, Envelope
from celery_dlq.model.states import State
from celery_dlq.redrive.letter.contents import (
    COPIES,
    Contents,
    contents_of,
    describe,
    why_not_set,
    with_contents,
)
from celery_dlq.redrive.letter.functions import Calls, functions_of
from celery_dlq.redrive.letter.payload import OpenLetter, accepted_by
from celery_dlq.redrive.letter.repair import upgraded
from celery_dlq.settings import Settings
from celery_dlq.store.base import Edit

#: The parts of the text, each with the type of its value, for people.
PARTS: Mapping[str, tuple[type, str]] = {
    "args": (list, "a JSON list, such as [17]"),
    "kwargs": (dict, 'a JSON object, such as {"currency": "USD"}'),
    "headers": (dict, 'a JSON object, such as {"tenant": "a"}'),
}


def contents_to_edit(app: Any, letter: DeadLetter) -> Contents:
    """The changeable contents of the message of ``letter``.

    :raises RepairError: they cannot be read, or ``letter`` is not dead.
    """
    _check_dead(letter)
    contents = contents_of(upgraded(app, letter), accepted_by(app), at_most=SHOWN_LIMIT)
    contents["headers"] = {
        name: value for name, value in contents["headers"].items() if not _stays(name)
    }
    return contents


def text_to_edit(app: Any, letter: DeadLetter) -> str:
    """The changeable contents of the message of ``letter``, as :func:`text_of` writes them.

    :raises RepairError: they cannot be read, or written as JSON, or ``letter`` is not dead.
    """
    return f"{text_of(contents_to_edit(app, letter))}\n"


def text_of(contents: Any) -> str:
    """Contents, or a part of them, as Celery's JSON, which has forms for dates, decimals and bytes.

    :raises RepairError: they cannot be written as JSON.
    """
    try:
        return str(json.dumps(contents, indent=2, ensure_ascii=False))
    except Exception as error:
        raise RepairError(
            f"its arguments cannot be written as JSON ({type(error).__name__}: {error}); "
            "change them by redrive --repair"
        ) from error


def read_text(text: str) -> Contents:
    """The contents of an edited text.

    :raises RepairError: it is not JSON, or not a table of args, kwargs and headers.
    """
    contents = _read(text)
    if not isinstance(contents, dict) or set(contents) != set(PARTS):
        raise RepairError("It must be a JSON object of just args, kwargs and headers")
    return contents


def read_part(name: str, text: str) -> Any:
    """The value of an edited text of one of :data:`PARTS`.

    :raises RepairError: it is too long, not JSON, or of another type.
    """
    if len(text) > SHOWN_LIMIT:
        raise RepairError(f"It has more than {SHOWN_LIMIT:,} characters; make it shorter")
    value, (kind, said) = _read(text), PARTS[name]
    if not isinstance(value, kind):
        raise RepairError(f"It must be {said}")
    return value


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except Exception as error:
        raise RepairError(f"It is not JSON: {error}; fix it, or leave it unchanged") from error


def digest_of(message: Envelope) -> str:
    """A short text that is the same only for the same message."""
    return hashlib.blake2b(dump_json(message.to_dict()).encode(), digest_size=16).hexdigest()


def make_edit(
    app: Any,
    letter: DeadLetter,
    changes: Mapping[str, Any],
    redactor: Redactor,
    *,
    repair: str | None = None,
    who: str,
    why: str = "",
    at: datetime,
) -> Edit:
    """Upgrade the message of ``letter``, and replace args, kwargs or headers with those in ``changes``. Fixed
    headers may be left out.

    :param repair: the name of a repair of the app, which is called then.
    :raises NothingChanged: the message stays the same.
    :raises RepairError: a fixed header is changed, the repair fails, or ``letter`` is not dead.
    """
    _check_dead(letter)
    accepted = accepted_by(app)
    before = contents_of(letter, accepted, at_most=SHOWN_LIMIT)
    wanted = _wanted(contents_of(upgraded(app, letter), accepted), changes)
    if repair is not None:
        function = functions_of(app).repair_named(repair)
        wanted = Calls(app).changed(function, f"repair {repair!r}", wanted)
    after = with_contents(OpenLetter(letter, accepted), wanted).letter
    task = {"task": letter.task}
    diff = describe({**task, **before}, {**task, **contents_of(after, accepted)}, redactor)
    if not diff:
        raise NothingChanged
    return Edit(
        task_id=letter.task_id, before=letter.envelope, after=after.envelope,
        args=redactor.display(redactor.named(letter.task, wanted["args"])),
        kwargs=redactor.display(wanted["kwargs"]), diff=diff, who=who, why=why, at=at,
        release=Settings.from_app(app).release,
    )  # fmt: skip


def _wanted(contents: Contents, changes: Mapping[str, Any]) -> Contents:
    wanted = {**contents, **changes}
    if isinstance(wanted["headers"], Mapping):
        staying = {name: value for name, value in contents["headers"].items() if _stays(name)}
        wanted["headers"] = {**staying, **wanted["headers"]}
    return wanted


def _check_dead(letter: DeadLetter) -> None:
    if letter.state is not State.DEAD:
        raise RepairError(
            f"{letter.task_id} is {letter.state.value}; only the message of a dead letter can be edited"
        )
    if letter.unreadable:
        raise RepairError(letter.unreadable)


def _stays(header: str) -> bool:
    return header in COPIES or why_not_set(header) is not None
