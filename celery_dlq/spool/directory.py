"""The spool: appends up to a maximum size, drains, and rewrites files that others remove."""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Generator, Sequence
from pathlib import Path

from celery_dlq.spool.drain import Drained, Save, drain_file
from celery_dlq.spool.segment import Record, Segment, encode, log_whole, new_segment, waiting_files

logger: logging.Logger = logging.getLogger(__name__)

#: The default maximum size of all files of a spool, in bytes.
MAX_SIZE = 1 << 30

#: Size after which a new file is begun, in bytes. A file is drained as a whole, so this is also the
#: most that an interrupted drain repeats.
SEGMENT_SIZE = 16 << 20


class Spool:
    """The spool files of one directory. One thread at a time may use it.

    :param max_size: bytes that all files in the directory may take together.
    """

    def __init__(self, directory: str | Path, *, max_size: int = MAX_SIZE) -> None:
        self.directory: Path = Path(directory)
        self.max_size = max_size
        self._segment: Segment | None = None

    def append(self, records: Sequence[Record]) -> None:
        """Keep ``records``, all or none; they are on disk when this method returns.

        :raises OSError: the directory cannot be written, or the disk or the spool is full.
        """
        lines = b"".join(encode(record) for record in records)
        self._check_room(len(lines))
        segment = self._segment_in_place()
        try:
            segment.append(lines)
        except OSError:
            self.close()
            raise
        if segment.size >= SEGMENT_SIZE:
            self.close()

    def keep(self, records: Sequence[Record]) -> None:
        """Append ``records``, or write to the log those that do not fit on the disk. Raises no error."""
        try:
            self.append(records)
        except Exception as error:  # noqa: BLE001 - the letter must survive any error of the disk
            if len(records) == 1:
                _keep_in_log(records[0], error)
                return
            # The remaining space may be enough for some of them.
            for record in records:
                self.keep([record])

    def check(self) -> None:
        """Check whether a letter could be kept now. Leaves no file behind.

        :raises OSError: it could not be kept.
        """
        self._check_room(0)
        new_segment(self.directory).close()

    def files(self) -> list[Path]:
        """The files that wait to be drained, oldest first."""
        return waiting_files(self.directory)

    def size(self) -> int:
        """The size of all files in the directory in bytes, including those that were set aside. The flight
        recorder may have a directory in it."""
        return sum(_size(path) for path in self.directory.glob("*") if not path.is_dir())

    def drain(self, save: Save) -> Generator[Drained, None, None]:
        """Hand every spooled record to ``save``, and remove the files whose records were all saved.

        Each step hands over a bounded number of records, and yields its result. ``save`` must be
        idempotent: after a crash between the save and the removal, the same records are handed over again.

        :raises StoreError: ``save`` raised it; the remaining records stay for the next time.
        """
        own = self._segment.path if self._segment else None
        others = [path for path in self.files() if path != own]
        for path in others:
            yield from self._drain_one(path, save)
        # Last: otherwise each try while the store is still away would leave one more file.
        self.close()
        for path in self.files():
            if path not in others:
                yield from self._drain_one(path, save)

    def close(self) -> None:
        """Stop appending to the current file, so that it can be drained."""
        segment, self._segment = self._segment, None
        if segment is not None:
            try:
                self._restore(segment)
            finally:
                segment.close()

    def _drain_one(self, path: Path, save: Save) -> Generator[Drained, None, None]:
        try:
            yield from drain_file(path, save)
        except OSError as error:
            logger.error("spool file %s cannot be drained and stays: %s", path, error)  # noqa: TRY400 - the line says why
            yield Drained(failed=(path.name,))

    def _segment_in_place(self) -> Segment:
        if self._segment is not None and not self._segment.is_in_place:
            self.close()
        if self._segment is None:
            self._segment = new_segment(self.directory)
        return self._segment

    def _restore(self, lost: Segment) -> None:
        """Write the lines of a file that another process removed into a new file."""
        if lost.is_in_place:
            return
        lines = lost.lost_lines()
        if not lines:
            return
        try:
            with contextlib.closing(new_segment(self.directory)) as copy:
                copy.append(lines)
        except OSError as error:
            for line in lines.splitlines():
                log_whole(line, error)
        else:
            logger.warning("spool file %s was removed; its letters are in %s", lost.path, copy.path)

    def _check_room(self, wanted: int) -> None:
        if self.size() + wanted > self.max_size:
            raise OSError(
                errno.EDQUOT,
                f"the spool would exceed dlq_spool_max_size ({self.max_size:,} bytes); "
                "bring the store back, or raise the limit",
                str(self.directory),
            )


def _keep_in_log(record: Record, error: Exception) -> None:
    try:
        log_whole(encode(record), error)
    except Exception:
        # An error here would end the writer's thread, and no further message would be finished.
        logger.critical(
            "dead letter neither stored nor spooled, and it cannot be encoded: %r",
            record,
            exc_info=True,
        )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
