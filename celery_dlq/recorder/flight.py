"""The recorder of one worker process."""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from celery_dlq.base.codec import raw_body
from celery_dlq.base.sealing import Keyring
from celery_dlq.recorder.bodies import share, unshare
from celery_dlq.recorder.owner import OwnDirectory
from celery_dlq.recorder.segment import SUFFIX, Entry, Mark, Segment, facts_of, sealed, size_for
from celery_dlq.recorder.tags import Tags

logger: logging.Logger = logging.getLogger(__name__)

#: The default maximum size of the files of one process, in bytes.
MAX_SIZE = 256 << 20

#: The size of a file, unless one message is larger or the maximum size is small. A file is used again when
#: all its messages have ended, so a message that runs for hours keeps at most this much. A busy worker
#: goes through a file in about a second, before the kernel has written its pages, which would slow it down.
SEGMENT_SIZE = 1 << 20

#: A worker has at least this many files before it reaches its maximum size.
_FILES = 4

#: Seconds between two looks for messages that have been acknowledged, while no new ones come.
CONFIRM_S = 1.0

#: Seconds after an error until the recorder tries again.
PAUSE_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Uncovered:
    """Why messages run without a copy now."""

    why: str
    since: datetime
    #: Messages that could not be recorded since then.
    messages: int


