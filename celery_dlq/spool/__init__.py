"""Letters that the store did not take: append-only files, fsynced, drained later.

One JSON record a line. A process holds a lock on the file it appends to, so that others can tell a
living writer's file from one that may be drained.
"""

from celery_dlq.spool.directory import MAX_SIZE, Spool
from celery_dlq.spool.drain import Drained, hand_over
from celery_dlq.spool.last_resort import log_whole
from celery_dlq.spool.lines import NewerRecord, Record, decode, encode, find_record
from celery_dlq.spool.look import FileState, SpoolFile, look

__all__ = [
    "MAX_SIZE",
    "Drained",
    "FileState",
    "NewerRecord",
    "Record",
    "Spool",
    "SpoolFile",
    "decode",
    "encode",
    "find_record",
    "hand_over",
    "log_whole",
    "look",
]
