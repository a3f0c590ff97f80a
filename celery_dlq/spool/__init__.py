"""Letters that the store did not accept: append-only files, fsynced, drained later.

Records enter, one JSON record per line; a drain hands them to the store in steps. A process locks the
file that it appends to, so that other processes drain only files whose writer is gone. The room does not know
the store: it gets a function that saves.
"""

from celery_dlq.spool.directory import MAX_SIZE, Spool
from celery_dlq.spool.drain import Drained, hand_over
from celery_dlq.spool.look import FileState, SpoolFile, exposed_files, is_exposed, is_shared, look
from celery_dlq.spool.segment import Record, decode, encode, find_record, log_whole

__all__ = [
    "MAX_SIZE",
    "Drained",
    "FileState",
    "Record",
    "Spool",
    "SpoolFile",
    "decode",
    "encode",
    "exposed_files",
    "find_record",
    "hand_over",
    "is_exposed",
    "is_shared",
    "log_whole",
    "look",
]
