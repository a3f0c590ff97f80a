"""``dlq keys``: which keys encrypt letters, and the rotation to a new one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from celery_dlq.cli.exits import PARTLY, NamingGroup, leave
from celery_dlq.cli.options import format_option
from celery_dlq.cli.screens.parts import Column, Field, table_of
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.view.text import counted

#: Rows between two lines about the progress.
_TOLD = 10_000

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

    States: first (it encrypts), next (it only decrypts), missing (what it has encrypted cannot be read here:
    add it to dlq_encryption_keys).
    """
    rows = [*_rows(session)]
    session.screen.emit(form, rows, table_of(_FIELDS, rows) if rows else "No letters, and no keys.")


def _rows(session: Session) -> Iterator[dict[str, Any]]:
    ring, counts = session.queue.keyring, session.queue.store.keys.counts()
    ours = () if ring is None else ring.labels
    others = sorted(counts.keys() - {*ours, *_OTHERS})
    for key in (*ours, *others, *(one for one in _OTHERS if one in counts)):
        state = "missing" if key in others else "first" if key in ours[:1] else "next"
        letters, persons = counts.get(key, (0, 0))
        state = _OTHERS.get(key, state)
        yield {"key": key, "state": state, "letters": letters, "persons": persons}


@keys.command("rotate")
@pass_session
def rotate(session: Session) -> None:
    """Encrypt everything with the first key that is not yet.

    Takes what another key of the ring has encrypted, keys of persons, and what is not encrypted. Works in
    short steps while workers run, a quarter of the time. After Ctrl-C or a kill, run it again: it continues.
    Exits with 4 if letters are left: they were written by workers with another first key, or their key is
    missing.
    """
    role, told = session.queue.store.keys, 0

    def on_progress(rows: int) -> None:
        nonlocal told
        if rows >= told + _TOLD:
            told = rows
            session.say(f"{rows:,} rows encrypted with the first key; letters come last.")

    rows = role.rotate(who=operator(), on_progress=on_progress)
    left = role.left()
    session.done(
        f"{counted(rows, 'row')} encrypted with the first key; "
        f"{counted(left, 'letter or key', 'letters and keys')} left."
    )
    if left:
        again = session.command("keys")
        session.error(f"They were written since, or their keys are missing; run: {again}")
        leave(PARTLY)
