"""The screens of letters and of groups: a table of them; one, with the next step at its end; and what
automations did about letters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from celery_dlq.cli.screens.operation import Command
from celery_dlq.cli.screens.parts import (
    Block,
    Column,
    Facts,
    Field,
    Part,
    Short,
    Table,
    facts_of,
    last_name,
    table_of,
)
from celery_dlq.model.automation import actor_of
from celery_dlq.model.group import AliasReason, Group
from celery_dlq.model.handling import GroupTicket, Handling
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.operation import Sending
from celery_dlq.model.states import State
from celery_dlq.store.base import Change
from celery_dlq.view import letters as view
from celery_dlq.view.automations import HELD, holding
from celery_dlq.view.groups import Grouping, ends_of, standing
from celery_dlq.view.letters import CHANGE, WholeLetter, attempts_of, said_of
from celery_dlq.view.operations import why_text
from celery_dlq.view.text import counted, first_line, json_text, sparkline
from celery_dlq.view.times import duration, iso
from celery_dlq.view.traceback import own_traceback

if TYPE_CHECKING:
    from celery_dlq.upkeep.automation.calling import HandlerTrial

_HANDLING_FIELDS: Sequence[Field] = (
    (Column("QUEUED", rigid=True), lambda one: one.queued_at),
    (Column("NAME", rigid=True), lambda one: one.name),
    (Column("VERSION", from_width=100), lambda one: one.version),
    (Column("ID", rigid=True, ids=True), lambda one: one.task_id),
    (Column("STATE", rigid=True), lambda one: one.state.value),
    (Column("VERDICT", rigid=True), lambda one: one.verdict),
    (Column("CALLS", right=True, from_width=100), lambda one: one.tries),
    (Column("OPERATION", from_width=120), lambda one: one.operation),
    (Column("DETAIL", fold=True), lambda one: said_of(one.detail, one.error)),
)

#: The columns on the screen of one letter.
_HANDLED_FIELDS = [field for field in _HANDLING_FIELDS if field[0].title != "ID"]

_TICKET_FIELDS: Sequence[Field] = (
    (Column("KIND", rigid=True), lambda ticket: ticket.kind.value),
    (Column("TO", fold=True), lambda ticket: ticket.url or ticket.to),
    (Column("WHY", fold=True), lambda ticket: ticket.why),
    (Column("BY"), lambda ticket: actor_of(ticket.handler)),
    (Column("SINCE", rigid=True), lambda ticket: ticket.at),
)

_TRIAL_FIELDS: Sequence[Field] = (
    (Column("ID", rigid=True, ids=True), lambda trial: trial.task_id),
    (Column("TASK"), lambda trial: last_name(trial.task)),
    (Column("VERDICT", rigid=True), lambda trial: trial.verdict or "error"),
    (Column("DETAIL", fold=True), lambda trial: said_of(trial.detail, trial.error)),
)


def history_table(found: Sequence[Handling]) -> Part:
    """A table of handlings, or a sentence if there are none."""
    return table_of(_HANDLING_FIELDS, found) if found else "No handlings match."


def ticket_table(tickets: Sequence[GroupTicket], title: str) -> Table:
    """A table of the tickets and escalations of a group."""
    return table_of(_TICKET_FIELDS, tickets, title)


def changes_of(found: Sequence[Handling] | Sequence[HandlerTrial]) -> Iterator[Block]:
    """The changes in messages, as diffs."""
    for one in found:
        yield Block(f"Changed in {one.task_id}", str(one.detail.get(CHANGE, "")))


def trial_parts(trials: Sequence[HandlerTrial]) -> list[Part]:
    """The parts of the screen of a trial of a handler."""
    if not trials:
        return ["The handler would get no letters."]
    errors = sum(not trial.verdict for trial in trials)
    failed = f" {counted(errors, 'call')} ended without a verdict." if errors else ""
    said = f"Called with {counted(len(trials), 'letter')}. Nothing was sent or changed.{failed}"
    return [said, table_of(_TRIAL_FIELDS, trials), *changes_of(trials)]


def _message_of(letter: DeadLetter) -> str:
    return letter.unreadable or letter.message


#: Celery's headers with the options of a task.
_HEADERS = ("eta", "expires", "retries", "timelimit", "origin", "ignore_result", "stamps")

_FIELDS: Sequence[Field] = (
    (Column("ID", rigid=True, ids=True), lambda letter: letter.task_id),
    (Column("TASK"), lambda letter: last_name(letter.task)),
    (Column("EXCEPTION"), lambda letter: last_name(letter.exception_type)),
    (Column("MESSAGE"), lambda letter: Short(first_line(_message_of(letter)), _message_of(letter))),
    (Column("REASON", rigid=True, from_width=100), lambda letter: letter.reason.value),
    (Column("STATE", rigid=True, from_width=100), lambda letter: letter.state.value),
    (Column("ATTEMPTS", right=True, from_width=140), attempts_of),
    (Column("QUEUE", from_width=140), lambda letter: letter.queue),
    (Column("LAST FAILED", rigid=True), lambda letter: letter.last_failed_at),
)

_ROUTE_FIELD: Field = (Column("ROUTE", from_width=140), lambda letter: letter.route)

_ATTEMPT_FIELDS: Sequence[Field] = (
    (Column("#", right=True, rigid=True), lambda one: one[0]),
    (Column("REDRIVE", right=True, from_width=100), lambda one: one[1].redrive),
    (Column("FAILED", rigid=True), lambda one: one[1].failed_at),
    (Column("EXCEPTION"), lambda one: last_name(one[1].exception_type)),
    (Column("MESSAGE"), lambda one: first_line(one[1].message)),
    (Column("VERDICT", rigid=True), lambda one: one[1].verdict.value),
    (Column("RULE", from_width=100), lambda one: one[1].rule),
    (Column("WORKER", from_width=120), lambda one: one[1].worker),
    (
        Column("THEN WAITED", right=True, rigid=True),
        lambda one: "" if one[1].delay_s is None else duration(one[1].delay_s),
    ),
)

_REDRIVE_FIELDS: Sequence[Field] = (
    (Column("#", right=True, rigid=True), lambda sending: sending.redrive),
    (Column("OPERATION", rigid=True), lambda sending: sending.operation),
    (Column("STATE", rigid=True), lambda sending: sending.state.value),
    (Column("WHY", fold=True), why_text),
    (Column("SENT", rigid=True), lambda sending: sending.sent_at),
    (Column("ENDED", rigid=True, from_width=120), lambda sending: sending.ended_at),
)


def letter_table(letters: Sequence[DeadLetter]) -> Part:
    """A table of ``letters``, or a sentence if there are none."""
    has_routes = any(letter.route for letter in letters)
    fields = [*_FIELDS, _ROUTE_FIELD] if has_routes else _FIELDS
    return table_of(fields, letters) if letters else "No dead letters match."


def letter_parts(whole: WholeLetter, command: Command, *, with_body: bool = False) -> list[Part]:
    """The parts of a letter's screen.

    :param command: makes command lines such as ``celery -A shop dlq list``.
    :param with_body: whether an unread body is shown if it is not text, too.
    """
    letter, kind = whole.letter, whole.letter.exception_type
    headers = ((name, letter.envelope.headers.get(name)) for name in _HEADERS)
    options = (
        (name, json_text(value)) for name, value in headers if value not in (None, [], {}, 0)
    )
    return [
        Facts(view.why_title(letter), whole.facts(view.WHY, view.ROUTE)),
        Facts(HELD, holding(whole.hold) if whole.hold else []),
        Block("Error", f"{kind}: {letter.message}" if letter.message else kind),
        table_of(_ATTEMPT_FIELDS, view.attempts_in_order(letter), "Attempts"),
        table_of(_REDRIVE_FIELDS, whole.redrives, "Redrives"),
        table_of(_HANDLED_FIELDS, whole.handlings, "By itself"),
        ticket_table(whole.tickets, "Tickets of its group"),
        *_changed(whole.redrives, whole.changes),
        contents_of(letter, with_body),
        Facts("Message", [*whole.facts(view.MESSAGE, view.TRACE), *options]),
        Block("Traceback", letter.traceback.rstrip()),
        Block("Lines that it logged", letter.log),
        Facts("History", whole.facts(view.ORIGIN, view.HISTORY)),
        f"Next: {next_step(letter, command)}",
    ]


def _changed(redrives: Sequence[Sending], changes: Sequence[Change]) -> Iterator[Block]:
    for change in changes:
        yield Block(f"Changed by {change.who} on {iso(change.at)} ({change.how})", change.diff)
    for sending in redrives:
        title = f"Changed in redrive {sending.redrive} only (operation {sending.operation})"
        yield Block(title, sending.change)


def contents_of(letter: DeadLetter, with_body: bool = False, title: str = "Arguments") -> Part:
    """The arguments of a letter, or its body if they could not be read, as a part of a screen."""
    if letter.unreadable:
        return Block(title, letter.unreadable)
    if view.has_unread_body(letter):
        return Block("Body", view.shown_body(letter.envelope.body, raw=with_body))
    # Known arguments are shown as JSON, even if they are empty.
    return Facts(title, [("args", json_text(letter.args)), ("kwargs", json_text(letter.kwargs))])


def next_step(letter: DeadLetter, command: Command) -> str:
    """What a person can do about a letter in its state."""
    redrive = command("redrive", letter.task_id)
    if letter.state is State.DEAD:
        return f"{view.first_step(letter.reason)}{redrive}"
    if letter.state is State.CLAIMED:
        return f"a redrive holds it; check again: {command('show', letter.task_id)}"
    if letter.state is State.REDRIVEN:
        return f"wait for its outcome; if none arrives: {redrive} --state redriven"
    if letter.state is State.PARKED:
        sent, unpark = view.sent_when(letter), command("unpark", letter.task_id)
        if sent:
            return f"nothing, a worker sends it {sent}; to have it sent by this app's workers: {unpark}"
        return f"nothing, it runs when it is due; to run it now: {unpark}"
    if letter.state is State.DISCARDED:
        return f"nothing, it is discarded; to reopen it: {command('discard', '--undo', letter.task_id)}"
    return f"nothing, it succeeded; see the others: {command('list')}"


#: Arrivals per hour of each group.
Trends = Mapping[str, Sequence[int]]

_MERGED = {AliasReason.MERGED: "Merged", AliasReason.FOLDED: "Folded"}

#: The owner of the route with a name.
OwnerOf = Callable[[str], str]

#: Tickets and escalations of each group that has one.
Tickets = Mapping[str, Sequence[GroupTicket]]


def group_table(
    found: Sequence[Group], trends: Trends, tickets: Tickets, owner_of: OwnerOf, now: datetime
) -> Part:
    """A table of groups, or a sentence if there are none.

    :param trends: drawn next to the groups, unless empty.
    :param tickets: shown next to the groups, unless empty.
    :param owner_of: the owner of the route with this name.
    """
    if not found:
        return "No groups match."
    fields = _group_fields(trends, tickets, owner_of, now)
    if any(group.route for group in found):
        fields.append((Column("ROUTE", from_width=140), lambda group: group.route))
    return table_of(fields, found)


def _group_fields(
    trends: Trends, tickets: Tickets, owner_of: OwnerOf, now: datetime
) -> list[Field]:
    fields: list[Field] = [
        (Column("GROUP", rigid=True, ids=True), lambda group: group.fingerprint),
        (Column("OPEN", right=True, rigid=True), lambda group: group.open_count),
        (Column("FAILURES", right=True, from_width=100), lambda group: group.total_count),
        (Column("TASK"), lambda group: last_name(group.task)),
        (Column("EXCEPTION"), lambda group: last_name(group.exception_type)),
        (Column("VERDICT", rigid=True), verdict_of),
        (Column("RULE", from_width=120), lambda group: group.rule),
        (Column("STATUS", rigid=True), lambda group: standing(group, now)),
        (Column("MESSAGE"), lambda group: Short(first_line(group.message), group.message)),
        (Column("OWNER", from_width=120), lambda group: group.owner or owner_of(group.route)),
        (Column("LAST SEEN", rigid=True, from_width=90), lambda group: group.last_seen_at),
    ]

    def ticket_of(group: Group) -> str:
        return ", ".join(one.url or one.to for one in tickets.get(group.fingerprint, ()))

    if tickets:
        fields.append((Column("TICKET", fold=True), ticket_of))
    if trends:
        last_day = Column("LAST 24 H", rigid=True, from_width=140)
        fields.append((last_day, lambda group: sparkline(trends[group.fingerprint])))
    return fields


def verdict_of(group: Group) -> str:
    """The verdict on its newest letter; empty if it is unknown."""
    return group.verdict.value if group.verdict else ""


def _group_facts(
    group: Group, now: datetime, grouping: Grouping, route_owner: str, arrivals: str
) -> Facts:
    return facts_of(
        "Group",
        ("Id", group.fingerprint),
        ("Task", group.task),
        ("Exception", group.exception_type),
        ("Verdict", verdict_of(group)),
        ("Rule", group.rule),
        ("Grouped", grouping.grouped),
        *((_MERGED[one.why], one.in_words()) for one in grouping.merged),
        ("Status", standing(group, now) or group.status.value),
        ("Ends", ends_of(group)),
        ("Fixed in", group.resolved_in),
        ("Decided", group.status_at),
        ("By", group.status_by),
        ("Regressed", group.regressed_at),
        ("Owner", group.owner),
        ("Route", group.route),
        ("Owner of the route", route_owner),
        ("Open", group.open_count),
        ("Letters", group.letter_count),
        ("Failures", group.total_count),
        ("First seen", group.first_seen_at),
        ("Last seen", group.last_seen_at),
        ("Arrivals/h", arrivals),
    )


def group_parts(
    group: Group,
    trend: Sequence[int],
    tickets: Sequence[GroupTicket],
    now: datetime,
    *,
    grouping: Grouping,
    route_owner: str,
    drawn: bool,
    command: Command,
) -> list[Part]:
    """The parts of a group's screen.

    :param route_owner: the owner of its route.
    """
    newest = grouping.newest
    back = command("redrive", "--group", group.fingerprint, "--canary", "1")
    arrivals = sparkline(trend) if drawn else " ".join(map(str, trend))
    return [
        _group_facts(group, now, grouping, route_owner, arrivals),
        ticket_table(tickets, "Tickets"),
        Block("Note", group.note),
        Block("Example", group.message),
        Block("Traceback of the newest letter", own_traceback(newest.traceback) if newest else ""),
        contents_of(newest, title="Arguments of the newest letter") if newest else "",
        f"See its letters: {command('list', '--group', group.fingerprint)}",
        f"Send them back: {back}" if group.open_count else "",
    ]
