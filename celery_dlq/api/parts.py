"""The settings of an app, and the parts that are made from them: hooks, the store, and the spool. The rest of
the Python API uses them."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from celery_dlq.base.redact import Redactor, safe_repr
from celery_dlq.base.sealing import Keyring, read_keys
from celery_dlq.classify import Classifier, misnamed
from celery_dlq.classify.guarded import begin, bounded
from celery_dlq.errors import SettingsError, page
from celery_dlq.hooks.announcer import Announcer
from celery_dlq.hooks.caller import Caller
from celery_dlq.hooks.event import EventKind, find_hook
from celery_dlq.hooks.registry import Hooks
from celery_dlq.model.letter import DeadLetter, Outcome
from celery_dlq.model.route import owner_of
from celery_dlq.redrive.letter.payload import parameters_of
from celery_dlq.settings import ReadSettings, Settings, read_settings
from celery_dlq.spool.directory import Drained, Spool, hand_over
from celery_dlq.spool.segment import Record
from celery_dlq.store.database.client import Client
from celery_dlq.worker.body.judge import own_rules
from celery_dlq.worker.grouping import Grouping
from celery_dlq.worker.task import DLQTask

if TYPE_CHECKING:
    from celery_dlq.redrive.gate import Gate
    from celery_dlq.store import Store
    from celery_dlq.worker.consumer import Capture

logger: logging.Logger = logging.getLogger("celery_dlq")


class AppParts:
    """The parts of an app that every subject of the API uses."""

    app: Any
    #: The identity of this process on its connections to the store.
    client: Client
    #: The captures of the consumers in this process. Read without a lock, because a forked process might
    #: inherit a taken one.
    captures: tuple[Capture, ...] = ()
    #: Whether acts that may need a second person always become requests: see ``dlq_cli_acts``.
    proposes: bool = False
    _has_reported = _has_imported = False

    @cached_property
    def _read_settings(self) -> ReadSettings:
        return read_settings(self.app)

    @cached_property
    def settings(self) -> Settings:
        """The validated settings.

        :raises SettingsError: a ``dlq_*`` setting is not valid.
        """
        return self._read_settings.valid()

    @property
    def task_settings(self) -> Settings:
        """The settings for the options of tasks. An invalid value is replaced by its default: a process
        that only sends messages may run with invalid settings."""
        return self._read_settings.settings

    def check_settings(self) -> None:
        """Check all settings, as each worker and command does when it starts.

        :raises SettingsError: a ``dlq_*`` setting is not valid.
        """
        self.classifier  # noqa: B018 - made of the settings

    def report_settings(self) -> None:
        """Log the errors in the settings, once. Called before a message is sent, which an invalid
        setting must not prevent."""
        if self._has_reported:
            return
        self._has_reported = True
        try:
            self.check_settings()
        except SettingsError as error:
            logger.error(  # noqa: TRY400 - the message names the cause
                "celery_dlq is misconfigured: %s Messages are still sent. Workers and dlq "
                "commands refuse to start until this is fixed; check with: celery -A <app> dlq doctor",
                error,
            )

    @cached_property
    def classifier(self) -> Classifier:
        """The classifier with the app's rules and the built-in ones."""
        return Classifier.from_settings(self.settings)

    @cached_property
    def grouping(self) -> Grouping:
        """The user's recipe for fingerprints, or the built-in one.

        :raises SettingsError: ``dlq_fingerprint`` cannot be imported, or cannot be called.
        """
        return Grouping(self.redactor, _function("dlq_fingerprint", self.settings.fingerprint))

    @cached_property
    def subject_function(self) -> Callable[..., Any] | None:
        """The user's function that names the person of a message, if there is one.

        :raises SettingsError: ``dlq_subject`` cannot be imported, or cannot be called.
        """
        return _function("dlq_subject", self.settings.subject)

    def check_rules(self) -> None:
        """Check that every exception named in the rules of the app and its tasks exists. It imports the named
        modules, which judging a failure never does.

        :raises SettingsError: a name cannot be imported, so its rule could never match.
        """
        problems = [*misnamed(self.classifier.rules)]
        for name, task in sorted(self.app.tasks.items()):
            if isinstance(task, DLQTask):
                problems += (f"task {name}: {problem}" for problem in misnamed(own_rules(task)))
        if problems:
            raise SettingsError(f"Rules that can never match: {' '.join(problems)}")

    def check_store_url(self) -> str:
        """Check that the store's URL names a supported database. Returns the URL as it may be shown: without
        its password, and with the whole path of a file. Does not connect.

        :raises SettingsError: the database is not supported.
        """
        from celery_dlq.store.database import dialects
        from celery_dlq.store.database.servers import address

        url = dialects.parse_url(self.settings.store_url)
        if dialects.dialect_for(url).is_file and not str(url.database).startswith("file:"):
            url = url.set(database=os.path.abspath(str(url.database)))
        is_default = self.settings.store_url == Settings.store_url
        return address(url) + (" (the default)" if is_default else "")

    def check_archive_url(self) -> None:
        """Check that the packages for ``dlq_archive_url`` are installed, if it is set. Does not connect.

        :raises MissingExtra: one is missing.
        """
        if self.settings.archive_url is not None:
            from celery_dlq.archive.bucket import need_packages

            need_packages(self.settings.archive_url)

    def owner_of(self, route: str) -> str:
        """The owner of the route with this name, by the settings; empty if it has none, or if the settings do
        not have the route.

        :raises SettingsError: a ``dlq_*`` setting is not valid.
        """
        return owner_of(route, self.settings.routes)

    @property
    def recorder_dir(self) -> Path:
        """The directory of the flight recorder.

        :raises SettingsError: a ``dlq_*`` setting is not valid.
        """
        chosen = self.settings
        return Path(chosen.recorder_dir or Path(chosen.spool_dir) / "recorder").absolute()

    @cached_property
    def redactor(self) -> Redactor:
        """Hides secrets in everything that is shown."""
        secrets = self.settings.redact, self.settings.search_redacted_key
        return Redactor(*secrets, self._parameters_of)

    def _parameters_of(self, task: str) -> Sequence[str]:
        if task not in self.app.tasks and not self._has_imported:
            # A worker has imported all modules with tasks, a command only that of the app.
            with contextlib.suppress(Exception, SystemExit):
                self.app.loader.import_default_modules()
            self._has_imported = True
        return parameters_of(self.app, task) or ()

    @cached_property
    def keyring(self) -> Keyring | None:
        """The keys that encrypt the contents of letters; None without ``dlq_encryption_keys``. A function of
        the user is called once.

        :raises SettingsError: the keys are not valid, or the function failed.
        :raises MissingExtra: the package ``cryptography`` is not installed.
        """
        given = self.settings.encryption_keys
        if given is None:
            return None
        if not isinstance(given, Mapping):
            try:
                given = cast("Callable[[], Any]", find_hook(given))()
            except Exception as error:  # the function of the user may raise anything
                raise SettingsError(
                    f"dlq_encryption_keys: the function failed: {safe_repr(error)}. See {page('encryption')}."
                ) from error
        return Keyring(read_keys(given))

    def subject_of(self, args: Any, kwargs: Any) -> str:
        """The person that a message with these arguments is about, by ``dlq_subject``; empty if none.
        Raises nothing. If the function fails or takes too long, that is logged."""
        given = self.settings.subject
        if given is None or (args is None and kwargs is None):  # the arguments cannot be read
            return ""

        def said() -> str:
            found = cast("Callable[..., Any]", self.subject_function)(args, kwargs)
            return "" if found is None else str(found)  # which is the user's code, too

        begin()
        found = bounded(said, given, "dlq_subject")
        if found is None:
            logger.error(
                "dlq_subject failed or did not end, so a letter is not sealed with its person's key, and "
                "dlq forget --subject will not find it; correct the function"
            )
            return ""
        return found

    @cached_property
    def hooks(self) -> Hooks:
        """The hooks that the settings name, and those that were registered."""
        return Hooks(
            lambda: {EventKind(kind): hooks for kind, hooks in (self.settings.hooks or {}).items()},
            routes=lambda: self.settings.routes,
            make_caller=lambda hook: Caller(hook, redactor=self.redactor, owner_of=self.owner_of),
        )

    def announcer(self) -> Announcer:
        """A listener for the store that calls the hooks."""
        return Announcer(
            self.hooks,
            lambda task_id: self.store.letters.get(task_id),
            lambda: datetime.now(timezone.utc),
        )

    @cached_property
    def store(self) -> Store:
        """The store, its schema checked.

        :raises StoreError: the URL is wrong, the database does not answer, or the schema does not fit.
        """
        self._new_store.check_schema()
        return self._new_store

    @property
    def gate(self) -> Gate:
        """The check whether an act needs a second person."""
        from celery_dlq.redrive.gate import Gate

        return Gate(self.app, self.store, self.settings, self.proposes)

    @cached_property
    def _new_store(self) -> Store:
        # Producers import tasks, and should not have to load SQLAlchemy.
        from celery_dlq.store.sql import SQLStore

        return SQLStore.from_settings(self.settings, self.announcer(), self.client, self.keyring)

    def prepare_store(self) -> None:
        """Import the store and its driver, which takes 0.2 s of computing. It does not connect, and raises no
        error; the first use of the store does."""
        with contextlib.suppress(Exception):
            self._new_store.prepare()

    @cached_property
    def spool(self) -> Spool:
        """The spool for letters that the store does not accept."""
        return self.new_spool()

    def new_spool(self) -> Spool:
        """The spool's directory for one more thread: only one thread at a time may use a spool."""
        chosen = self.settings
        return Spool(chosen.spool_dir, max_size=chosen.spool_max_size, ring=self.keyring)

    def drain_spool(self, spool: Spool | None = None) -> Iterator[Drained]:
        """Move spooled letters into the store; yields the result of each step. Files of living workers
        are left alone.

        :param spool: one that no other thread uses; by default :attr:`spool`.
        :raises StoreError: the store failed; the remaining letters stay in the spool.
        """
        yield from (spool or self.spool).drain(self._save)

    def store_records(self, records: Sequence[Record]) -> list[int]:
        """Store letters and outcomes, which may already be stored; returns the indexes of those that
        the store refuses.

        :raises StoreError: the store failed.
        """
        return hand_over(records, self._save)

    def _save(self, records: Sequence[Record]) -> None:
        from celery_dlq.worker.writing.store_calls import write

        write(self.store, records)

    def spool_apart(self, what: DeadLetter | Outcome) -> None:
        """Put a letter or an outcome into the spool at once."""
        # A new spool, because the writer may be in the middle of a line in its own.
        with contextlib.closing(self.new_spool()) as spool:
            spool.keep([what])


def _function(setting: str, given: Any) -> Callable[..., Any] | None:
    """The function that a setting names; None if it names none."""
    try:
        return None if given is None else cast("Callable[..., Any]", find_hook(given))
    except SettingsError as error:
        raise SettingsError(f"{setting}: {error} See {page('settings')}.") from error
