"""Every ``dlq_*`` setting: its default, what is allowed, and the one place that reads it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from celery_dlq.allowed import (
    BOOLEAN,
    EXCEPTIONS,
    HISTORY,
    HOOKS,
    MAYBE_TEXT,
    NAMES,
    RULES,
    SHARE,
    STATE,
    TEXT,
    Allowed,
    number,
    whole,
)
from celery_dlq.errors import SettingsError

#: Overrides ``dlq_store_url``, as ``CELERY_BROKER_URL`` overrides ``broker_url``.
STORE_URL_VARIABLE = "CELERY_DLQ_STORE_URL"

_PREFIX = "dlq_"
_DOCS = "docs/reference/settings.md"


def _setting(default: Any, allowed: Allowed, text: str) -> Any:
    return field(default=default, metadata={"allowed": allowed, "text": text})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The validated ``dlq_*`` settings of one app. Durations are in seconds."""

    store_url: str = _setting(
        "sqlite:///celery_dlq.sqlite3",
        TEXT,
        "SQLAlchemy URL of the dead-letter store: SQLite, PostgreSQL or MySQL/MariaDB. "
        f"The environment variable {STORE_URL_VARIABLE} overrides it.",
    )
    store_timeout: float = _setting(
        5.0,
        number(0.1, 300, "seconds"),
        "How long the store may take to connect, to give a lock, or for one statement; on PostgreSQL, a "
        "statement that reads large bodies has a second more for each MiB. A letter that is not written "
        "after twice that goes to the spool.",
    )
    spool_dir: str = _setting(
        "celery_dlq_spool",
        TEXT,
        "Directory for letters that the store did not take; a later worker drains it.",
    )
    spool_max_size: int = _setting(
        1_073_741_824,
        whole(1_048_576, 2**50),
        "Bytes that the files in dlq_spool_dir may take together; beyond it, whole letters go to the log.",
    )
    queue_size: int = _setting(
        10_000,
        whole(1, 1_000_000),
        "Letters that may wait in a worker for the store; beyond it, the worker starts no further tasks "
        "on DLQTask until some are written.",
    )
    batch_size: int = _setting(500, whole(1, 5_000), "Letters written in one transaction.")
    ingest_queues: Sequence[str] = _setting(
        (),
        NAMES,
        "Dead-letter queues of the broker that each worker brings into the store; dlq ingest does it once.",
    )
    max_attempts: int = _setting(
        5,
        whole(1, 10_000),
        "Runs of a task, the first included; a task's max_retries overrides it.",
    )
    retry_base: float = _setting(
        0.2,
        number(0.0, 86_400, "seconds"),
        "Upper bound of the first wait; it doubles with each attempt. A task's retry_backoff overrides it.",
    )
    retry_cap: float = _setting(
        30.0,
        number(0.0, 86_400, "seconds"),
        "Upper bound of every wait; a task's retry_backoff_max overrides it.",
    )
    retry_window: float = _setting(
        86_400.0,
        number(1.0, 31_536_000, "seconds"),
        "No attempt starts later than this after the first failure; a task's dlq_retry_window overrides it.",
    )
    retry_after_max: float = _setting(
        300.0,
        number(0.0, 86_400, "seconds"),
        "The longest Retry-After that is waited for; a longer one exhausts the task at once.",
    )
    restart_on_new_error: bool = _setting(
        False,
        BOOLEAN,
        "Whether a transient failure of another type than the one before begins the schedule anew: "
        "attempts and waits count from 1. The retry window does not begin anew.",
    )
    retry_budget: float | None = _setting(
        None,
        SHARE,
        "Retries of a task that a process may make for each first run of it, such as 0.2 for 20 %; over it, "
        "a transient failure is a letter at once. None for no limit; a task's dlq_retry_budget overrides it.",
    )
    retry_budget_floor: int = _setting(
        3,
        whole(0, 1_000_000),
        "Retries of a task within ten seconds that a process may make in any case; a task's "
        "dlq_retry_budget_floor overrides it.",
    )
    park_after: float = _setting(
        60.0,
        number(1.0, 86_400, "seconds"),
        "A retry that has to wait longer waits in the store instead of the broker, or rather in the memory "
        "of the worker that Celery lets take it. At most half of the broker's visibility timeout, and "
        "15 minutes on RabbitMQ.",
    )
    brake_failures: int = _setting(
        0,
        whole(0, 1_000_000),
        "Failed runs of one task within dlq_brake_window, retried ones too, with no success of it between "
        "them, after which a worker stops running it; 0 for never.",
    )
    brake_window: float = _setting(
        60.0, number(0.1, 86_400, "seconds"), "Time within which dlq_brake_failures count."
    )
    brake_pause: float = _setting(
        30.0,
        number(0.1, 86_400, "seconds"),
        "How long a braked task pauses before one message is tried; it doubles with each that fails.",
    )
    brake_pause_max: float = _setting(
        600.0, number(0.1, 86_400, "seconds"), "Upper bound of that pause."
    )
    brake_hold: int = _setting(
        1_000,
        whole(0, 10_000),
        "Messages of braked tasks that a worker holds beyond its prefetch limit, so that other tasks in "
        "the same queue go on.",
    )
    brake_hold_time: float = _setting(
        600.0,
        number(1.0, 86_400, "seconds"),
        "How long a message is held before it goes back to the broker; at most half of the broker's "
        "visibility timeout.",
    )
    breaker_failures: int = _setting(
        0,
        whole(0, 1_000_000),
        "Transient failures of one task within dlq_breaker_window, over all workers, after which its "
        "messages are parked instead of run; 0 for never. A task's dlq_breaker_failures overrides it.",
    )
    breaker_window: float = _setting(
        60.0,
        number(0.1, 86_400, "seconds"),
        "Time within which dlq_breaker_failures count; a task's dlq_breaker_window overrides it.",
    )
    breaker_recovery: float = _setting(
        30.0,
        number(0.1, 3_600, "seconds"),
        "How long an open circuit waits before one message is tried; it doubles with each that fails, up "
        "to ten times as long. A task's dlq_breaker_recovery overrides it.",
    )
    transient: Sequence[Any] = _setting(
        (), EXCEPTIONS, "Exceptions that are transient, before the built-in rules are asked."
    )
    terminal: Sequence[Any] = _setting(
        (), EXCEPTIONS, "Exceptions that are terminal, before the built-in rules are asked."
    )
    rules: Sequence[Any] = _setting(
        (), RULES, "Rule objects, asked in order after dlq_terminal and dlq_transient."
    )
    on_dead_letter: Sequence[Any] = _setting(
        (),
        HOOKS,
        "Called with every letter that is stored, dead for the first time or again. Hooks are called in the "
        "process that wrote to the store, in threads of their own.",
    )
    on_new_group: Sequence[Any] = _setting(
        (), HOOKS, "Called with a group when its first letter is stored."
    )
    on_regression: Sequence[Any] = _setting(
        (), HOOKS, "Called with a group that is back after it was resolved or ignored."
    )
    on_operation_aborted: Sequence[Any] = _setting(
        (), HOOKS, "Called with an operation that its guard has ended."
    )
    on_redriven: Sequence[Any] = _setting(
        (), HOOKS, "Called with every letter whose message the broker has again."
    )
    on_resolved: Sequence[Any] = _setting(
        (), HOOKS, "Called with every letter whose message succeeded."
    )
    redact: Sequence[str] = _setting(
        (), NAMES, "Further parts of key names whose values are hidden in displayed arguments."
    )
    max_deliveries: int = _setting(
        3,
        whole(1, 1_000),
        "Runs of a message whose worker dies under it, the first included; then it is a letter. "
        "With 1 or 2, every message that comes back runs alone in its worker.",
    )
    release: str = _setting("", MAYBE_TEXT, "Release of your code, kept with each letter.")
    events: bool = _setting(
        True,
        BOOLEAN,
        "Whether a worker that sends task events also sends task-dead-lettered and task-redriven, which "
        "Flower's list of tasks shows.",
    )
    event_state: str | None = _setting(
        "DEAD-LETTERED",
        STATE,
        "State that monitors are to show for a dead letter; REDRIVEN follows when a worker has its message "
        "again. None to leave both to Celery, which shows FAILURE.",
    )
    worker_metrics: bool = _setting(
        False,
        BOOLEAN,
        "Whether a worker counts letters, retries and writes on the default registry of prometheus_client, "
        "for you to serve. Needs the extra prometheus.",
    )
    redrive_batch_size: int = _setting(
        2_000,
        whole(1, 5_000),
        "Letters that a redrive claims, and sends, in one step, at most: the first steps are smaller, and "
        "so are all where they would take more than a quarter of dlq_claim_lease.",
    )
    claim_lease: float = _setting(
        120.0,
        number(1.0, 86_400, "seconds"),
        "How long a redrive holds a letter before it is taken for dead and the letter is free again.",
    )
    outcome_timeout: float = _setting(
        86_400.0,
        number(1.0, 31_536_000, "seconds"),
        "How long the outcome of a redriven message is awaited; after that it is unknown, until it comes. "
        "Longer than its task may take, with all its retries.",
    )
    history_retention: float | None = _setting(
        365 * 86_400.0,
        HISTORY,
        "How long it is remembered what people did, what became of operations that ended, how messages "
        "of closed letters were changed, and how many letters died when; None for ever. Workers forget what "
        "is older.",
    )

    @classmethod
    def from_app(cls, app: Any) -> Settings:
        """The settings of a Celery app.

        :raises SettingsError: an unknown key, or a value that is not allowed.
        """
        names = {item.name for item in fields(cls)}
        given = _given(app.conf)
        for name, key in sorted(given.items()):
            if name not in names:
                raise SettingsError(_unknown(name, key, names))
        values = {name: app.conf.get(_PREFIX + name) for name in given}
        return cls.from_values(values, os.environ)

    @classmethod
    def from_values(
        cls, values: Mapping[str, Any], environ: Mapping[str, str] | None = None
    ) -> Settings:
        """Settings from values by name, without the ``dlq_`` prefix; missing ones take their default.

        :raises SettingsError: a value that is not allowed.
        """
        chosen = dict(values)
        if environ and environ.get(STORE_URL_VARIABLE):
            chosen["store_url"] = environ[STORE_URL_VARIABLE]
        for item in fields(cls):
            if item.name in chosen:
                _check(item.name, chosen[item.name], item.metadata["allowed"])
        settings = cls(**chosen)
        settings._check_together()
        return settings

    def _check_together(self) -> None:
        if self.brake_pause > self.brake_pause_max:
            raise SettingsError(
                f"dlq_brake_pause ({self.brake_pause:g} s) is above dlq_brake_pause_max "
                f"({self.brake_pause_max:g} s); raise the maximum or lower the pause. See {_DOCS}."
            )
        if self.retry_base > self.retry_cap:
            raise SettingsError(
                f"dlq_retry_base ({self.retry_base:g} s) is above dlq_retry_cap ({self.retry_cap:g} s); "
                f"raise the cap or lower the base. See {_DOCS}."
            )


