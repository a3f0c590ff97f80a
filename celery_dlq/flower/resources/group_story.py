"""What happened to a group: decisions, notes, owners, tickets and redrives, as one list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from celery_dlq.flower.html import words
from celery_dlq.flower.html.links import Links
from celery_dlq.model.group import Group
from celery_dlq.model.handling import GroupTicket, TicketKind
from celery_dlq.model.operation import Counts
from celery_dlq.store.base import AuditRow, Operation
from celery_dlq.view.operations import outcome_text
from celery_dlq.view.text import counted
from celery_dlq.view.times import parse_point

#: Events of a group that are shown, and acts that are read for them.
EVENTS = 30


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened to a group."""

    at: datetime
    #: The end of its CSS class: failure, decision, note, ticket or redrive.
    kind: str
    #: Empty if no person or program did it.
    who: str = ""
    what: str
    #: The text of a note.
    text: str = ""
    why: str = ""
    #: The name and the address of the redrive, the letter or the ticket.
    name: str = ""
    address: str = ""


def story_of(
    group: Group,
    acts: Sequence[AuditRow],
    tickets: Sequence[GroupTicket],
    operations: Sequence[Operation],
    links: Links,
) -> list[Event]:
    """The newest events of a group, the newest first.

    :param acts: the newest acts on the group and on its redrives.
    :param operations: the redrives that concern it.
    """
    found = [
        *_failures(group),
        *map(_ticket, tickets),
        *_acts(acts, operations, links),
        *_redrives(operations, links),
    ]
    return sorted(found, key=lambda event: event.at, reverse=True)[:EVENTS]


def _failures(group: Group) -> Iterator[Event]:
    yield Event(at=group.first_seen_at, kind="failure", what="The first letter failed.")
    if group.regressed_at is not None:
        yield Event(
            at=group.regressed_at, kind="failure",
            what="A letter failed again after the decision, so the group was opened.",
        )  # fmt: skip


def _acts(
    acts: Iterable[AuditRow], operations: Iterable[Operation], links: Links
) -> Iterator[Event]:
    told = {one.id for one in operations}
    for act in acts:
        if act.act == "redrive" and act.detail.get("operation") in told:
            continue
        if act.act in _DECISIONS:
            yield _decision(act)
        else:
            yield _other(act, links)


def _decision(act: AuditRow) -> Event:
    said = _DECISIONS[act.act](act.detail)
    text = words.lines(str(act.detail.get("note", "")), 4_000) if act.act == "note" else ""
    kind = "note" if act.act == "note" else "decision"
    return Event(at=act.at, kind=kind, who=words.line(act.who, 60), what=said, text=text)


def _ignored(detail: Mapping[str, Any]) -> str:
    ends = []
    if detail.get("until"):
        ends.append(f"until {words.moment(parse_point(str(detail['until'])))}")
    if detail.get("rate"):
        ends.append(f"until {counted(int(detail['rate']), 'failure')} within an hour")
    if detail.get("count"):
        ends.append(f"for {counted(int(detail['count']), 'more failure')}")
    return f"ignored the group {', or '.join(ends) or 'until it is reopened'}"


def _resolved(detail: Mapping[str, Any]) -> str:
    release = words.line(str(detail.get("release") or ""), 60)
    return f"resolved the group in release {release}" if release else "resolved the group"


def _assigned(detail: Mapping[str, Any]) -> str:
    owner = words.line(str(detail.get("owner") or ""), 60)
    return f"gave the group to {owner}" if owner else "removed the owner"


#: What a person did, by the name in the audit.
_DECISIONS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "ignore": _ignored,
    "resolve": _resolved,
    "reopen": lambda _detail: "reopened the group",
    "note": lambda detail: "wrote the note" if detail.get("note") else "removed the note",
    "assign": _assigned,
}


def _ticket(ticket: GroupTicket) -> Event:
    to = f"escalated the group to {words.line(ticket.to, 60)}"
    return Event(
        at=ticket.at, kind="ticket", who=words.by_handler(ticket.handler),
        what=to if ticket.kind is TicketKind.ESCALATION else "opened the ticket",
        why=words.line(ticket.why, 300), name=words.line(ticket.url, 120),
        address=words.address(ticket.url),
    )  # fmt: skip


#: The past of acts on letters or on redrives.
_PAST = {
    "redrive": "redrove", "pause": "paused", "resume": "resumed", "cancel": "cancelled",
    "abort": "aborted", "discard": "discarded", "undiscard": "undiscarded", "delete": "deleted",
    "release": "released", "archive": "archived", "expire": "deleted by retention",
}  # fmt: skip


def _other(act: AuditRow, links: Links) -> Event:
    operation = str(act.detail.get("operation") or "")
    said = _PAST.get(act.act, words.line(act.act, 40))
    return Event(
        at=act.at, kind="redrive" if operation else "decision", who=words.line(act.who, 60),
        what=f"{said} the redrive" if operation else f"{said} {counted(act.count, 'letter')}",
        why=words.line(act.why, 300), name=operation,
        address=links.operation(operation) if operation else "",
    )  # fmt: skip


def _redrives(operations: Iterable[Operation], links: Links) -> Iterator[Event]:
    for one in operations:
        yield Event(
            at=one.created_at, kind="redrive", who=words.line(one.who, 60),
            what=f"began a redrive ({_progress(one.counts)})", why=words.line(one.orders.why, 300),
            name=one.id, address=links.operation(one.id),
        )  # fmt: skip


def _progress(counts: Counts) -> str:
    sent = f"{counts.out:,} of {counted(counts.planned, 'letter')} sent"
    return ", ".join(filter(None, (sent, outcome_text(counts))))
