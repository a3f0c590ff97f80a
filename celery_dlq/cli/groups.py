"""Commands about groups: what fails, by cause, and what people decide about it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import click
from click.core import ParameterSource

from celery_dlq.cli.group_view import group_parts, group_table
from celery_dlq.cli.options import (
    GROUP_FILTERS,
    choice,
    filters,
    format_option,
    limit_option,
    read_with,
)
from celery_dlq.cli.session import Session, operator
from celery_dlq.group import (
    NOT_IGNORED,
    Annotate,
    Assign,
    Group,
    GroupAct,
    GroupFilter,
    GroupStatus,
    Ignore,
    Mark,
    Reopen,
    Resolve,
)
from celery_dlq.store.base import Filter
from celery_dlq.view import records, times
from celery_dlq.view.groups import ends_of
from celery_dlq.view.text import counted

_named = click.argument("fingerprint", metavar="GROUP")


@click.group("groups", invoke_without_command=True)
@filters(only=GROUP_FILTERS)
@click.option(
    "--status", "statuses", type=choice(GroupStatus), multiple=True,
    help="May be given several times; then also groups without open letters that are ignored or "
    "resolved. Default: open and resolved.",
)  # fmt: skip
@click.option(
    "--mark", "marks", type=choice(Mark), multiple=True,
    help="Open groups that are new (their first letter is not a day old) or regressed.",
)  # fmt: skip
@click.option("--owner", metavar="NAME", help="Groups that were assigned to NAME.")
@limit_option("Groups to show.", default=50)
@format_option
@click.pass_context
def groups(
    ctx: click.Context,
    wanted: Filter,
    statuses: Sequence[str],
    marks: Sequence[str],
    owner: str | None,
    limit: int,
    form: str,
) -> None:
    """Show what is failing, by cause.

    Counts the open letters that share task, exception and place; the largest group comes first. Groups
    that are ignored are left out.
    """
    if ctx.invoked_subcommand:
        _refuse_options(ctx)
        return
    session = Session(ctx.obj)
    screen = session.screen
    which = _which(statuses, marks, owner)
    found = session.store.groups(wanted, now=screen.now, limit=limit, which=which)
    rows = [records.group_record(group, screen.now) for group in found]
    names = [group.fingerprint for group in found] if screen.drawn else []
    trends = session.store.group_trends(names, now=screen.now)
    screen.emit(form, rows, group_table(found, trends, screen.now))


def _refuse_options(ctx: click.Context) -> None:
    given = [
        name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(
            f"The list's options do not go with {ctx.invoked_subcommand!r}; write what it needs behind it."
        )


def _which(statuses: Sequence[str], marks: Sequence[str], owner: str | None) -> GroupFilter:
    if owner is not None and not owner.strip():
        raise click.UsageError("--owner is empty; give it a value, or leave it out.")
    return GroupFilter(
        statuses=frozenset(map(GroupStatus, statuses)) or NOT_IGNORED.statuses,
        emptied=bool(statuses),
        marks=frozenset(map(Mark, marks)),
        owner=owner or "",
    )


@groups.command("show")
@_named
@format_option
@click.pass_obj
def show(cli: Any, fingerprint: str, form: str) -> None:
    """Show one group, with its note and what was decided about it.

    GROUP is its fingerprint or a beginning of it that no other group has.
    """
    session = Session(cli)
    screen = session.screen
    found = session.group(fingerprint)
    trend = session.store.group_trends([found.fingerprint], now=screen.now)[found.fingerprint]
    record = {**records.group_record(found, screen.now), "arrivals_per_hour": list(trend)}
    parts = group_parts(found, trend, screen.now, drawn=screen.drawn, command=session.command)
    screen.emit(form, record, *parts)


@groups.command("ignore")
@_named
@click.option(
    "--until", metavar="TIME",
    callback=read_with(lambda text: times.parse_ahead(text, times.utc_now())),
    help="For so long (90m, 2h, 3d, 1w), or until ISO 8601.",
)  # fmt: skip
@click.option(
    "--until-rate", "rate", metavar="RATE", callback=read_with(times.parse_rate),
    help="Until so many letters come: 100/h, 5/m; within an hour.",
)  # fmt: skip
@click.option(
    "--until-count", "count", type=click.IntRange(min=1), metavar="N",
    help="Until N letters more have come.",
)  # fmt: skip
@click.pass_obj
def ignore(
    cli: Any, fingerprint: str, until: datetime | None, rate: float | None, count: int | None
) -> None:
    """Leave a group out of the list.

    Until one of the options comes true; with none of them, until `reopen`. Its letters are kept and counted
    as ever.
    """
    in_hour = None if rate is None else math.ceil(rate * 3_600 - 1e-6)
    _act(
        cli, fingerprint, Ignore(until=until, rate=in_hour, count=count),
        lambda group: f"Ignored group {group.fingerprint}; that ends {ends_of(group)}.",
    )  # fmt: skip


@groups.command("resolve")
@_named
@click.option(
    "--release", metavar="RELEASE", default="",
    help="The dlq_release that has the cure. What dies in releases that failed before is no regression.",
)  # fmt: skip
@click.pass_obj
def resolve(cli: Any, fingerprint: str, release: str) -> None:
    """Say that the cause of a group is gone.

    The next failure opens the group again, and it is marked as regressed. Its letters still wait.
    """
    _act(
        cli, fingerprint, Resolve(release=release),
        lambda group: f"Resolved group {group.fingerprint}; {_waiting(group)}.",
    )  # fmt: skip


@groups.command("reopen")
@_named
@click.pass_obj
def reopen(cli: Any, fingerprint: str) -> None:
    """Take back that a group is ignored or resolved.

    Of a group that has regressed, take the mark away.
    """
    _act(cli, fingerprint, Reopen(), lambda group: f"Group {group.fingerprint} is open.")


@groups.command("note")
@_named
@click.argument("text", metavar="TEXT")
@click.pass_obj
def note(cli: Any, fingerprint: str, text: str) -> None:
    """Write down what people are to know about a group.

    TEXT takes the place of the note that was there; '' removes it.
    """
    _act(
        cli, fingerprint, Annotate(note=text.strip()),
        lambda group: f"{'Noted on' if group.note else 'Removed the note of'} group {group.fingerprint}.",
    )  # fmt: skip


@groups.command("assign")
@_named
@click.argument("owner", metavar="OWNER")
@click.pass_obj
def assign(cli: Any, fingerprint: str, owner: str) -> None:
    """Say who looks after a group; '' is nobody."""
    _act(
        cli, fingerprint, Assign(owner=owner.strip()),
        lambda group: f"Group {group.fingerprint} is assigned to {group.owner or 'nobody'}.",
    )  # fmt: skip


def _act(cli: Any, fingerprint: str, act: GroupAct, said: Callable[[Group], str]) -> None:
    session = Session(cli)
    found = session.group(fingerprint)
    done = session.store.triage(found.fingerprint, act, who=operator(), now=times.utc_now())
    session.done(said(done))


def _waiting(group: Group) -> str:
    return f"{counted(group.open_count, 'letter')} of it wait to be redriven or discarded"