#: What options of tasks may be that are no settings.
_OF_TASKS = {"tags": NAMES}


def is_configured(app: Any) -> bool:
    """Whether a Celery app was given a dead-letter queue: by a setting, by the environment, or by a task
    on ``DLQTask``. Any other app has none, though all settings have defaults."""
    return (
        "dead_letter_queue" in vars(app)
        or bool(os.environ.get(STORE_URL_VARIABLE))
        or bool(_given(app.conf))
    )


def check_option(task: str, option: str, value: Any) -> None:
    """Check what ``task`` says for ``option``, prefix included: in place of the setting, or of its own.

    :raises SettingsError: a value that is not allowed.
    """
    name = option.removeprefix(_PREFIX)
    settings = {item.name: item.metadata["allowed"] for item in fields(Settings)}
    allowed = (settings | _OF_TASKS)[name]
    try:
        _check(name, value, allowed)
    except SettingsError as error:
        raise SettingsError(f"Task {task}: {error}") from None


def _given(conf: Any) -> dict[str, str]:
    """The settings that ``conf`` holds: name without prefix to the key as the user wrote it. Under a
    namespace (Django: ``CELERY_DLQ_…``) Celery leaves the keys as they are and translates look-ups."""
    keys = [str(key) for key in conf]  # loads a configuration that is still pending, and its prefix
    namespace = str(getattr(conf, "prefix", None) or "").lower()
    found = {}
    for key in keys:
        name = key.lower().removeprefix(namespace)
        if name.startswith(_PREFIX):
            found[name.removeprefix(_PREFIX)] = key
    return found


def _unknown(name: str, key: str, names: set[str]) -> str:
    near = difflib.get_close_matches(name, sorted(names), n=1)
    if not near:
        return f"Unknown setting {key!r}: it is not a setting of celery_dlq. See {_DOCS}."
    meant = near[0].upper() if key.isupper() else near[0]
    beginning = key[: len(key) - len(name)]
    return f"Unknown setting {key!r}: did you mean {beginning + meant!r}? See {_DOCS}."


def _check(name: str, value: Any, allowed: Allowed) -> None:
    try:
        accepted = allowed.accepts(value)
    except Exception as error:
        raise SettingsError(f"{_PREFIX}{name} cannot be read: {error}. See {_DOCS}.") from error
    if not accepted:
        shown = "********" if name == "store_url" else repr(value)
        raise SettingsError(f"{_PREFIX}{name} = {shown} is not {allowed.words}. See {_DOCS}.")
