"""The last log lines of a run, for its letter. They are kept in the process that runs the body. A run that
logs nothing costs nothing."""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections import deque
from collections.abc import Callable
from datetime import datetime, timezone
from typing import NamedTuple, Protocol

from celery_dlq.redact import Redactor, clip, safe_message, safe_text
from celery_dlq.settings import Settings
from celery_dlq.worker.failure import type_name

#: The most characters of the lines of one run, and of one line.
TEXT_LIMIT, LINE_LIMIT = 8_192, 2_048

#: In a worker, Celery's logger of tasks passes nothing on to the root logger, unless Celery's signal
#: ``setup_logging`` has a receiver.
_LOGGERS = (logging.getLogger(), logging.getLogger("celery.task"))


class Run(Protocol):
    """A run, as far as it is known here."""

    #: None until it logs.
    log: RunLog | None


class _Line(NamedTuple):
    created: float
    level: str
    logger: str
    message: str


class RunLog:
    """The last lines of one run.

    :param lines: how many are kept.
    :param redactor: hides the secrets in them.
    """

    def __init__(self, lines: int, redactor: Redactor) -> None:
        self._kept, self._count, self._redactor = deque[_Line](maxlen=lines), 0, redactor
        self._is_adding = False
        # Not the record itself, which may have an exception with all its frames.
        self._newest: Callable[[], logging.LogRecord | None] = lambda: None

    def add(self, record: logging.LogRecord) -> None:
        """Keep the line of ``record``, once, even if several loggers pass it on. An argument may log a line
        while it is formatted; that line is left out."""
        if self._is_adding or record is self._newest():
            return
        self._is_adding, self._newest = True, weakref.ref(record)
        try:
            # The arguments may change until the run fails.
            message = clip(_message(record), LINE_LIMIT)
            self._kept.append(_Line(record.created, record.levelname, record.name, message))
            self._count += 1
        finally:
            self._is_adding = False

    def text(self) -> str:
        """The lines, the last ones whole, at most :data:`TEXT_LIMIT` characters, without secrets."""
        kept, size = deque[str](), 0
        for line in reversed(self._kept):
            hidden = self._redactor.text(_shown(line))
            size += len(hidden) + 1
            if size > TEXT_LIMIT:
                break
            kept.appendleft(hidden)
        left_out = self._count - len(kept)
        if left_out:
            kept.appendleft(f"({left_out} earlier lines were not kept)")
        return "\n".join(kept)


class RunLogHandler(logging.Handler):
    """Gives each line to the run in whose context it is logged.

    :param here: the run in this context, or the last one; None if there was none.
    """

    def __init__(
        self, settings: Settings, redactor: Redactor, here: Callable[[], Run | None]
    ) -> None:
        super().__init__(settings.log_level)
        self._lines, self._redactor, self._here = settings.log_lines, redactor, here

    def createLock(self) -> None:
        """Make no lock. A run is in one thread, and another thread could hold a lock when a process forks."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        """Keep the line of ``record``. Logging's own ``handle`` would take a lock. This one never raises."""
        run = self._here()
        if run is not None:
            run.log = run.log or RunLog(self._lines, self._redactor)
            with contextlib.suppress(Exception):
                run.log.add(record)
        return True

    def join(self) -> None:
        """Listen from now on."""
        for logger in _LOGGERS:
            logger.addHandler(self)

    def leave(self) -> None:
        """Listen no more."""
        for logger in _LOGGERS:
            logger.removeHandler(self)


def _shown(line: _Line) -> str:
    """``line`` as text. The further lines of its message are indented, so that none of them can pose as
    another one."""
    at = datetime.fromtimestamp(line.created, timezone.utc).isoformat(timespec="milliseconds")
    head = f"{at.replace('+00:00', 'Z')} {line.level} {line.logger}: "
    text = safe_text(clip(head + line.message, LINE_LIMIT))
    return "\n    ".join(text.splitlines())


def _message(record: logging.LogRecord) -> str:
    try:
        message = str(record.getMessage())
    except Exception as error:  # noqa: BLE001 - an argument may raise anything
        template = record.msg[:200] if isinstance(record.msg, str) else "a line"
        message = f"{template} (could not be formatted: {type_name(type(error))})"
    exc = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    if exc is None:
        return message
    return f"{message}\n{type_name(type(exc))}: {safe_message(exc)}"
