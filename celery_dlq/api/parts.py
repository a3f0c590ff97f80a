"""The settings of an app, and the parts that are made from them, which the rest of the Python API uses."""

from __future__ import annotations

import logging
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from celery_dlq.classify import Classifier, misnamed
from celery_dlq.errors import SettingsError, page
from celery_dlq.hooks.lookup import find_hook
from celery_dlq.model.route import owner_of
from celery_dlq.redact import Redactor
from celery_dlq.settings import ReadSettings, Settings, read_settings
from celery_dlq.worker.body.judge import own_rules
from celery_dlq.worker.grouping import Grouping
from celery_dlq.worker.task import DLQTask

if TYPE_CHECKING:
    from celery_dlq.store import Store

logger = logging.getLogger("celery_dlq")


class AppParts:
    """The parts of an app that every subject of the API uses."""

    app: Any
    _has_reported = False

    @cached_property
    def store(self) -> Store:
        """The store, its schema checked. The queue opens it."""
        raise NotImplementedError

    @cached_property
    def read_store(self) -> Store:
        """The store for screens. The queue opens it."""
        raise NotImplementedError

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
        """The settings for the options of tasks, with the default in place of each invalid value. A process
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
        given = self.settings.fingerprint
        if given is None:
            return Grouping(self.redactor)
        try:
            return Grouping(self.redactor, find_hook(given))
        except SettingsError as error:
            raise SettingsError(f"dlq_fingerprint: {error} See {page('settings')}.") from error

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
        """Check that the store's URL names a supported database, and that of its read replica the same kind.
        Returns that URL as it may be shown: without its password, and with the whole path of a file. Does not
        connect.

        :raises SettingsError: the database is not supported, or cannot be a replica.
        """
        from celery_dlq.store.database.dialects import supported
        from celery_dlq.store.database.faults import address

        url = supported.parse_url(self.settings.store_url)
        if self.settings.store_read_url:
            supported.parse_read_url(self.settings.store_read_url, url)
        if supported.dialect_for(url).is_file and not str(url.database).startswith("file:"):
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
        return Redactor(self.settings.redact, self.settings.search_redacted_key)
