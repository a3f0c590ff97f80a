"""What a command works with: the app's dead-letter queue, the screen, and letters by id."""

from __future__ import annotations

import contextlib
import getpass
import os
import shlex
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click
from celery import _state as celery_state

from celery_dlq.cli.render import Screen
from celery_dlq.errors import (
    AmbiguousId,
    CeleryDLQError,
    UnknownGroup,
    UnknownLetter,
    UnknownOperation,
)
from celery_dlq.letter import DeadLetter
from celery_dlq.settings import is_configured
from celery_dlq.store.base import Filter

if TYPE_CHECKING:
    from celery_dlq.group import Group
    from celery_dlq.queue import DeadLetterQueue
    from celery_dlq.store.base import Operation, Store

#: Ids that are named when a prefix fits more than one.
_CANDIDATES = 10

#: Letters read from the store at a time.
_PAGE = 500


class Session:
    """One run of a command.

    :param cli: Celery's ``CLIContext``.
    """

    def __init__(self, cli: Any) -> None:
        self.cli = cli

    @cached_property
    def screen(self) -> Screen:
        """What stdout is."""
        return Screen.of(self.cli)

    @cached_property
    def queue(self) -> DeadLetterQueue:
        """The app's dead-letter queue.

        :raises SettingsError: a ``dlq_*`` setting is not valid.
        :raises click.UsageError: no app was named.
        """
        _check_named(self.cli.app)
        # Every celery command imports this package's commands, and few of them need the rest.
        from celery_dlq.queue import DeadLetterQueue

        return DeadLetterQueue.of(self.cli.app)

    @property
    def store(self) -> Store:
        """The store, its schema checked."""
        return self.queue.store

    def done(self, text: str) -> None:
        """What was achieved, which ``--quiet`` silences."""
        if not self.cli.quiet:
            self.cli.echo(text)

    def say(self, text: str) -> None:
        """A remark beside the data, which ``--quiet`` silences."""
        if not self.cli.quiet:
            self.cli.error(text)

    def command(self, *words: str) -> str:
        """How to type another of our commands for the same app."""
        app = click.get_current_context().find_root().params.get("app")
        named = ["-A", app] if isinstance(app, str) else []
        return shlex.join(["celery", *named, "dlq", *words])

    def load_tasks(self) -> None:
        """Import the modules that define the app's tasks.

        :raises CeleryDLQError: one of them cannot be imported.
        """
        try:
            self.cli.app.loader.import_default_modules()
        except Exception as error:
            raise CeleryDLQError(
                f"The app's tasks cannot be imported: {type(error).__name__}: {error}; "
                "run this where the worker's code and packages are installed."
            ) from error

    def full_id(self, prefix: str) -> str:
        """The task id that begins with ``prefix``.

        :raises UnknownLetter: there is none.
        :raises AmbiguousId: there are several, and none is ``prefix`` itself.
        """
        found = self.store.match_ids(prefix, limit=_CANDIDATES + 1) if prefix else []
        if not found:
            raise UnknownLetter(
                f"No dead letter has an id that begins with {prefix!r}; see: {self.command('list')}"
            )
        return _only(prefix, found)

    def operation(self, prefix: str) -> Operation:
        """The operation whose id begins with ``prefix``.

        :raises UnknownOperation: there is none.
        :raises AmbiguousId: there are several.
        """
        found = self.store.match_operations(prefix, limit=_CANDIDATES + 1) if prefix else []
        operation = self.store.operation(_only(prefix, found)) if found else None
        if operation is None:
            see = self.command("operations", "list")
            raise UnknownOperation(
                f"No operation has an id that begins with {prefix!r}; see: {see}"
            )
        return operation

    def fingerprint(self, prefix: str) -> str:
        """The fingerprint of the group that begins with ``prefix``.

        :raises UnknownGroup: there is none.
        :raises AmbiguousId: there are several.
        """
        found = self.store.match_groups(prefix, limit=_CANDIDATES + 1) if prefix else []
        if not found:
            raise UnknownGroup(
                f"No group has a fingerprint that begins with {prefix!r}; see: {self.command('groups')}"
            )
        return _only(prefix, found, "group")

    def group(self, prefix: str) -> Group:
        """The group whose fingerprint begins with ``prefix``.

        :raises UnknownGroup: there is none.
        :raises AmbiguousId: there are several.
        """
        found = self.store.group(self.fingerprint(prefix), now=self.screen.now)
        if found is None:
            raise UnknownGroup
        return found

    def letter(self, prefix: str) -> DeadLetter:
        """The whole letter whose id begins with ``prefix``.

        :raises UnknownLetter: there is none.
        :raises AmbiguousId: there are several.
        """
        letter = self.store.get(self.full_id(prefix))
        if letter is None:
            raise UnknownLetter
        return letter

    def letters(self, wanted: Filter) -> Iterator[DeadLetter]:
        """All letters that match, newest failure first, read page by page."""
        after = None
        while True:
            page = self.store.find(wanted, limit=_PAGE, after=after)
            yield from page.letters
            after = page.next
            if after is None:
                return


def _only(prefix: str, found: Sequence[str], what: str = "id") -> str:
    """The one of ``found`` that ``prefix`` means.

    :raises AmbiguousId: it may mean several.
    """
    if prefix in found or len(found) == 1:
        return prefix if prefix in found else found[0]
    more = " and more" if len(found) > _CANDIDATES else ""
    raise AmbiguousId(
        f"More than one {what} begins with {prefix!r}: {', '.join(found[:_CANDIDATES])}{more}; "
        "give more characters."
    )


def _check_named(app: Any) -> None:
    """Refuse Celery's stand-in for an app that was not named: its store would be a new, empty file
    in the working directory."""
    # Celery's Django fixup makes the project's own app the default one; the stand-in has this name.
    stands_in = app is celery_state.default_app and app.main == "default"
    if stands_in and not is_configured(app):
        raise click.UsageError("No app is named; write: celery -A <app> dlq …")


def operator() -> str:
    """Who acts, for the audit: the operating system's user."""
    # Containers often run under a number that has no name.
    with contextlib.suppress(KeyError, OSError, ImportError):
        return getpass.getuser()
    return f"uid {os.getuid()}"
