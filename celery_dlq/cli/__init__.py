"""The command line, ``celery -A <app> dlq …``: inspect, redrive and close dead letters, administer the store.

A command line enters. Tables or records leave on stdout, remarks on stderr, and an exit status. Commands know
the store and the app, but neither SQL nor Flower's pages. Celery imports this module for each of its own
commands, so the modules of our commands are imported only when one of them is called.
"""

from __future__ import annotations

import sys
from importlib import import_module

import click

from celery_dlq.cli.exits import GuardedGroup

#: The module and name of each command, under the headings of the help page.
_SECTIONS = {
    "Look": {
        "groups": "letters.groups:groups",
        "list": "letters.inspect:list_letters",
        "show": "letters.inspect:show",
        "where": "doctor.where:where",
        "stats": "letters.stats:stats",
        "watch": "letters.stats:watch",
        "audit": "letters.inspect:audit",
    },
    "Judge": {
        "explain": "letters.explain:explain",
        "reclassify": "letters.reapply:reclassify",
    },
    "Send back": {
        "redrive": "redrive.command:redrive",
        "edit": "letters.changes:edit",
        "unpark": "letters.changes:unpark",
        "operations": "redrive.operations:operations",
        "auto": "redrive.auto:auto",
    },
    "Close and keep": {
        "discard": "letters.changes:discard",
        "delete": "letters.removal:delete",
        "forget": "letters.removal:forget",
        "retention": "letters.removal:retention",
        "archive": "letters.archive:archive",
        "requests": "admin.requests:requests",
    },
    "Run": {
        "doctor": "doctor.command:doctor",
        "drill": "doctor.drill:drill",
        "db": "admin.db:db",
        "keys": "admin.keys:keys",
        "recover": "admin.recover:recover",
        "ingest": "admin.ingest:ingest",
        "check": "admin.monitoring:check",
        "exporter": "admin.monitoring:exporter",
        "help": "admin.help:help_command",
    },
}

_COMMANDS = {name: place for section in _SECTIONS.values() for name, place in section.items()}

_HELP = """Inspect, redrive and close dead letters.

Without a command, this shows what is failing, if it is called on a terminal.

An ID is the task id of a letter, or a prefix of it that no other letter has.

\b
Exit status:
  0    success; a list may be empty
  1    failure, or an unknown letter, group, operation, automatic redrive, handler, request or task
  2    invalid command line, or --yes is missing
  3    the store does not answer or does not exist, or its schema does not fit this release
  4    partial success: some letters were skipped, failed again, or left alone
  5    no worker answers, or begins what was left to one
  6    a second person has to approve it; it became a request
  130  interrupted by Ctrl-C
"""


class _LazyGroup(GuardedGroup):
    """Imports a command when it is called."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line. Without a command, it asks for the overview on a terminal, and for the help
        elsewhere."""
        if not args:
            self.no_args_is_help: bool = not _is_on_terminal()
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order of the help page."""
        return list(_COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands under their headings."""
        width = max(map(len, _COMMANDS))
        for heading, names in _SECTIONS.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(heading):
                formatter.write_dl(
                    [
                        (f"{name:{width}}", one.get_short_help_str(100))
                        for name, one in commands
                        if one
                    ]
                )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command with this name."""
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(f"{__name__}.{module}"), name)
        import_module(f"{__name__}.options").refuse_empty(command)
        return command


def _is_on_terminal() -> bool:
    on_terminal: bool = import_module(f"{__name__}.screens.render").is_terminal(sys.stdout)
    return on_terminal


@click.pass_context
def _without_command(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        import_module(f"{__name__}.letters.stats").show_overview(ctx)


dlq: _LazyGroup = _LazyGroup(
    "dlq", help=_HELP, short_help="Inspect, redrive and close dead letters.",
    callback=_without_command, invoke_without_command=True,
)  # fmt: skip

# Flower has no plugins, but Celery imports this module before it runs Flower's own command.
import_module("celery_dlq.flower").install()
