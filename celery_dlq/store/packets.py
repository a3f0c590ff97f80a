"""MySQL closes the connection on a statement that is larger than ``max_allowed_packet``, which looks as
if the server were away: what is larger is found before it is sent."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import text
from sqlalchemy.engine import Connection

from celery_dlq.errors import RecordRefused
from celery_dlq.letter import DeadLetter

#: Bytes of a body from which on the server is asked for its limit; every server takes smaller ones.
_ASK_FROM = 256 * 1024

#: Bytes left for the rest of a letter's row.
_REST = 512 * 1024


def check_sizes(connection: Connection, letters: Sequence[DeadLetter]) -> None:
    """Refuse letters whose message the server cannot take.

    :raises RecordRefused: one of them is too large.
    """
    if connection.dialect.name != "mysql":
        return
    largest = max(letters, key=lambda letter: len(letter.envelope.body))
    size = len(largest.envelope.body)
    if size < _ASK_FROM:
        return
    # Drivers write bytes as hexadecimal digits.
    needed, allowed = 2 * size + _REST, connection.scalar(text("SELECT @@max_allowed_packet"))
    if needed > allowed:
        raise RecordRefused(
            f"The message of {largest.task_id} has {size:,} bytes, which the database does not take: "
            f"its max_allowed_packet is {allowed:,}; set it to {needed:,} or more."
        )
