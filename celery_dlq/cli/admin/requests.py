"""``dlq requests``: acts that wait for a second person. The command line proves no name, so it has no command
to approve one."""

from __future__ import annotations

from collections.abc import Sequence

import click

from celery_dlq.cli.exits import NamingGroup
from celery_dlq.cli.options import format_option, limit_option, why_option
from celery_dlq.cli.screens.parts import Block, Column, Facts, Field, Table, table_of
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.view.fields import facts_in
from celery_dlq.view.requests import REQUEST, request_record

_FIELDS: Sequence[Field] = (
    (Column("REQUEST", rigid=True), lambda one: one.id),
    (Column("STATE", rigid=True), lambda one: one.state.value),
    (Column("ACT", rigid=True), lambda one: one.act),
    (Column("LETTERS", right=True, rigid=True), lambda one: one.count),
    (Column("BY"), lambda one: one.who),
    (Column("ASKED", rigid=True), lambda one: one.at),
    (Column("WHY", fold=True), lambda one: one.why),
)

_named = click.argument("request_id", metavar="ID")


@click.group("requests", cls=NamingGroup, alone="list")
def requests() -> None:
    """List, show and refuse acts that wait for a second person.

    They are approved in Flower, under Dead letters and Requests: no login proves who you are here.
    """


@requests.command("list")
@limit_option("Show at most this many that do not wait any more.", default=20)
@format_option
@pass_session
def list_requests(session: Session, limit: int, form: str) -> None:
    """List all requests that wait, then others, each newest first."""
    found = session.store.requests.find(limit=limit)
    screen = table_of(_FIELDS, found) if found else "There are no requests."
    session.screen.emit(form, [*map(request_record, found)], screen)


@requests.command("show")
@_named
@format_option
@pass_session
def show(session: Session, request_id: str, form: str) -> None:
    """Show a request and its letters."""
    one = session.store.requests.get(request_id)
    left_out = one.result.get("left_out", {})
    columns = (Column("LETTER", rigid=True, ids=True), Column("LEFT OUT", fold=True))
    letters = Table(columns, [(task_id, left_out.get(task_id, "")) for task_id in one.letters])
    facts = Facts("Request", facts_in(REQUEST, one, ()))
    change = Block("Change", one.shown.get("change", ""))
    session.screen.emit(form, request_record(one, is_whole=True), facts, letters, change)


@requests.command("refuse")
@_named
@why_option
@pass_session
def refuse(session: Session, request_id: str, why: str) -> None:
    """Refuse a request, or withdraw your own."""
    refused = session.queue.requests.refuse(request_id, who=operator(), why=why)
    session.done(f"Refused request {refused.id}. Nothing was changed.")
