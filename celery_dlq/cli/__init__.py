"""The commands: ``celery -A <app> dlq …``.

Celery imports this module for every one of its own commands, so the modules of the commands are
imported only when one of them is wanted.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from celery_dlq.cli.exits import GuardedGroup

#: Where each command is, in the order of the help page.
_COMMANDS = {
    "list": "inspect:list_letters",
    "show": "inspect:show",
    "groups": "groups:groups",
    "stats": "inspect:stats",
    "watch": "watch:watch",
    "explain": "inspect:explain",
    "policy": "policy:policy",
    "redrive": "redrive:redrive",
    "edit": "edit:edit",
    "operations": "operations:operations",
    "release": "closing:release",
    "discard": "closing:discard",
    "undiscard": "closing:undiscard",
    "audit": "audit:audit",
    "reclassify": "reclassify:reclassify",
    "ingest": "ingest:ingest",
    "check": "check:check",
    "exporter": "exporter:exporter",
    "spool": "spool:spool",
    "db": "admin:db",
    "doctor": "admin:doctor",
}

_HELP = """Look at dead letters, send them back, close them.

A letter is named by its task id, or by a beginning of it that no other letter has.

\b
Exit status:
  0    done; a list may be empty
  1    failed, or no letter, group or operation has the id
  2    the command line makes no sense, or lacks --yes
  3    the store does not answer, or its schema does not fit
  4    done in part: letters were skipped, failed again, or left alone
  130  interrupted by Ctrl-C
"""


class _LazyGroup(GuardedGroup):
    """Finds its commands by name, when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, those that only look first."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name].partition(":")
        command: Any = getattr(import_module(f"{__name__}.{module}"), name)
        return command  # type: ignore[no-any-return]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that ``args`` begins with; a misspelt one is told what it is near to."""
        near = get_close_matches(args[0], _COMMANDS, n=1)
        if near and args[0] not in _COMMANDS and not ctx.resilient_parsing:
            ctx.fail(f"No such command {args[0]!r}; did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)


dlq = _LazyGroup("dlq", help=_HELP, short_help="Look at dead letters, redrive or discard them.")

# Flower has no plugins, and Celery imports this module before Flower's own command runs.
import_module("celery_dlq.flower.attach").install()
