"""Letters as the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence

from celery_dlq.cli.render import Column, Part, Short, Table
from celery_dlq.letter import DeadLetter
from celery_dlq.view.records import attempts_of
from celery_dlq.view.text import first_line, last_part, short_ids

_COLUMNS = (
    Column("ID", rigid=True),
    Column("TASK"),
    Column("EXCEPTION"),
    Column("MESSAGE"),
    Column("REASON", rigid=True),
    Column("STATE", rigid=True, from_width=80),
    Column("ATTEMPTS", right=True, from_width=100),
    Column("QUEUE", from_width=120),
    Column("LAST FAILED", rigid=True),
)


def letter_table(letters: Sequence[DeadLetter]) -> Part:
    """The table of ``letters``, or a sentence when there are none."""
    if not letters:
        return "No dead letters match."
    ids = short_ids([letter.task_id for letter in letters])
    rows = [
        (
            Short(short, letter.task_id),
            Short(last_part(letter.task), letter.task),
            Short(last_part(letter.exception_type), letter.exception_type),
            Short(first_line(letter.message), letter.message),
            letter.reason.value,
            letter.state.value,
            attempts_of(letter),
            letter.queue,
            letter.last_failed_at,
        )
        for short, letter in zip(ids, letters, strict=True)
    ]
    return Table(_COLUMNS, rows)
