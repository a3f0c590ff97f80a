"""The flight recorder: files of the messages that a worker has accepted and not ended, which outlive it.

A worker acknowledges most messages before it runs them, so the broker has forgotten them if the worker is
killed. Before the acknowledgement, the worker copies the message into a memory-mapped file; when the run has
ended, it marks the entry. The kernel keeps what was written, however the process dies. Each process has a
directory of its own, and holds a lock in it for as long as it lives.

This room writes and reads the files. :mod:`celery_dlq.upkeep.recovery` decides about the messages that had
not ended.
"""
