"""Letters that the store did not accept: append-only files, fsynced, drained later.

Records enter, one JSON record per line; a drain hands them to the store in steps. A process locks the
file that it appends to, so that other processes drain only files whose writer is gone. The room does not know
the store: it gets a function that saves.
"""
