"""Every ``dlq_*`` setting: its default, its allowed values and its description."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from celery_dlq.errors import NamespaceError, SettingsError
from celery_dlq.settings.validation import (
    APPROVAL,
    ARCHIVE_URL,
    BOOLEAN,
    CLI_ACTS,
    ENCRYPTION_KEYS,
    EXCEPTIONS,
    HOOKS,
    MAYBE_CALLABLE,
    MAYBE_NAMES,
    MAYBE_TEXT,
    NAMES,
    NAMESPACE,
    PREFIX,
    REDRIVE_OPTION,
    REDRIVE_TRACE,
    RETENTION,
    ROLES_OF_USERS,
    RULES,
    SHARE,
    STORE_URL_VARIABLE,
    TEXT,
    TRACE_URL,
    UNSENT,
    Allowed,
    allowed_values,
    given_settings,
    named_objects,
    number,
    problem_of,
    read_values,
    unknown_setting,
    whole,
)


def _setting(default: Any, allowed: Allowed, text: str) -> Any:
    return field(default=default, metadata={"allowed": allowed, "text": text})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The validated ``dlq_*`` settings of one app. Durations are in seconds."""

    # fmt: off
    store_url: str = _setting(
        "sqlite:///celery_dlq.sqlite3", TEXT,
        "SQLAlchemy URL of the dead-letter store: SQLite, PostgreSQL or MySQL/MariaDB. "
        f"The environment variable {STORE_URL_VARIABLE} overrides it.",
    )
    store_timeout: float = _setting(
        5.0, number(0.1, 300, "seconds"),
        "Time limit for a connection to the store, for a lock and for one statement; on PostgreSQL, a "
        "statement that reads large bodies has one more second per MiB. If a letter is not written after "
        "twice this time, it goes to the spool.",
    )
    namespace: str | Sequence[str] = _setting(
        "", NAMESPACE,
        "Name of this app among those that share the store: it sees and changes only its own letters. A list "
        "of names, or '*' for all, is for Flower and the command line; a worker needs one name, or none.",
    )
    spool_dir: str = _setting(
        "celery_dlq_spool", TEXT,
        "Directory for letters that the store did not accept; a later worker drains it.",
    )
    spool_max_size: int = _setting(
        1_073_741_824, whole(1_048_576, 2**50),
        "Maximum size of all files in dlq_spool_dir, in bytes; beyond it, whole letters go to the log.",
    )
    recorder: bool = _setting(
        True, BOOLEAN,
        "Whether workers keep a copy of each message that they acknowledge before its task has ended, in "
        "files that outlive them. If a worker is killed, these messages become letters with the reason "
        "lost.",
    )
    recorder_dir: str = _setting(
        "", MAYBE_TEXT,
        "Directory for these files; by default, recorder in dlq_spool_dir.",
    )
    restore_unacked: bool = _setting(
        True, BOOLEAN,
        "Whether a worker on Redis or Amazon SQS renews the visibility timeout of the messages that it has "
        "received and not acknowledged, and whether another worker on the machine gives them back at once "
        "when it was killed. Giving back needs dlq_recorder; does nothing on other brokers.",
    )
    search_values: int = _setting(
        24, whole(0, 1_000),
        "How many values of a letter's arguments are kept for searches by value, in addition to those of "
        "its message. 0 for none, also not of its message.",
    )
    search_redacted_key: str = _setting(
        "", MAYBE_TEXT,
        "A secret with which hashes of redacted arguments are made, so that --arg finds their letters; the "
        "values are not kept. Empty for none.",
    )
    log_lines: int = _setting(
        50, whole(0, 1_000),
        "How many log lines of a run are kept with its letter, 8 kB at most: warnings and errors first. "
        "0 for none.",
    )
    stall_after: float = _setting(
        300.0, number(0.0, 86_400, "seconds"),
        "How long a worker may receive nothing, while messages wait in its queues and it has free slots. "
        "After that it counts as stalled. 0 for no watch.",
    )
    # The fewest attempts with which, from this base, an outage of two minutes exhausts less than a third of
    # the tasks that need the service: 6 %; with eight attempts 45 %. A restart of half a minute exhausts none
    # of 10,000. Each further attempt would double the time until a failure that does not pass is a letter:
    # half of them are within 4 minutes, all within 9 (tests/unit/retry/test_outage.py).
    max_attempts: int = _setting(
        9, whole(1, 10_000),
        "Number of runs of a task, the first included; a task's max_retries overrides it.",
    )
    retry_base: float = _setting(
        2.0, number(0.0, 86_400, "seconds"),
        "Upper bound of the first wait; it doubles with each attempt. A task's retry_backoff overrides it.",
    )
    # Nine attempts do not reach it. With more, it bounds the time for which a service is back unnoticed.
    retry_cap: float = _setting(
        300.0, number(0.0, 86_400, "seconds"),
        "Upper bound of every wait; a task's retry_backoff_max overrides it.",
    )
    retry_window: float = _setting(
        86_400.0, number(1.0, 31_536_000, "seconds"),
        "No attempt starts later than this after the first failure; a task's dlq_retry_window overrides "
        "it.",
    )
    retry_after_max: float = _setting(
        300.0, number(0.0, 86_400, "seconds"),
        "The longest Retry-After that is obeyed; a longer one exhausts the task at once.",
    )
    retry_budget: float | None = _setting(
        None, SHARE,
        "Retries of a task that a process may make per first run, such as 0.2 for 20 %; beyond it, a "
        "transient failure becomes a letter at once. None for no limit; a task's dlq_retry_budget "
        "overrides it.",
    )
    retry_budget_floor: int = _setting(
        3, whole(0, 1_000_000),
        "Retries of a task within ten seconds that a process may always make; a task's "
        "dlq_retry_budget_floor overrides it.",
    )
    park_after: float = _setting(
        60.0, number(1.0, 86_400, "seconds"),
        "A retry with a longer wait than this is parked in the store; Celery would keep it in the memory "
        "of a worker. At most half of the broker's visibility timeout, and 15 minutes on RabbitMQ.",
    )
    unsent: str = _setting(
        "raise", UNSENT,
        "What delay() does if the broker does not take a message: 'raise' raises the error, as in Celery; "
        "'store' keeps the message in the store, and a worker sends it once the broker answers; 'commit', in "
        "addition, writes the message in the open transaction of a session or of Django, and sends it after "
        "the commit. A task's dlq_unsent overrides it.",
    )
    unsent_after: float = _setting(
        2.0, number(0.1, 60, "seconds"),
        "How long the broker is tried before a message is kept in the store; see dlq_unsent.",
    )
    breaker_failures: int = _setting(
        0, whole(0, 1_000_000),
        "Transient failures of a task within dlq_breaker_window, counted over all workers, after which its "
        "messages are parked instead of run; 0 for never. A task's dlq_breaker_failures overrides it.",
    )
    breaker_streak: int = _setting(
        0, whole(0, 1_000_000),
        "Failed runs of a task of any kind, without a success between them, within dlq_breaker_window, "
        "after which a worker holds its messages instead of running them; 0 for never. A task's "
        "dlq_breaker_streak overrides it.",
    )
    breaker_window: float = _setting(
        60.0, number(0.1, 86_400, "seconds"),
        "Time window in which dlq_breaker_failures and dlq_breaker_streak are counted; a task's "
        "dlq_breaker_window overrides it.",
    )
    breaker_recovery: float = _setting(
        30.0, number(0.1, 3_600, "seconds"),
        "How long an open circuit waits before one message is tried; it doubles with each failed try, up "
        "to ten times this value. A task's dlq_breaker_recovery overrides it.",
    )
    transient: Sequence[Any] = _setting(
        (), EXCEPTIONS,
        "Exceptions that are transient; they come before the built-in rules.",
    )
    terminal: Sequence[Any] = _setting(
        (), EXCEPTIONS,
        "Exceptions that are terminal; they come before the built-in rules.",
    )
    rules: Sequence[Any] = _setting(
        (), RULES,
        "Rule objects, asked in order after dlq_terminal and dlq_transient.",
    )
    judge_by_name: bool = _setting(
        False, BOOLEAN,
        "Whether the names of your own exception classes, such as PaymentTimeout, may decide where nothing "
        "else does. Those of installed libraries always may.",
    )
    fingerprint: object | None = _setting(
        None, MAYBE_CALLABLE,
        "Recipe for the groups of failures: a function, or its dotted name, that gets a "
        "celery_dlq.FingerprintInput and returns a string or a list of strings. Failures with the same "
        "result are in one group. If it returns None or fails, the built-in recipe is used.",
    )
    hooks: Mapping[str, Sequence[Any]] | None = _setting(
        None, HOOKS,
        "Functions that are called when something happens to letters: lists of them by the kind of event. "
        "They are called in the process that wrote to the store, in threads of their own.",
    )
    routes: Sequence[Any] = _setting(
        (), named_objects("Route"),
        "Route objects: letters that belong together, and the owner, tags and hooks of each route. A "
        "letter is on the first route that takes its last failure.",
    )
    handler_queue: str = _setting(
        "dlq-handlers", TEXT,
        "Queue of the messages that call repair handlers. At least one worker must consume it, such as one "
        "that was started with -Q dlq-handlers.",
    )
    redact: Sequence[str] = _setting(
        (), NAMES,
        "Additional parts of names whose values are hidden wherever letters are shown.",
    )
    encryption_keys: Any = _setting(  # noqa: RUF009 - it makes a field
        None, ENCRYPTION_KEYS,
        "Keys that encrypt the contents of letters: a dict of keys of 32 bytes, in base64, by name, or a "
        "function, or its dotted name, that returns one. The first key encrypts, all decrypt. None for no "
        "encryption. Needs the extra crypto.",
    )
    subject: object | None = _setting(
        None, MAYBE_CALLABLE,
        "Function, or its dotted name, that gets the args and kwargs of a message and returns the person "
        "that it is about, such as a customer's number, or None. The letter is encrypted with a key of that "
        "person, which dlq forget --subject destroys. Needs dlq_encryption_keys.",
    )
    unpacked_max_size: int = _setting(
        134_217_728, whole(1_048_576, 2**50),
        "Maximum size of a decompressed message, in bytes. A larger message does not run: it becomes a "
        "letter at once, and is kept as it came.",
    )
    max_deliveries: int = _setting(
        3, whole(1, 1_000),
        "Runs of a message that may kill its worker process, the first included; after these, the message "
        "becomes a letter. With 1 or 2, every message that is delivered again runs alone in its worker. A "
        "message that its task gives back by Reject(requeue=True) has 30 times as many runs.",
    )
    release: str = _setting("", MAYBE_TEXT, "Release of your code, stored with each letter.")
    events: bool = _setting(
        True, BOOLEAN,
        "Whether a worker that sends task events also sends task-dead-lettered and task-redriven, which "
        "Flower's list of tasks shows.",
    )
    redrive_trace: str = _setting(
        "link", REDRIVE_TRACE,
        "How a redrive is traced by OpenTelemetry: 'link' begins a new trace, with a link to the run that "
        "failed; 'continue' stays in the trace of that run.",
    )
    trace_url: str = _setting(
        "", TRACE_URL,
        "Address of a trace, such as https://jaeger.example/trace/{trace_id}, to which letters link. Empty "
        "for none.",
    )
    worker_metrics: bool = _setting(
        False, BOOLEAN,
        "Whether a worker counts letters, retries and writes on the default registry of prometheus_client, "
        "which you serve. Needs the extra prometheus.",
    )
    roles: Mapping[str, Sequence[str]] | None = _setting(
        None, ROLES_OF_USERS,
        "Who may do what in Flower's tab and by REST: lists of users by role. Every role includes read. None "
        "lets everyone who may log in do everything.",
    )
    auto_redrive: Sequence[Any] = _setting(
        (), named_objects("AutoRedrive"),
        "AutoRedrive objects: letters that workers redrive by themselves. If several match a letter, the "
        "first one takes it.",
    )
    auto_redrive_budget: int = _setting(
        10_000, whole(1, 1_000_000_000),
        "The most letters that all automatic redrives together may send within an hour.",
    )
    redrive_queues: Sequence[str] | None = _setting(
        None, MAYBE_NAMES,
        "Queues to which a redrive of this app may send: a list of names, or of patterns such as 'shop.*'. "
        "None for all.",
    )
    outcome_timeout: float = _setting(
        86_400.0, number(1.0, 31_536_000, "seconds"),
        "How long the outcome of a redriven message is awaited. After that it counts as unknown; an "
        "outcome that comes later still counts. Set it longer than a task may take with all its retries.",
    )
    approval: Any = _setting(  # noqa: RUF009 - it makes a field
        None, APPROVAL,
        "An Approval object: which redrives, deletions, erasures and edits wait until a second person "
        "approves them. None for none, apart from redrives of tasks with dlq_redrive = 'approve'.",
    )
    cli_acts: str = _setting(
        "do", CLI_ACTS,
        "What the command line does with an act for which dlq_approval may want a second person: 'do' does "
        "it, unless dlq_approval wants one; 'propose' always makes a request of it.",
    )
    retention: Any = _setting(  # noqa: RUF009 - it makes a field
        None, RETENTION,
        "A Retention object: how long closed letters, history and the audit are kept. None keeps letters "
        "for ever, and the rest for a year.",
    )
    archive_url: str | None = _setting(
        None, ARCHIVE_URL,
        "Place to which closed letters are moved before they are deleted from the store: a directory, or a "
        "folder in S3, Google Cloud Storage or Azure. Needs the extra archive, and the fsspec package of "
        "the place. None for no archive.",
    )
    # fmt: on

    @property
    def namespaces(self) -> Sequence[str] | None:
        """The namespaces that this app sees; None for all."""
        if self.namespace == "*":
            return None
        return (self.namespace,) if isinstance(self.namespace, str) else tuple(self.namespace)

    @property
    def own_namespace(self) -> str:
        """The namespace of this app.

        :raises NamespaceError: it sees several.
        """
        return own(self.namespaces)

    @classmethod
    def from_app(cls, app: Any) -> Settings:
        """The settings of a Celery app.

        :raises SettingsError: an unknown key, or a value that is not allowed.
        """
        return read_settings(app).valid()

    @classmethod
    def from_values(
        cls, values: Mapping[str, Any], environ: Mapping[str, str] | None = None
    ) -> Settings:
        """Settings from values by name, without the ``dlq_`` prefix; each missing one has its default.

        :raises SettingsError: a value that is not allowed.
        """
        return ReadSettings(*read_values(cls, values, environ or {})).valid()


