"""When an automatic redrive may run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, time, timedelta, timezone
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from celery_dlq.base.known import names_its_fields
from celery_dlq.errors import SettingsError, page
from celery_dlq.settings.validation import number

_DOCS = page("auto-redrive")
_EVERY_S = number(1.0, 31_536_000.0)


@names_its_fields(SettingsError)
@dataclass(frozen=True, kw_only=True)
class Timetable:
    """The times at which an automatic redrive runs. Times of day are those of ``timezone``.

    :raises SettingsError: a value that is not allowed. The error names it.
    """

    #: Seconds from one run to the next.
    every_s: float = 300.0
    #: A cron expression, instead of ``every_s``. A time that was missed, because no worker ran, is made up
    #: for once.
    cron: str = ""
    #: The hours in which it may send, such as ``"22:00-06:00"``; empty for all.
    hours: str = ""
    #: Hours in which it does not send, although ``hours`` allows it.
    quiet: tuple[str, ...] = ()
    #: The name of a time zone of the IANA database.
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        problems = list(_problems(self))
        if problems:
            raise SettingsError(
                f"The timetable of an automatic redrive is not valid. {' '.join(problems)} See {_DOCS}."
            )

    def next_start(self, last: datetime | None, now: datetime) -> datetime:
        """The first time after the run at ``last`` at which the next one may start; ``now`` if it has not
        run yet. The hours are not looked at."""
        if last is None or last > now:
            # The clock was set back. Waiting for the old time might take long.
            return now
        if not self.cron:
            return last + timedelta(seconds=self.every_s)
        local = last.astimezone(self._zone)
        return next(CronSim(self.cron, local)).astimezone(timezone.utc)

    def why_closed(self, now: datetime) -> str:
        """Why nothing may be sent at ``now``; empty if it may."""
        local = now.astimezone(self._zone)
        if self.hours and not _read_hours(self.hours).include(local.time()):
            return f"it is outside its hours ({self.hours} {self.timezone})"
        for window in self.quiet:
            if _read_hours(window).include(local.time()):
                return f"it is a quiet time ({window} {self.timezone})"
        return ""

    @cached_property
    def _zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)


@dataclass(frozen=True)
class _Hours:
    """Hours of a day; they may include midnight. The start is included, the end is not."""

    start: time
    end: time

    def include(self, moment: time) -> bool:
        if self.start < self.end:
            return self.start <= moment < self.end
        return moment >= self.start or moment < self.end


def _read_hours(text: str) -> _Hours:
    start, end = (time.fromisoformat(part.strip()) for part in text.split("-"))
    if start == end:
        raise ValueError("the two times are the same")
    return _Hours(start, end)


def _problems(when: Timetable) -> Iterator[str]:
    if not _EVERY_S.accepts(when.every_s):
        yield f"every_s must be {_EVERY_S.words}, not {when.every_s!r}."
    if not _is_zone(when.timezone):
        yield (
            f"timezone must be the name of a time zone, such as 'Europe/Berlin', not {when.timezone!r}."
        )
    if when.cron:
        yield from _cron_problems(when.cron)
    if when.hours:
        yield from _window_problems("hours", when.hours)
    if isinstance(when.quiet, str):
        yield f"quiet must be a list of hours, not {when.quiet!r}."
        return
    for window in when.quiet:
        yield from _window_problems("quiet", window)


def _is_zone(name: Any) -> bool:
    try:
        return bool(ZoneInfo(name))
    except Exception:  # noqa: BLE001 - it raises many kinds for names that are not zones
        return False


def _cron_problems(text: Any) -> Iterator[str]:
    try:
        next(CronSim(text, datetime(2026, 1, 1, tzinfo=timezone.utc)))
    except StopIteration:
        yield f"cron = {text!r} names a time that never comes."
    except (CronSimError, AttributeError) as error:
        yield (
            f"cron = {text!r} is not a cron expression ({error}); use minute, hour, day, month and "
            "weekday, such as '*/10 22-23 * * 1-5'."
        )


def _window_problems(name: str, text: Any) -> Iterator[str]:
    try:
        _read_hours(text)
    except (ValueError, AttributeError, TypeError) as error:
        yield f"{name} must be hours like '22:00-06:00', not {text!r} ({error})."
