"""What is left when neither the store nor the disk takes a letter: the log."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


def log_whole(line: bytes, error: Exception) -> None:
    """Write one spool line to the log, where :func:`~celery_dlq.spool.lines.find_record` finds it."""
    logger.critical(
        "dead letter neither stored nor spooled (%s); once the store is back, give this log to "
        "celery -A <app> dlq spool import: %s", error, line.decode("ascii", "replace").strip(),
    )  # fmt: skip