def own(namespaces: Sequence[str] | None) -> str:
    """The namespace into which a process that sees these writes; None stands for all.

    :raises NamespaceError: it sees several.
    """
    if namespaces is None or len(namespaces) != 1:
        raise NamespaceError
    return namespaces[0]


@dataclass(frozen=True)
class ReadSettings:
    """The settings of an app, valid or not."""

    #: With the default in place of each invalid value.
    settings: Settings
    #: One text for each error. It ends with the next step.
    problems: tuple[str, ...]

    def valid(self) -> Settings:
        """The settings, if there is no error in them.

        :raises SettingsError: with all errors.
        """
        if self.problems:
            raise SettingsError(" ".join(self.problems))
        return self.settings


def read_settings(app: Any) -> ReadSettings:
    """The settings of a Celery app, as far as they are valid. Raises nothing."""
    names = allowed_values(Settings)
    given = given_settings(app.conf)
    unknown = [
        unknown_setting(name, key, names)
        for name, key in sorted(given.items())
        if name not in names
    ]
    values = {name: app.conf.get(PREFIX + name) for name in given if name in names}
    settings, problems = read_values(Settings, values, os.environ)
    return ReadSettings(settings, (*unknown, *problems))


#: Allowed values of options that only a task has.
_TASK_OPTIONS = {"tags": NAMES, "redrive": REDRIVE_OPTION}


def check_option(task: str, option: str, value: Any) -> None:
    """Check the value of an option of ``task``: one that overrides a setting, or one that only a task
    has. ``option`` is its full name.

    :raises SettingsError: a value that is not allowed.
    """
    name = option.removeprefix(PREFIX)
    problem = problem_of(name, value, (allowed_values(Settings) | _TASK_OPTIONS)[name])
    if problem:
        raise SettingsError(f"Task {task}: {problem}")


def is_configured(app: Any) -> bool:
    """Whether a Celery app was given a dead-letter queue: by a setting, by the environment, or by a task
    on ``DLQTask``. Any other app has none, although all settings have defaults."""
    return (
        "dead_letter_queue" in vars(app)
        or bool(os.environ.get(STORE_URL_VARIABLE))
        or bool(given_settings(app.conf))
    )
