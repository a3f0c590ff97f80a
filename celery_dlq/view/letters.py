"""The facts about a letter; and one letter in words: its reason, its message body, the automations that had
it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from celery_dlq.base.redact import ELIDED, hide_known
from celery_dlq.model.automation import HeldLetter
from celery_dlq.model.handling import GroupTicket, Handling
from celery_dlq.model.headers import release_of, trace_of
from celery_dlq.model.letter import Attempt, DeadLetter
from celery_dlq.model.operation import Sending
from celery_dlq.model.states import Reason, State
from celery_dlq.model.terms import leaves
from celery_dlq.redrive.letter.payload import linked_to
from celery_dlq.store.base import Change
from celery_dlq.view.fields import Field, as_record, facts_in, record_of
from celery_dlq.view.operations import named_values
from celery_dlq.view.text import Fact, counted, json_text, visible_lines
from celery_dlq.view.times import iso

if TYPE_CHECKING:
    from celery_dlq.store import Store

#: The meaning of each reason. Screens write it after the name of the reason and a colon.
MEANINGS: Mapping[Reason, str] = {
    Reason.TERMINAL: "it would fail again in the same way",
    Reason.EXHAUSTED: "its attempts or its retry window were used up",
    Reason.BUDGET: "its task had used up its retry budget",
    Reason.TIMEOUT: "the hard time limit killed it",
    Reason.POISON: "its worker process died while it ran",
    Reason.REJECTED: "it was rejected, or its retry could not be published",
    Reason.UNSTORED: "it ran to its end, but its outcome could not be stored",
    Reason.CANCELLED: "its worker was shut down while it ran",
    Reason.LOST: "its worker was killed while it ran",
    Reason.UNKNOWN_TASK: "the worker has no task with this name",
    Reason.MALFORMED: "it cannot be decoded, or is not a task message",
    Reason.INGESTED: "it came from a dead-letter queue of the broker",
    Reason.PARKED: "its next attempt waited in the store",
    Reason.UNSENT: "the broker did not take it from its sender",
}

#: The parts of a letter's screen that have facts.
ERROR, WHY, MESSAGE, ORIGIN, ROUTE, HISTORY = "error", "why", "message", "origin", "route", "past"
TRACE = "trace"


def attempts_of(letter: DeadLetter) -> int:
    """The number of failed runs of the letter's task."""
    return letter.attempt_count or len(letter.attempts)


#: The facts in a list of letters. The owner of the route is not in the letter.
LISTED: Sequence[Field] = (
    Field("task_id", "Id", WHY),
    Field("task", "Task", WHY),
    Field("state", "State", WHY),
    Field("reason", "Reason", WHY, said=lambda one: f"{one.reason.value}: {MEANINGS[one.reason]}"),
    Field("verdict", "Verdict", WHY),
    Field("rule", "Rule", WHY),
    Field("", "Evidence", WHY, attrgetter("explanation.evidence")),
    Field("", "Path", WHY, attrgetter("explanation.path")),
    Field("exception_type", "Exception", ERROR),
    Field("message", "Message", ERROR),
    Field("fingerprint", "Group", WHY),
    Field("", "Grouped", WHY, attrgetter("grouped")),
    Field("queue", "Queue", MESSAGE),
    Field("attempts", "Attempts", ERROR, attempts_of),
    Field("first_failed_at", "First failed", HISTORY),
    Field("last_failed_at", "Last failed", WHY),
    Field("worker", "Worker", ORIGIN),
    Field("release", "Release", ORIGIN),
    Field("redrive_count", "Redriven", HISTORY, said=lambda one: counted(one.redrive_count, "time")),
    Field("due_at", "Next attempt", WHY, said=lambda one: None if sent_when(one) else one.due_at),
    Field("", "To be sent", WHY, lambda one: sent_when(one)),
    Field("tags", "Tags", ORIGIN),
    Field("route", "Route", ROUTE),
    Field("owner", "Owner of the route", ROUTE),
    *map(Field, ("args", "kwargs")),
    Field("unreadable", "Contents", WHY),
    Field("namespace", "Namespace", ORIGIN),
)  # fmt: skip

