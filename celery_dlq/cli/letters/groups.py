"""``dlq groups``: lists failures by cause, and records decisions about them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import click

from celery_dlq.cli.exits import NamingGroup
from celery_dlq.cli.letters.reapply import regroup
from celery_dlq.cli.options import (
    FORMATS,
    MAYBE_EMPTY,
    Word,
    after_option,
    choice,
    filters,
    format_option,
    limit_option,
    moment_option,
    read_with,
    whole_number,
)
from celery_dlq.cli.screens.letter import group_parts, group_table
from celery_dlq.cli.screens.render import speaks_unicode
from celery_dlq.cli.selection import checked
from celery_dlq.cli.session import Session, operator, pass_session
from celery_dlq.model import group as acts
from celery_dlq.model.group import Group, GroupAct, GroupMark, GroupStatus, Mark
from celery_dlq.model.handling import GroupTicket
from celery_dlq.store.base import Filter
from celery_dlq.view import records, times
from celery_dlq.view.brief import as_json, brief_about, markdown
from celery_dlq.view.groups import GROUP_FILTERS, ends_of, grouping_of, groups_with
from celery_dlq.view.text import counted

_named = click.argument("fingerprint", metavar="GROUP")


@click.group("groups", cls=NamingGroup, alone="list")
def groups() -> None:
    """List failures by cause, and decide about them.

    A group counts the open letters with the same task, exception and place in the code.
    """


@groups.command("list")
@filters(only=GROUP_FILTERS)
@click.option(
    "--status", "statuses", type=choice("a status of groups", GroupStatus), multiple=True,
    help="Status of the groups; repeatable. Includes ignored and resolved groups without open letters. "
    "Default: open and resolved groups with open letters.",
)  # fmt: skip
@click.option(
    "--mark", "marks", type=choice("a mark of groups", Mark), multiple=True,
    help="Open groups that are new (first letter in the last 24 hours) or regressed.",
)  # fmt: skip
@click.option("--owner", metavar="NAME", help="Only groups assigned to NAME.")
@limit_option("Groups per page.", default=50)
@after_option
@format_option
@pass_session
def list_groups(
    session: Session,
    wanted: Filter,
    statuses: Sequence[str],
    marks: Sequence[str],
    owner: str | None,
    limit: int,
    after: str | None,
    form: str,
) -> None:
    """List groups, the largest first. Ignored groups are left out."""
    screen = session.screen
    which = groups_with(map(GroupStatus, statuses), map(Mark, marks), owner or "")
    wanted = checked(session, wanted)
    known = session.store.groups.find(
        wanted, now=screen.now, limit=limit + 1, after=after, which=which
    )
    found = known[:limit]
    names = [group.fingerprint for group in found]
    tickets = session.store.tickets.of_groups(names)
    trends = session.store.groups.trends(names if screen.drawn else [], now=screen.now)
    rows = [_record(session, group, tickets.get(group.fingerprint, ())) for group in found]
    table = group_table(found, trends, tickets, session.queue.owner_of, screen.now)
    screen.emit(form, rows, table)
    if len(known) > limit:
        session.say_next(shlex.quote(GroupMark.of(found[-1]).cursor))


def _record(session: Session, group: Group, tickets: Sequence[GroupTicket]) -> dict[str, Any]:
    owner = session.queue.owner_of(group.route)
    return records.group_record(group, tickets, session.screen.now, route_owner=owner)


@groups.command("show")
@_named
@click.option(
    "--format", "form", type=Word("a format", (*FORMATS, "markdown", "brief")), default="table",
    show_default=True,
    help="Output format. markdown is a brief for a ticket or an assistant; brief is "
    "its JSON.",
)  # fmt: skip
@pass_session
def show(session: Session, fingerprint: str, form: str) -> None:
    """Show one group: its verdict, the newest traceback and arguments, its note and decisions.

    GROUP is a fingerprint, or a prefix of it that no other group has. The brief has the cause with the frames
    of your own code, the evidence of the verdict, attempts, arguments that most letters share, releases, and
    how redrives ended. It marks texts from outside as data.
    """
    if form in ("markdown", "brief"):
        brief = brief_about(
            session.store, fingerprint, session.screen.now,
            owner_of=session.queue.owner_of, command=session.command, see=session.command("groups"),
        )  # fmt: skip
        is_ascii = not speaks_unicode()
        session.screen.write(
            as_json(brief, is_ascii=is_ascii) if form == "brief" else markdown(brief)
        )
        return
    screen = session.screen
    found = session.group(fingerprint)
    trend = session.store.groups.trends([found.fingerprint], now=screen.now)[found.fingerprint]
    tickets = session.store.tickets.of_groups([found.fingerprint]).get(found.fingerprint, ())
    grouping = grouping_of(session.store, found.fingerprint)
    record = {
        **_record(session, found, tickets),
        "arrivals_per_hour": list(trend),
        **grouping.record(),
    }
    parts = group_parts(
        found, trend, tickets, screen.now, grouping=grouping,
        route_owner=session.queue.owner_of(found.route), drawn=screen.drawn, command=session.command,
    )  # fmt: skip
    screen.emit(form, record, *parts)


@groups.command("ignore")
@_named
@moment_option(
    "--until",
    "Ignore for this long (90m, 2h, 3d, 1w), or until this time: tomorrow, monday, or ISO 8601.",
    times.parse_ahead,
)
@click.option(
    "--until-rate", "in_hour", metavar="RATE", callback=read_with(times.parse_hourly),
    help="Ignore until there are this many failures, measured over an hour: 100/h, 5/m.",
)  # fmt: skip
@click.option(
    "--until-count", "count", type=whole_number(), metavar="N",
    help="Ignore until there are N more failures.",
)  # fmt: skip
@pass_session
def ignore(
    session: Session,
    fingerprint: str,
    until: datetime | None,
    in_hour: int | None,
    count: int | None,
) -> None:
    """Hide a group from the list.

    It stays hidden until the first of the given limits is reached, or until `reopen` if none is given. Its
    letters are still kept and counted.
    """
    _act(
        session, fingerprint, acts.Ignore(until=until, rate=in_hour, count=count),
        lambda group: f"Ignored group {group.fingerprint}. This ends {ends_of(group)}.",
    )  # fmt: skip


@groups.command("resolve")
@_named
@click.option(
    "--release", metavar="RELEASE",
    help="The dlq_release with the fix. Failures in releases where the group failed before are not "
    "regressions.",
)  # fmt: skip
@pass_session
def resolve(session: Session, fingerprint: str, release: str | None) -> None:
    """Mark a group as fixed.

    Its letters stay open. The next failure reopens the group and marks it as regressed.
    """
    _act(
        session, fingerprint, acts.Resolve(release=release or ""),
        lambda group: (
            f"Resolved group {group.fingerprint}; it still has {counted(group.open_count, 'open letter')} to "
            "redrive or discard."
        ),
    )  # fmt: skip


@groups.command("reopen")
@_named
@pass_session
def reopen(session: Session, fingerprint: str) -> None:
    """Reopen an ignored or resolved group.

    Clears the mark of a regressed group.
    """
    _act(session, fingerprint, acts.Reopen(), lambda group: f"Group {group.fingerprint} is open.")


@groups.command("note")
@_named
@click.argument("text", metavar="TEXT", type=MAYBE_EMPTY)
@pass_session
def note(session: Session, fingerprint: str, text: str) -> None:
    """Set the note of a group.

    TEXT replaces the previous note; '' removes it.
    """
    _act(
        session, fingerprint, acts.Annotate(note=text.strip()),
        lambda group: f"{'Set' if group.note else 'Removed'} the note of group {group.fingerprint}.",
    )  # fmt: skip


@groups.command("assign")
@_named
@click.argument("owner", metavar="OWNER", type=MAYBE_EMPTY)
@pass_session
def assign(session: Session, fingerprint: str, owner: str) -> None:
    """Assign a group to an owner; '' removes the owner."""
    _act(
        session, fingerprint, acts.Assign(owner=owner.strip()),
        lambda group: (
            f"Group {group.fingerprint} is assigned to {group.owner}."
            if group.owner
            else f"Group {group.fingerprint} has no owner."
        ),
    )  # fmt: skip


@groups.command("merge")
@_named
@click.argument("other", metavar="OTHER")
@pass_session
def merge(session: Session, fingerprint: str, other: str) -> None:
    """Merge OTHER into a group, because both have one cause.

    Letters of OTHER, and later failures, are counted in GROUP. The decisions about OTHER wait until it is
    split off again.
    """
    into = session.group(fingerprint).fingerprint
    merged = session.group(other).fingerprint
    undo = session.command("groups", "split", into, merged)
    _act(
        session, merged, acts.Merge(into=into),
        lambda _group: f"Merged group {merged} into {into}. To undo that: {undo}",
    )  # fmt: skip


@groups.command("split")
@_named
@click.argument("member", metavar="[MEMBER]", required=False)
@pass_session
def split(session: Session, fingerprint: str, member: str | None) -> None:
    """Undo merges into a group: that of MEMBER, or all.

    A group into which the groups of one place in the code were folded is dissolved, and the place is not
    folded again.
    """
    _act(
        session, fingerprint, acts.Split(member=member or ""),
        lambda group: (
            f"Split group {group.fingerprint}, which has {counted(group.open_count, 'open letter')} now."
        ),
    )  # fmt: skip


groups.add_command(regroup)


def _act(session: Session, fingerprint: str, act: GroupAct, said: Callable[[Group], str]) -> None:
    name = session.group(fingerprint).fingerprint
    session.queue.groups.decide(name, act, who=operator(), now=times.utc_now())
    session.done(said(session.group(name)))
