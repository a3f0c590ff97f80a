"""``dlq keys``: which keys encrypt letters, and the rotation to a new one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from celery_dlq.cli.exits import INTERRUPTED, PARTLY, NamingGroup, leave
from celery_dlq.cli.options import format_option
from celery_dlq.cli.screens.parts import Column, Field, table_of
from celery_dlq.cli.screens.progress import Step, shown_progress, stopping_on_interrupt
from celery_dlq.cli.session import Session, pass_session
from celery_dlq.errors import SettingsError, page
from celery_dlq.view.text import counted

#: Letters and keys that are encrypted again in one transaction.
_STEP = 200

#: What is counted without a label of the ring.
_OTHERS = {"@": "each by its person's key", "": "not encrypted"}

_FIELDS: Sequence[Field] = (
    (Column("KEY", rigid=True), lambda row: row["key"]),
    (Column("STATE", fold=True), lambda row: row["state"]),
    (Column("LETTERS", right=True, rigid=True), lambda row: row["letters"]),
    (Column("PERSONS", right=True, rigid=True), lambda row: row["persons"]),
)


@click.group("keys", cls=NamingGroup, alone="list")
def keys() -> None:
    """See and rotate the keys that encrypt letters."""


@keys.command("list")
@format_option
@pass_session
def list_keys(session: Session, form: str) -> None:
    """List the keys, with the letters and the keys of persons that each has encrypted.

    States: first (it encrypts), next (it only decrypts), missing (it is not in dlq_encryption_keys here, so
    what it has encrypted cannot be read here).
    """
    rows = [*_rows(session)]
    session.screen.emit(form, rows, table_of(_FIELDS, rows) if rows else "No letters, and no keys.")
    missing = [row["key"] for row in rows if row["state"] == "missing"]
    if missing:
        session.error(
            f"Add to dlq_encryption_keys, or their letters cannot be read: {', '.join(missing)}"
        )


def _rows(session: Session) -> Iterator[dict[str, Any]]:
    ring, role = session.queue.keyring, session.keys
    letters, persons = role.counts(), role.person_counts()
    ours = () if ring is None else ring.labels
    others = sorted({*letters, *persons} - {*ours, *_OTHERS})
    for key in (*ours, *others, *(one for one in _OTHERS if letters.get(one))):
        state = "missing" if key in others else "first" if key in ours[:1] else "next"
        yield {
            "key": key,
            "state": _OTHERS.get(key, state),
            "letters": letters.get(key, 0),
            "persons": persons.get(key, 0),
        }


@keys.command("rotate")
@pass_session
def rotate(session: Session) -> None:
    """Encrypt everything with the first key that is not yet.

    Takes letters and keys of persons that another key of the ring has encrypted, and letters that are not
    encrypted. Works in short steps while workers run. After Ctrl-C or a kill, run it again: it continues.
    Exits with 4 if something is left, because its key is missing.
    """
    ring, role = session.queue.keyring, session.keys
    if ring is None:
        raise SettingsError(
            f"There is no key to encrypt with; set dlq_encryption_keys. See {page('encryption')}."
        )
    total, done = role.left(), 0
    with shown_progress(session.cli, "Encrypting") as show, stopping_on_interrupt() as should_stop:
        while not (is_stopped := should_stop()) and (more := role.rotate(_STEP)):
            done += more
            show(Step(max(total, done), done, "", f"encrypted with {ring.label}"))
    left = role.left()
    what = f"{counted(done, 'letter or key', 'letters and keys')} encrypted with {ring.label}"
    session.done(f"{what}; {left:,} left.")
    if left:
        again = session.command("keys")
        session.error(
            "Stopped; run it again to continue." if is_stopped
            else f"The others were written since, or their keys are missing; run: {again}"
        )  # fmt: skip
        leave(INTERRUPTED if is_stopped else PARTLY)
