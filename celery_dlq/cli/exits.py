"""Exit statuses, and the one place that turns an error into one."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

import click

from celery_dlq.base.known import unknown_name
from celery_dlq.base.redact import hide_known
from celery_dlq.errors import ApprovalNeeded, CeleryDLQError, FilterError, OrdersError, StoreError
from celery_dlq.view.text import visible

#: Success; a list may be empty.
DONE = 0
#: Failure, or an unknown letter, group, operation, automatic redrive, handler, request or task.
FAILED = 1
#: Invalid command line, or a confirmation is missing.
USAGE = 2
#: The store does not answer or does not exist, or its schema does not fit this release.
STORE = 3
#: Partial success: some letters were skipped, failed again, or left alone.
PARTLY = 4
#: No worker answers, or begins what was left to one. The letters and the operation are kept.
NO_WORKER = 5
#: A second person has to approve it. It became a request, and nothing else was changed.
SECOND_PERSON = 6
#: Interrupted by Ctrl-C. Changes made before it are kept.
INTERRUPTED = 130


def status_of(error: CeleryDLQError) -> int:
    """The exit status for ``error``."""
    if isinstance(error, (FilterError, OrdersError)):
        return USAGE
    if isinstance(error, ApprovalNeeded):
        return SECOND_PERSON
    return STORE if isinstance(error, StoreError) else FAILED


class HeadedCommand(click.Command):
    """A command whose help lists its options under the headings that
    :func:`celery_dlq.cli.options.under` gives them."""

    #: The heading of the other options; the last one of a help page.
    others = "Options"

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings."""
        found: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                found.setdefault(getattr(param, "heading", self.others), []).append(record)
        for heading in sorted(found, key=lambda heading: heading == self.others):
            with formatter.section(heading):
                formatter.write_dl(found[heading])


class NamingGroup(click.Group, HeadedCommand):
    """A group whose error for an unknown command lists the known ones.

    :param alone: the command that runs if none is given.
    """

    command_class: type[click.Command] | None = HeadedCommand

    def __init__(self, *args: Any, alone: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.alone = alone

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line. Options without a command are those of the command that runs alone."""
        is_alone = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        if self.alone and is_alone and not ctx.resilient_parsing:
            args = [self.alone, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that ``args`` start with."""
        known = self.list_commands(ctx)
        if args[0] not in known and not ctx.resilient_parsing:
            ctx.fail(one_line(unknown_name(f"a command of {ctx.info_name}", args[0], known)))
        return super().resolve_command(ctx, args)


class GuardedGroup(NamingGroup):
    """A group whose commands fail with one sentence and a status, never with a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except CeleryDLQError as error:
            _end(ctx, f"Error: {one_line(for_app(str(error)))}", status_of(error))
        except (KeyboardInterrupt, click.Abort):
            _end(ctx, "Interrupted.", INTERRUPTED)
        except BrokenPipeError:
            # The reader, such as head, has closed the pipe. The interpreter flushes stdout again when it
            # exits, and would report that.
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(DONE)


@contextlib.contextmanager
def reading(directory: str, setting: str) -> Iterator[None]:
    """Name the next step if the block cannot read ``directory``, which is ``setting``.

    :raises CeleryDLQError: the directory cannot be read.
    """
    try:
        yield
    except OSError as error:
        raise CeleryDLQError(
            f"{directory} cannot be read ({error.strerror or error}); check {setting}, and run this as the "
            "workers' user."
        ) from error


def leave(status: int) -> NoReturn:
    """End the command that runs with an exit status."""
    click.get_current_context().exit(status)


def one_line(text: str) -> str:
    """``text`` as one line that is safe on a terminal. Anything that looks like a secret is hidden, because
    errors of libraries repeat their arguments."""
    return visible(" ".join(hide_known(text).split()))


def for_app(text: str) -> str:
    """``text`` with the name of this app in its commands; the rooms below do not know that name."""
    app = click.get_current_context().find_root().params.get("app")
    return text.replace("celery -A <app>", f"celery -A {app}") if isinstance(app, str) else text


def _end(ctx: click.Context, message: str, status: int) -> NoReturn:
    ctx.obj.error(message)
    ctx.exit(status)
