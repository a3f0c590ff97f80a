"""What an import brings along: producers import tasks, and workers start often."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("celery_dlq", "celery_dlq.tickets"),
        ("celery_dlq.store", "sqlalchemy"),
        # The processes of a pool are forked from a parent that has imported these.
        ("celery_dlq.worker.consumer", "sqlalchemy"),
        ("celery_dlq.upkeep.step", "sqlalchemy"),
        ("celery_dlq.upkeep.step", "celery_dlq.upkeep.periodic"),
        ("celery_dlq.store.sql", "alembic"),
        ("celery_dlq.store.sql", "psycopg"),
        ("celery_dlq.store.sql", "pymysql"),
        ("celery_dlq.api.queue", "fsspec"),
        ("celery_dlq.cli.letters.archive", "fsspec"),
        ("celery_dlq.cli.letters.archive", "pyarrow"),
    ],
)
def test_an_import_does_not_bring(module, unwanted):
    question = f"import sys, {module}; sys.exit({unwanted!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", question], check=False).returncode == 0
