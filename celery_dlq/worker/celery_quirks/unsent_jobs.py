"""Jobs of prefork that could not be pickled: billiard keeps them, and a shutdown waits for their end.

``Pool.apply_async`` registers a job in the pool's cache before it pickles the job for a process (billiard
4.3.2, pool.py, lines 1620 and 1636). If that raises, for example because a message nests too deeply, the job
stays in the cache, though no process has it. No issue upstream names this, as of November 2026.

It can be deleted when billiard forgets a job that it could not hand over. ``assert_nothing_is_kept`` in
``tests/unit/worker/request/test_handover.py`` fails without it.
"""

from __future__ import annotations

from typing import Any


def forget_job(pool: Any, request: Any) -> None:
    """Remove the job of ``request`` from ``pool`` (a worker's). Does nothing on pools other than prefork."""
    jobs = getattr(getattr(pool, "_pool", None), "_cache", None)
    for job in [*jobs.values()] if isinstance(jobs, dict) else ():
        accepted = getattr(job, "_accept_callback", None)
        if getattr(accepted, "__self__", None) is request:
            job.discard()