class FlightRecorder:
    """Keeps the messages that this process has accepted and not ended, until they end.

    :param directory: the parent of the processes' directories; this one makes its own on first use.
    :param release: the release that this process runs.
    :param max_size: bytes that the files of this process may take.
    :param ring: encrypts the messages.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        worker: str,
        release: str = "",
        max_size: int = MAX_SIZE,
        ring: Keyring | None = None,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.directory: Path = Path(directory).absolute()
        self._worker, self._release = worker, release
        self._max_size, self._ring = max_size, ring
        self._segment_size = min(SEGMENT_SIZE, max_size // _FILES)
        self._now, self._monotonic = now, monotonic
        #: Messages that were recorded.
        self.recorded: int = 0
        #: Messages that were not recorded, because the files could not be written.
        self.uncovered: int = 0
        self._own: OwnDirectory | None = None
        self._tags: Tags | None = None
        self._segments: list[Segment] = []
        self._current: Segment | None = None
        #: Messages that the broker may not have forgotten yet.
        self._unconfirmed: list[tuple[Any, Entry]] = []
        self._made, self._trouble, self._again_at = 0, "", 0.0
        #: When the trouble began, and how many messages had not been recorded before.
        self._trouble_at, self._uncovered_before = 0.0, 0
        # Without an event loop, the threads of the pool accept messages.
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Make the directory, before the processes of the pool are made: they hold a lock in it. Never raises
        an error."""
        with self._lock:
            try:
                if self._own is None:
                    self._own = OwnDirectory(self.directory, self._worker, self._release)
                    share(self._own.path)
            except OSError as error:
                self._is_in_trouble(error)

    def tags(self, broker: str, longest: int) -> Tags | None:
        """The notes about messages that were received from ``broker`` and not acknowledged, without any; None
        if the directory could not be made.

        :param broker: a name of the broker, as it may be in names of files.
        :param longest: bytes of the longest note.
        """
        with self._lock:
            if self._tags is not None:
                self._tags.remove()
            self._tags = None
            if self._own is not None:
                self._tags = Tags(self._own.path, broker, longest, now=self._now)
            return self._tags

    def record(
        self, message: Any, task: str, pid: int | None, fields: Mapping[str, Any] | None = None
    ) -> Entry | None:
        """Record a kombu message, which ``pid`` of the pool is about to run. Never raises an error.

        :param fields: what Celery's headers would say, if the message's headers do not.
        :return: None if the message could not be recorded, which is counted and logged.
        """
        try:
            facts = facts_of(message, task, pid, self._now(), fields)
            body = raw_body(message.body, message.content_encoding)
            if self._ring is not None:
                facts, body = sealed(facts, body, self._ring)
        except Exception:  # other messages can be recorded
            self.uncovered += 1
            logger.exception("the flight recorder cannot copy a message of %s", task)
            return None
        with self._lock:
            try:
                self._confirm()
                entry = self._put(facts, body)
            except Exception as error:  # noqa: BLE001 - the task runs in any case
                self._is_in_trouble(error)
                self.uncovered += 1
                return None
            if entry is None:
                self.uncovered += 1
                return None
            self.recorded += 1
            self._unconfirmed.append((message, entry))
            if self._trouble:
                self._trouble = ""
                logger.info("the flight recorder writes to %s again", self.directory)
            return entry

    def succeeded(self, entry: Entry) -> None:
        """Note that the body has returned, before the store knows it."""
        with self._lock:
            entry.mark(Mark.SUCCEEDED)

    def acknowledged(self, delivery_tag: str) -> None:
        """Note that the broker has forgotten the message with this tag, before :meth:`confirm` would."""
        with self._lock:
            for message, entry in self._unconfirmed:
                if message.delivery_tag == delivery_tag:
                    entry.mark(Mark.ACKNOWLEDGED)

    def confirm(self) -> None:
        """Note which messages have been acknowledged since the last time. Celery acknowledges them a little
        later than it says: in the next round of its event loop. Called every :data:`CONFIRM_S` seconds."""
        with self._lock:
            self._confirm()

    @property
    def live(self) -> int:
        """Messages that have not ended."""
        return sum(len(segment.live) for segment in self._segments)

    @property
    def trouble(self) -> Uncovered | None:
        """Why messages run without a copy now; None if all are copied, as far as is known."""
        why = self._trouble
        if not why:
            return None
        since = datetime.fromtimestamp(self._trouble_at, timezone.utc)
        messages = self.uncovered - self._uncovered_before
        return Uncovered(why=why, since=since, messages=messages)

    def beat(self) -> None:
        """Show processes on other machines that this one is alive. Called every :data:`BEAT_S` seconds."""
        with self._lock:
            own = self._own
            if own is not None and not own.beat():
                self._leave(own)

    def close(self) -> None:
        """Delete the files if all messages have ended. Otherwise the files and the lock stay, because tasks
        that the worker did not wait for may still end."""
        with self._lock:
            own = self._own
            if own is None:
                return
            if self._tags:  # the broker was away when the worker shut down
                return
            if self.live:
                logger.warning(
                    "%d messages had not ended when the worker did; unless they end now, they become dead "
                    "letters (%s)", self.live, own.path,
                )  # fmt: skip
                return
            with contextlib.suppress(
                OSError
            ):  # the files have no messages, and a recovery deletes them
                for segment in self._segments:
                    segment.remove()
                if self._tags is not None:
                    self._tags.remove()
                unshare(own.path)
            own.release()
            self._own, self._current = None, None
            self._segments.clear()

    def _put(self, facts: bytes, body: bytes) -> Entry | None:
        """The entry; None if the files are full, and it is too early to try again to make another one."""
        segment = self._current
        entry = None if segment is None else segment.put(facts, body)
        if segment is None or entry is None:
            found = self._room_for(size_for(facts, body))
            if found is None:
                return None
            segment, entry = found, found.put(facts, body)
        return entry

    def _confirm(self) -> None:
        waiting = []
        for one in self._unconfirmed:
            message, entry = one
            if entry.has_ended:
                continue
            if message.acknowledged:
                entry.mark(Mark.ACKNOWLEDGED)
            else:
                waiting.append(one)
        self._unconfirmed = waiting

    def _room_for(self, size: int) -> Segment | None:
        """A segment without entries: one that is used again, or a new one. None if it is too early to try
        again to make one.

        :raises OSError: it cannot be made.
        """
        is_large, free = size > self._segment_size, [one for one in self._segments if not one.live]
        for segment in free:
            if segment.size != self._segment_size:  # made for a large message
                self._segments.remove(segment)
                segment.remove()
            elif not is_large:
                segment.reuse()
                self._current = segment
                return segment
        if self._trouble and self._monotonic() < self._again_at:
            return None
        segment = self._new_segment(max(size, self._segment_size))
        if not is_large:
            self._current = segment
        return segment

    def _new_segment(self, size: int) -> Segment:
        if size + sum(segment.size for segment in self._segments) > self._max_size:
            raise OSError(
                errno.EDQUOT,
                f"the files would exceed {self._max_size:,} bytes; run fewer or smaller tasks at a time",
                str(self.directory),
            )
        if self._own is not None and not self._own.is_in_place:
            self._leave(self._own)
        if self._own is None:
            self._own = OwnDirectory(self.directory, self._worker, self._release)
        self._made += 1
        segment = Segment(self._own.path / f"{self._made}{SUFFIX}", size)
        self._segments.append(segment)
        return segment

    def _leave(self, own: OwnDirectory) -> None:
        """Make a new directory for the next message, because ``own`` was removed."""
        logger.warning(
            "%s was removed while its worker ran; %d messages that have not ended are not covered",
            own.path, self.live,
        )  # fmt: skip
        own.close()
        self._own, self._current = None, None
        self._segments.clear()

    def _is_in_trouble(self, error: Exception) -> None:
        self._again_at = self._monotonic() + PAUSE_S
        if not self._trouble:
            self._trouble_at, self._uncovered_before = self._now(), self.uncovered
            self._trouble = str(error) or type(error).__name__
            logger.warning(
                "the flight recorder cannot write to %s: %s; if this worker is killed, the tasks that it has "
                "acknowledged and runs are lost. Fix the directory, or set dlq_recorder_dir",
                self.directory, self._trouble,
            )  # fmt: skip
