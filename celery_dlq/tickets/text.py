"""The text of a ticket, in Markdown and in Jira's markup.

It has no arguments and no headers. Everything in it may come from a hostile message, so all of it is in
blocks of code, which no system interprets: no links, no mentions, no commands such as GitLab's ``/close``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from celery_dlq.base.redact import clip, clip_middle
from celery_dlq.hooks.words import flat
from celery_dlq.model.letter import DeadLetter

#: The most characters of a title; Jira and GitLab take 255, GitHub takes 256.
TITLE_LIMIT = 240
#: The most characters of one fact, and of the traceback. Jira takes 32,767 in all.
FACT_LIMIT, TRACEBACK_LIMIT = 300, 8_000

_INTRODUCTION = "A group of dead letters has this ticket. One of its letters:"
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
#: Ends a block of Jira's markup.
_END_OF_BLOCK = re.compile(r"\{(?=\s*noformat)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class TicketText:
    """The contents of a ticket, still without any markup."""

    #: One line.
    title: str
    #: A name and a value on each line.
    facts: str
    #: Commands for a shell, to look further.
    commands: tuple[str, ...]
    #: The traceback; without one, the message, which may be empty.
    failure: str

    def markdown(self) -> str:
        """The body for GitHub and GitLab."""
        return "\n\n".join([_INTRODUCTION, *map(code_block, self._blocks())])

    def wiki(self) -> str:
        """The body for Jira. Nothing can be escaped within a block, so a text that would end it gets a
        blank."""
        safe = (_END_OF_BLOCK.sub("{ ", block) for block in self._blocks())
        blocks = (f"{{noformat}}\n{block}\n{{noformat}}" for block in safe)
        return "\n\n".join([_INTRODUCTION, *blocks])

    def _blocks(self) -> Iterator[str]:
        return filter(None, (self.facts, "\n".join(self.commands), self.failure))


def text_about(letter: DeadLetter, app: str) -> TicketText:
    """The text of a ticket for the group of ``letter``.

    :param letter: a letter without secrets.
    :param app: the name after ``celery -A``; may be empty.
    """
    failed = letter.message.strip().partition("\n")[0]
    title = ": ".join(filter(None, (letter.task, letter.exception_type, failed)))
    command = f"celery -A {app or '<app>'} dlq"
    failure = letter.traceback.strip() or letter.message.strip()
    return TicketText(
        title=clip(flat(title), TITLE_LIMIT),
        facts="\n".join(f"{name}: {_line(value)}" for name, value in _facts(letter) if value),
        # Someone will copy the commands into a shell.
        commands=(
            f"{command} groups show {shlex.quote(_line(letter.fingerprint))}",
            f"{command} show {shlex.quote(_line(letter.task_id))}",
        ),
        failure=_plain(clip_middle(failure, TRACEBACK_LIMIT)),
    )


def _facts(letter: DeadLetter) -> Sequence[tuple[str, str]]:
    return (
        ("Group", letter.fingerprint), ("Letter", letter.task_id), ("Task", letter.task),
        ("Exception", letter.exception_type), ("Reason", letter.reason.value),
        ("First failure", _time(letter.first_failed_at)), ("Last failure", _time(letter.last_failed_at)),
        ("Release", letter.release), ("Worker", letter.worker),
    )  # fmt: skip


def _line(text: str) -> str:
    return clip(flat(text), FACT_LIMIT)


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def _plain(text: str) -> str:
    """``text`` without characters that are invisible or change the direction of writing; Jira refuses some of
    them."""
    return "\n".join(
        "".join(char if char.isprintable() else _REPLACEMENT for char in line.expandtabs(4))
        for line in text.splitlines()
    )


def code_block(text: str, kind: str = "") -> str:
    """``text`` as a block of code in Markdown. A longer fence than any in the text ends it: CommonMark 0.31,
    4.5.

    :param kind: the info string of the block.
    """
    fence = "`" * max(3, longest_run(text) + 1)
    return f"{fence}{kind}\n{text}\n{fence}"


def longest_run(text: str) -> int:
    """The length of the longest run of backticks."""
    return max(map(len, re.findall("`+", text)), default=0)
