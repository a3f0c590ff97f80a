"""The context of a command: the app's dead-letter queue, the screen, and letters by id."""

from __future__ import annotations

import contextlib
import functools
import getpass
import os
import shlex
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click
from celery import _state as celery_state

from celery_dlq.cli.screens.render import Screen
from celery_dlq.errors import CeleryDLQError
from celery_dlq.model.handling import is_of_user
from celery_dlq.model.letter import DeadLetter
from celery_dlq.settings import is_configured
from celery_dlq.store.base import Filter, pages
from celery_dlq.store.database.client import Client, Role
from celery_dlq.view import lookup, times
from celery_dlq.view.text import visible

if TYPE_CHECKING:
    from celery_dlq.api.queue import DeadLetterQueue
    from celery_dlq.model.group import Group
    from celery_dlq.store import Store
    from celery_dlq.store.base import Operation

#: Letters per read from the store.
_PAGE = 500


class Session:
    """One run of a command.

    :param cli: Celery's ``CLIContext``.
    :param role: names the command's connections to the store.
    """

    def __init__(self, cli: Any, role: Role = Role.CLI) -> None:
        self.cli = cli
        self._role = role

    @cached_property
    def screen(self) -> Screen:
        """The screen on stdout."""
        return Screen.of(self.cli)

    @cached_property
    def queue(self) -> DeadLetterQueue:
        """The app's dead-letter queue.

        :raises SettingsError: a ``dlq_*`` setting is not valid.
        :raises click.UsageError: no app is given.
        """
        _check_named(self.cli.app)
        # Every celery command imports our commands, but only ours need the rest of the package.
        from celery_dlq.api.queue import DeadLetterQueue

        queue = DeadLetterQueue.of(self.cli.app)
        queue.check_settings()
        queue.client = Client(self._role, makes_file=False)
        queue.proposes = queue.settings.cli_acts == "propose"
        return queue

    @property
    def store(self) -> Store:
        """The store, with its schema checked and secrets hidden, because its values are shown. From here on
        the screens use its clock."""
        from celery_dlq.view.lookup import redacting

        store = self.queue.store
        times.CLOCK.set_ahead(store.clock_ahead())
        return redacting(store, self.queue.redactor)

    def done(self, text: str) -> None:
        """Print a result on stdout, unless ``--quiet``."""
        if not self.cli.quiet:
            self.screen.write(visible(text))

    def say(self, text: str) -> None:
        """Print a remark on stderr, unless ``--quiet``."""
        if not self.cli.quiet:
            self.error(text)

    def say_next(self, cursor: object) -> None:
        """Remark how to get the next page, if there is one.

        :param cursor: the value of ``--after``; empty or None on the last page.
        """
        if cursor:
            self.say(f"For the next page, add: --after {cursor}")

    def say_if_more(self, known: int, limit: int) -> None:
        """Remark that a list, newest first, was cut off, if more than ``limit`` rows are known."""
        if known > limit:
            self.say(f"Only the newest {limit:,} are shown; for more, raise --limit.")

    def error(self, text: str) -> None:
        """Print one line on stderr."""
        self.cli.error(visible(text))

    def command(self, *words: str) -> str:
        """The command line of another of our commands, for the same app."""
        named = ["-A", self.app_name] if self.app_name else []
        return shlex.join(["celery", *named, "dlq", *words])

    @property
    def app_name(self) -> str:
        """The app as ``-A`` names it; empty if it was given in another way."""
        app = click.get_current_context().find_root().params.get("app")
        return app if isinstance(app, str) else ""

    def why_no_worker(self) -> str:
        """The problem if no worker on the app's broker uses the store; empty if one does. A worker that
        was killed counts for half a minute."""
        from celery_dlq.worker.broker_limits import upkeep_lease

        leases = self.queue.store.leases
        if leases.to_do(upkeep_lease(self.queue.hold.place)).lease_free_in_s:
            return ""
        return (
            "no worker answers, so operations, parked retries and outcomes wait; start a worker of this app "
            f"on its broker, with a task that has base=DLQTask, and the store {self.queue.check_store_url()}"
        )

    def load_tasks(self) -> None:
        """Import the modules that define the app's tasks.

        :raises CeleryDLQError: a module cannot be imported.
        """
        try:
            self.cli.app.loader.import_default_modules()
        except Exception as error:
            raise CeleryDLQError(
                f"The app's tasks cannot be imported: {type(error).__name__}: {error}; "
                "run this where the worker's code and packages are installed."
            ) from error

    def task_names(self, wanted: Callable[[str], bool] = is_of_user) -> list[str]:
        """The names of the app's loaded tasks that are ``wanted``; by default, all but Celery's and ours."""
        return [name for name in self.cli.app.tasks if wanted(name)]

    def full_id(self, prefix: str) -> str:
        """The task id that starts with ``prefix``.

        :raises UnknownLetter: no id matches.
        :raises AmbiguousId: several ids match, and none is ``prefix`` itself.
        """
        return lookup.letter_id(self.store, prefix, see=self.command("list"))

    def operation(self, prefix: str) -> Operation:
        """The operation whose id starts with ``prefix``.

        :raises UnknownOperation: no id matches.
        :raises AmbiguousId: several ids match.
        """
        return lookup.operation(self.store, prefix, see=self.command("operations", "list"))

    def fingerprint(self, prefix: str) -> str:
        """The fingerprint of the group that starts with ``prefix``.

        :raises UnknownGroup: no fingerprint matches.
        :raises AmbiguousId: several fingerprints match.
        """
        return lookup.fingerprint(self.store, prefix, see=self.command("groups"))

    def group(self, prefix: str) -> Group:
        """The group whose fingerprint starts with ``prefix``.

        :raises UnknownGroup: no fingerprint matches.
        :raises AmbiguousId: several fingerprints match.
        """
        return lookup.group(self.store, prefix, self.screen.now, see=self.command("groups"))

    def letter(self, prefix: str) -> DeadLetter:
        """The letter, with its message, whose id starts with ``prefix``.

        :raises LetterDeleted: the letter with this id was deleted, and the audit says so.
        :raises UnknownLetter: no id matches.
        :raises AmbiguousId: several ids match.
        """
        return lookup.letter_to_show(self.store, prefix, see=self.command("list"))

    def letter_to_change(self, prefix: str) -> DeadLetter:
        """The letter, with its message and its secrets, whose id starts with ``prefix``.

        :raises UnknownLetter: no id matches.
        :raises AmbiguousId: several ids match.
        """
        return lookup.letter(self.queue.store, prefix, see=self.command("list"))

    def letters(self, wanted: Filter) -> Iterator[DeadLetter]:
        """All matching letters, newest failure first, read page by page."""
        for page in pages(self.store.letters.find, wanted, _PAGE):
            yield from page.letters


def pass_session(command: Callable[..., Any]) -> Callable[..., Any]:
    """Call ``command`` with the session of this run, in place of Celery's ``CLIContext``."""

    @functools.wraps(command)
    def with_session(cli: Any, /, *args: Any, **kwargs: Any) -> Any:
        return command(Session(cli), *args, **kwargs)

    return click.pass_obj(with_session)


def _check_named(app: Any) -> None:
    """Refuse the default app that Celery makes when no app is given: its store would be the default one."""
    # Celery's Django fixup also sets the default app, but to the project's own; only Celery's has this name.
    stands_in = app is celery_state.default_app and app.main == "default"
    if stands_in and not is_configured(app):
        raise click.UsageError("No app is given; write: celery -A <app> dlq …")


def operator() -> str:
    """The operator's name for the audit: the user of the operating system."""
    # Containers often run under a user id without a name.
    with contextlib.suppress(KeyError, OSError, ImportError):
        return getpass.getuser()
    return f"uid {os.getuid()}"