#: All facts about a letter. Its history in the store, and the page of its trace, are not in the letter.
LETTER: Sequence[Field] = (
    *LISTED,
    Field("explanation", read=lambda one: as_record(one.explanation)),
    Field("attempt_history", read=lambda one: [*map(as_record, one.attempts)]),
    *map(Field, ("redrives", "changes", "handlings", "tickets", "held")),
    *map(Field, ("grouped", "traceback", "log", "correlation_id")),
    Field("pid", "Process", ORIGIN),
    Field("exchange", "Exchange", MESSAGE, attrgetter("envelope.exchange")),
    Field("routing_key", "Routing key", MESSAGE, attrgetter("envelope.routing_key")),
    Field("", "Priority", MESSAGE, lambda one: json_text(one.envelope.properties.get("priority"))),
    Field("", "Content", MESSAGE, lambda one: _content_of(one)),
    Field("canvas", "Part of", MESSAGE),
    Field("body_unread", "Unreadable", MESSAGE, lambda one: linked_to(one.envelope).unread or None),
    Field("errbacks", "Ran when it died", MESSAGE, lambda one: linked_to(one.envelope).tasks),
    Field("root_id", "Root", MESSAGE),
    Field("parent_id", "Parent", MESSAGE),
    Field("group_id", "Group of tasks", MESSAGE),
    Field("trace_id", "Trace", MESSAGE, lambda one: trace_of(one.envelope.headers)),
    Field("trace_url", "Trace page", TRACE),
    *(
        Field(name, read=attrgetter(f"envelope.{name}"))
        for name in ("content_type", "content_encoding", "headers", "properties")
    ),
    Field("sealed_by", "Encrypted", MESSAGE, said=lambda one: _key_of(one.sealed_by)),
    Field("body_size", read=lambda one: len(one.envelope.body)),
    Field("body_shown", read=lambda one: shown_body(one.envelope.body) if has_unread_body(one) else None),
    Field("lease_expires_at", "Claimed until", HISTORY),
    Field("closed_at", "Closed", HISTORY),
    Field("closed_by", "Closed by", HISTORY),
    Field("closed_reason", "Closed because", HISTORY),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class WholeLetter:
    """A letter with what the store knows of it."""

    letter: DeadLetter
    redrives: Sequence[Sending] = ()
    changes: Sequence[Change] = ()
    #: What automations did, newest first.
    handlings: Sequence[Handling] = ()
    #: The ticket and the escalation of its group.
    tickets: Sequence[GroupTicket] = ()
    #: Set if no automatic redrive sends it again.
    hold: HeldLetter | None = None
    #: The owner of its route.
    route_owner: str = ""
    #: The page of its trace; empty if it has none.
    trace_page: str = ""

    @classmethod
    def of(cls, store: Store, letter: DeadLetter, **more: Any) -> WholeLetter:
        """A letter as ``store`` has it.

        :param more: the other fields.
        """
        task_id, group = letter.task_id, letter.fingerprint
        return cls(
            letter=letter,
            redrives=store.sendings.of_letter(task_id),
            changes=store.edits.of_letter(task_id),
            handlings=store.automations.find(letter_id=task_id, limit=_HANDLINGS).rows,
            tickets=store.tickets.of_groups([group]).get(group, ()),
            hold=store.automations.held([task_id]).get(task_id),
            **more,
        )

    def facts(self, *parts: str) -> list[Fact]:
        """The facts in these parts of its screen; of all parts, if none is named."""
        given = {"owner": self.route_owner, "trace_url": self.trace_page}
        return facts_in(LETTER, self.letter, parts, **given)

    def record(self) -> dict[str, Any]:
        """The whole letter for programs, without its body."""
        return record_of(
            LETTER, self.letter, owner=self.route_owner, trace_url=self.trace_page,
            redrives=[*map(as_record, self.redrives)], tickets=[*map(as_record, self.tickets)],
            changes=[as_record(one, ("at", "who", "how", "diff")) for one in self.changes],
            handlings=[*map(as_record, self.handlings)],
            held=self.hold and as_record(self.hold, ("name", "why", "at")),
        )  # fmt: skip


def _content_of(one: DeadLetter) -> str:
    sent = one.envelope
    return "" if one.unreadable else f"{_size(sent.body)} of {sent.content_type}"


def _key_of(sealed_by: str) -> str:
    key = "the key of its person" if sealed_by.startswith("@") else f"key {sealed_by}"
    return f"with {key}" if sealed_by else ""


def _size(body: bytes) -> str:
    return counted(len(body), "byte")


_FIRST: Mapping[Reason, str] = {
    Reason.EXHAUSTED: "",
    Reason.BUDGET: "when the storm is over: ",
    Reason.PARKED: "",
    Reason.UNSENT: "",
    Reason.LOST: "check what the task has done; if it may run again: ",
    Reason.UNKNOWN_TASK: "deploy the task, then: ",
    Reason.MALFORMED: "discard it; or, once a worker can read it: ",
}

#: Bytes that are shown, and bytes per line of a dump.
SHOWN_LIMIT, _LINE = 1_024, 16

#: Stands for the mark of :func:`~celery_dlq.base.redact.clip`.
_MARK = f"{ELIDED} [1"

#: The part of a verdict's contents that has several lines, and is shown as a block.
CHANGE = "change"

#: The latest handlings that are shown with a letter.
_HANDLINGS = 20


def attempts_in_order(letter: DeadLetter) -> list[tuple[int, Attempt]]:
    """The attempts that are kept of a letter, each with its number over all redrives: Celery's own numbers
    begin again with each redrive."""
    first = max(0, letter.attempt_count - len(letter.attempts)) + 1
    return [*enumerate(letter.attempts, first)]


def why_title(letter: DeadLetter) -> str:
    """The heading of the error of a letter."""
    if letter.reason is Reason.UNSENT:
        return "Why it was not sent"
    return "Why it is parked" if letter.state is State.PARKED else "Why it died"


def sent_when(letter: DeadLetter) -> str | None:
    """When a worker sends a message that could not be sent; None for all others."""
    if letter.reason is not Reason.UNSENT or letter.due_at is None:
        return None
    if release_of(letter.envelope.headers) is None:
        return "as soon as the broker takes it"
    return f"after {iso(letter.due_at)}, unless a worker says before that it has it"


def first_step(reason: Reason) -> str:
    """The step before a letter is sent back; ends with a colon, or is empty."""
    return _FIRST.get(reason, "fix the cause, then: ")


def named(path: str, parameters: Sequence[str]) -> str:
    """The path of an argument, with the name of its parameter in place of its position.

    :param parameters: the names of the task's positional parameters, as far as they are known.
    """
    place, dot, rest = path.partition(".")
    names = dict(zip(map(str, range(len(parameters))), parameters, strict=True))
    return f"{names.get(place, place)}{dot}{rest}"


def named_arguments(letter: DeadLetter, parameters: Sequence[str]) -> list[tuple[str, Any]]:
    """The arguments of a letter by the names of the task's parameters; one of an unknown parameter by its
    place."""
    args, kwargs = letter.args or [], letter.kwargs or {}
    if not isinstance(args, list) or not isinstance(kwargs, Mapping):
        return [("args", letter.args), ("kwargs", letter.kwargs)]
    names = [*parameters, *(f"args[{n}]" for n in range(len(parameters), len(args)))]
    return [*zip(names, args, strict=False), *((str(name), kwargs[name]) for name in kwargs)]


def page_of_trace(letter: DeadLetter, template: str) -> str:
    """The address of the trace of a letter; empty if it has none.

    :param template: ``dlq_trace_url``.
    """
    trace_id = trace_of(letter.envelope.headers)
    return template.replace("{trace_id}", trace_id) if trace_id else ""


def argument_values(
    letter: DeadLetter, parameters: Sequence[str], most: int
) -> list[tuple[str, str]]:
    """The first values in the arguments of a letter, each after its path, with the names of parameters."""
    # A keyword argument may have a number as its name.
    known = parameters[: len(letter.args)] if isinstance(letter.args, list) else ()
    found = islice(leaves(letter.args, letter.kwargs), most)
    return [(named(path, known), value) for path, value in found]


def has_unread_body(letter: DeadLetter) -> bool:
    """Whether the arguments in the letter's body could not be read. If they could, screens show their display
    copies instead, with secrets hidden."""
    return bool(letter.envelope.body) and letter.args is None and letter.kwargs is None


def shown_body(body: bytes, *, raw: bool = False) -> str:
    """``body``, or its start and a last line with its size. Anything in a text that looks like a secret is
    hidden. Secrets in other bytes cannot be recognized.

    :param raw: whether bytes that are not text are shown, as a hex dump.
    """
    part = body[:SHOWN_LIMIT]
    text = _as_text(part, cut=len(body) > len(part))
    if text is None and not raw:
        return f"{_size(body)} that {'is' if len(body) == 1 else 'are'} not text"
    lines = [*_dump(part)] if text is None else visible_lines(_without_secrets(text))
    if len(body) > len(part):
        lines.append(f"… the first {len(part):,} of {_size(body)}")
    return "\n".join(lines)


def _without_secrets(text: str) -> str:
    """``text``, which may be the start of a longer one, with secrets hidden: the end may divide one, too."""
    return hide_known(text + _MARK).removesuffix(_MARK)


def _as_text(part: bytes, *, cut: bool) -> str | None:
    """The text in ``part``; None if it is not text. A cut may have divided its last character."""
    for missing in range(4 if cut else 1):
        try:
            text = part[: len(part) - missing].decode("utf-8")
        except UnicodeDecodeError:
            continue
        return text if _reads_as_text(text) else None
    return None


def _reads_as_text(text: str) -> bool:
    # A few control characters are escaped; many of them mean that this is not text.
    strange = sum(not char.isprintable() and char not in "\n\r\t" for char in text)
    return strange * 10 <= len(text)


def _dump(part: bytes) -> Iterator[str]:
    for start in range(0, len(part), _LINE):
        line = part[start : start + _LINE]
        halves = "  ".join((line[: _LINE // 2].hex(" "), line[_LINE // 2 :].hex(" ")))
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in line)
        yield f"{start:08x}  {halves.ljust(_LINE * 3)}  {text}"


def said_of(detail: Mapping[str, object], error: str) -> str:
    """Why a handling failed, or the contents of its verdict on one line."""
    rest = {name: value for name, value in detail.items() if name != CHANGE}
    return error or named_values(rest)
