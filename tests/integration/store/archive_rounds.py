"""A process that moves expired letters into an archive, in small segments, until none is left. Tests kill it.

Its arguments are the URLs of the store and of the archive.
"""

from __future__ import annotations

import os
import sys
import uuid
from datetime import timedelta

from celery import Celery

from celery_dlq import DeadLetterQueue, Keep, Retention
from celery_dlq.archive import archiving
from celery_dlq.store import tenure
from celery_dlq.store.tenure import Tenure, kept
from celery_dlq.upkeep.expiring import LEASE

#: Letters of a segment.
LETTERS = int(os.environ["SEGMENT_LETTERS"])


def main(store_url: str, archive_url: str) -> None:
    """Run rounds until nothing expires."""
    archiving.MAX_LETTERS = LETTERS
    tenure.LEASE_S, tenure.TRY_S = 1.0, 0.2
    app = Celery("archive")
    app.conf.dlq_store_url, app.conf.dlq_archive_url = store_url, archive_url
    app.conf.dlq_retention = Retention(letters=[Keep(timedelta(days=1))])
    dlq = DeadLetterQueue.of(app)
    own = Tenure(lambda: dlq.store, LEASE, uuid.uuid4().hex)
    while (held := own.prolong()) is None:
        pass
    print("begun", flush=True)
    with kept(own, held):
        while dlq.retention.run(held, lambda _seconds: False).letters:
            pass
    print("ended", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
