"""The text of a ticket: the same facts in Markdown, in Jira's markup and in Jira's documents.

It has no arguments and no headers. Everything in it may come from a hostile message, so all of it is shown as
code, which no system interprets: no links, no mentions, no commands such as GitLab's ``/close``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from celery_dlq.hooks.words import flat
from celery_dlq.model.letter import DeadLetter
from celery_dlq.redact import clip, clip_middle

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
    #: Names and values, each on one line.
    facts: tuple[tuple[str, str], ...]
    #: Commands for a shell, to look further.
    commands: tuple[str, ...]
    #: The traceback; without one, the message, which may be empty.
    failure: str

    def markdown(self) -> str:
        """The body for GitHub and GitLab."""
        facts = "\n".join(f"- {name}: {code_span(value)}" for name, value in self.facts)
        return "\n\n".join([_INTRODUCTION, facts, *map(code_block, self._blocks())])

    def wiki(self) -> str:
        """The body for Jira Data Center."""
        facts = "\n".join(f"{name}: {value}" for name, value in self.facts)
        return "\n\n".join([_INTRODUCTION, *map(_unformatted, (facts, *self._blocks()))])

    def document(self) -> dict[str, Any]:
        """The body for Jira Cloud, in the Atlassian Document Format."""
        facts = [_item(name, value) for name, value in self.facts]
        content = [
            _paragraph(_text(_INTRODUCTION)),
            {"type": "bulletList", "content": facts},
            *({"type": "codeBlock", "content": [_text(block)]} for block in self._blocks()),
        ]
        return {"type": "doc", "version": 1, "content": content}

    def _blocks(self) -> Iterator[str]:
        yield "\n".join(self.commands)
        if self.failure:
            yield self.failure


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
        facts=tuple((name, value) for name, value in _facts(letter) if value),
        commands=(
            f"{command} groups show {_quoted(letter.fingerprint)}",
            f"{command} show {_quoted(letter.task_id)}",
        ),
        failure=_plain(clip_middle(failure, TRACEBACK_LIMIT)),
    )


def _facts(letter: DeadLetter) -> Iterator[tuple[str, str]]:
    yield "Group", _line(letter.fingerprint)
    yield "Letter", _line(letter.task_id)
    yield "Task", _line(letter.task)
    yield "Exception", _line(letter.exception_type)
    yield "Reason", letter.reason.value
    yield "First failure", _time(letter.first_failed_at)
    yield "Last failure", _time(letter.last_failed_at)
    yield "Release", _line(letter.release)
    yield "Worker", _line(letter.worker)


def _line(text: str) -> str:
    return clip(flat(text), FACT_LIMIT)


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def _quoted(name: str) -> str:
    # Someone will copy the command into a shell.
    return shlex.quote(_line(name))


def _plain(text: str) -> str:
    """``text`` without characters that are invisible or change the direction of writing; Jira refuses some of
    them."""
    return "\n".join(
        "".join(char if char.isprintable() else _REPLACEMENT for char in line.expandtabs(4))
        for line in text.splitlines()
    )


def code_span(text: str) -> str:
    """``text``, which is one line and not empty, as code within a line of Markdown: CommonMark 0.31, 6.1."""
    ticks = "`" * (_longest_run(text) + 1)
    space = " " if "`" in text else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def code_block(text: str, kind: str = "") -> str:
    """``text`` as a block of code in Markdown. A longer fence than any in the text ends it: CommonMark 0.31,
    4.5.

    :param kind: the info string of the block.
    """
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{kind}\n{text}\n{fence}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def _unformatted(text: str) -> str:
    # Nothing can be escaped within a block, so what would end it gets a blank.
    return f"{{noformat}}\n{_END_OF_BLOCK.sub('{ ', text)}\n{{noformat}}"


def _item(name: str, value: str) -> dict[str, Any]:
    code = {**_text(value), "marks": [{"type": "code"}]}
    return {"type": "listItem", "content": [_paragraph(_text(f"{name}: "), code)]}


def _paragraph(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "paragraph", "content": list(parts)}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
