"""The log lines of a run, for its letter. They are kept in the process that runs the body. A run that logs
nothing costs nothing."""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from itertools import chain
from typing import Any, NamedTuple

from celery.utils.log import LoggingProxy

from celery_dlq.base.redact import Redactor, clip, safe_message, safe_text
from celery_dlq.settings import Settings
from celery_dlq.worker.failure import type_name

#: The most characters of the lines of one run, and of one line.
TEXT_LIMIT, LINE_LIMIT = 8_192, 2_048

#: In a worker, Celery's logger of tasks passes nothing on to the root logger, unless Celery's signal
#: ``setup_logging`` has a receiver.
_LOGGERS = (logging.getLogger(), logging.getLogger("celery.task"))

#: Celery's logger of everything that is printed.
_PRINTED = "celery.redirected"

#: Characters for a remark about lines that were not kept.
_REMARK = 40


class _Line(NamedTuple):
    #: Its place among all lines of the run, from 1.
    number: int
    created: float
    level: str
    logger: str
    message: str


class RunLog:
    """The lines of one run that are worth most: warnings and errors, then those that it printed, then the
    others; of each kind the first and the last ones.

    :param lines: how many are kept.
    :param redactor: hides the secrets in them.
    """

    def __init__(self, lines: int, redactor: Redactor) -> None:
        self._most, self._count, self._redactor = lines, 0, redactor
        self._kinds: tuple[list[_Line], ...] = ([], [], [])
        #: Whether the end of the last printed line is still to come.
        self.is_printing: bool = False
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
            self._keep(record, clip(_message(record), LINE_LIMIT))
        finally:
            self._is_adding = False

    def _keep(self, record: logging.LogRecord, message: str) -> None:
        is_printed = record.name == _PRINTED
        lines = self._kinds[1 if is_printed else 2 * (record.levelno < logging.WARNING)]
        if is_printed and self.is_printing and len(lines[-1].message) < LINE_LIMIT:
            message = clip(lines[-1].message + message, LINE_LIMIT)
            lines[-1] = lines[-1]._replace(message=message)
            return
        self.is_printing |= is_printed
        self._count += 1
        lines.append(_Line(self._count, record.created, record.levelname, record.name, message))
        if len(lines) > self._most:
            del lines[self._most // 2]

    def text(self) -> str:
        """The lines by time, whole and without secrets, at most :data:`TEXT_LIMIT` characters. A remark
        stands wherever lines are missing."""
        kept, size = dict[int, str](), _REMARK
        for line in chain.from_iterable(map(_outside_in, self._kinds)):
            hidden = self._redactor.text(_shown(line))
            is_beside = line.number - 1 in kept or line.number + 1 in kept
            size += len(hidden) + 1 + (0 if is_beside else _REMARK)
            if len(kept) == self._most or size > TEXT_LIMIT:
                break
            kept[line.number] = hidden
        return "\n".join(_with_remarks(kept, self._count))


class RunLogHandler(logging.Handler):
    """Gives each line to the run in whose context it is logged.

    :param here: the ``RunState`` of this context, or of the last run in it; None if there was none.
    """

    def __init__(self, settings: Settings, redactor: Redactor, here: Callable[[], Any]) -> None:
        super().__init__(logging.INFO)
        self._lines, self._redactor, self._here = settings.log_lines, redactor, here
        self._write = LoggingProxy.write

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
        LoggingProxy.write = lambda proxy, data: self._print(proxy, data)

    def _print(self, proxy: LoggingProxy, data: Any) -> Any:
        # Celery logs each text that print() writes, but not the ends of lines.
        size, run = self._write(proxy, data), self._here()
        if run is not None and run.log is not None and str(data).endswith("\n"):
            run.log.is_printing = False
        return size

    def leave(self) -> None:
        """Listen no more."""
        for logger in _LOGGERS:
            logger.removeHandler(self)
        LoggingProxy.write = self._write


def _outside_in(lines: Sequence[_Line]) -> list[_Line]:
    """The last line, the first one, the last but one, and so on."""
    last = len(lines) - 1
    return [lines[at] for at in sorted(range(last, -1, -1), key=lambda at: min(at, last - at))]


def _with_remarks(kept: dict[int, str], count: int) -> Iterator[str]:
    before = 0
    for number in [*sorted(kept), count + 1]:
        if missing := number - before - 1:
            yield f"({missing:,} {'line was' if missing == 1 else 'lines were'} not kept)"
        if number in kept:
            yield kept[number]
        before = number


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
