"""``dlq brief``: a group in brief, for a ticket or an assistant."""

from __future__ import annotations

import click

from celery_dlq.cli.completion import complete_group
from celery_dlq.cli.options import Word
from celery_dlq.cli.screens.render import speaks_unicode
from celery_dlq.cli.session import Session, pass_showing_session
from celery_dlq.view.brief import as_json, fitted, gather, markdown
from celery_dlq.view.brief.facts import Brief


@click.command("brief")
@click.argument("fingerprint", metavar="GROUP", shell_complete=complete_group)
@click.option(
    "--format", "form", type=Word("a format", ("markdown", "json")), default="markdown",
    show_default=True, help="Output format.",
)  # fmt: skip
@pass_showing_session
def brief(session: Session, fingerprint: str, form: str) -> None:
    """Print a group in brief, for a ticket or an assistant.

    GROUP is a fingerprint, or a prefix of it that no other group has. The brief has the cause with the frames
    of your own code, the evidence of the verdict, attempts, arguments that most letters share, releases, and
    how redrives ended, in at most 4,000 tokens. Texts from outside are marked as data.
    """
    found = gather(
        session.store, fingerprint, session.screen.now,
        owner_of=session.queue.owner_of, command=session.command, see=session.command("groups"),
    )  # fmt: skip
    session.screen.write(fitted(found, _as_json if form == "json" else markdown))


def _as_json(found: Brief) -> str:
    return as_json(found, is_ascii=not speaks_unicode())
