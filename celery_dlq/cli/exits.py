"""Exit statuses, and the one place where an error becomes one."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, NoReturn

import click

from celery_dlq.errors import CeleryDLQError, FilterError, OrdersError, StoreError
from celery_dlq.view.text import visible

#: It was done; a list may be empty.
DONE = 0
#: It failed, or no letter has the given id.
FAILED = 1
#: The command line makes no sense, or lacks a confirmation.
USAGE = 2
#: The store does not answer, or its schema does not fit.
STORE = 3
#: A part was done: other letters were skipped, failed again, or left alone.
PARTLY = 4
#: Ctrl-C. What was done until then stays done.
INTERRUPTED = 130


def status_of(error: CeleryDLQError) -> int:
    """The exit status that stands for ``error``."""
    if isinstance(error, (FilterError, OrdersError)):
        return USAGE
    return STORE if isinstance(error, StoreError) else FAILED


class GuardedGroup(click.Group):
    """A group whose commands end in a sentence and a status, never in a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except CeleryDLQError as error:
            _end(ctx, f"Error: {one_line(for_app(str(error)))}", status_of(error))
        except (KeyboardInterrupt, click.Abort):
            _end(ctx, "Interrupted.", INTERRUPTED)
        except BrokenPipeError:
            # The reader, such as head, has all it wanted.
            _silence_stdout()
            ctx.exit(DONE)


def one_line(text: str) -> str:
    """``text`` as one line that is safe on a terminal."""
    return visible(" ".join(text.split()))


def for_app(text: str) -> str:
    """``text`` with the name of this app in the commands that it names: what is below does not know it."""
    app = click.get_current_context().find_root().params.get("app")
    return text.replace("celery -A <app>", f"celery -A {app}") if isinstance(app, str) else text


def _end(ctx: click.Context, message: str, status: int) -> NoReturn:
    ctx.obj.error(message)
    ctx.exit(status)


def _silence_stdout() -> None:
    # The interpreter flushes stdout once more at its end, and would complain there.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
