"""The shop's Celery app.

Without any setting it runs on parts that need no server, kept in ``.demo/`` of the working directory.
``CELERY_BROKER_URL``, ``CELERY_RESULT_BACKEND`` and ``CELERY_DLQ_STORE_URL`` put it on real ones.
"""

from pathlib import Path

from celery import Celery
from sqlalchemy.pool import NullPool

from example_project.release import RELEASE

#: Where the embedded parts and the spool keep their files.
DIRECTORY = Path(".demo")
# SQLite creates files, but no directories.
DIRECTORY.mkdir(exist_ok=True)

# kombu has three transports without a server. memory:// does not leave the process, but the worker, its
# pool and the command line are separate processes. filesystem:// writes a message in place, so a worker
# can take it half-written: in a trial, 4 to 23 of 1,400 messages were lost that way. With SQLAlchemy a
# message is a committed row: none was lost.
EMBEDDED_BROKER = f"sqla+sqlite:///{DIRECTORY}/broker.sqlite3"
EMBEDDED_RESULTS = f"db+sqlite:///{DIRECTORY}/results.sqlite3"
EMBEDDED_STORE = f"sqlite:///{DIRECTORY}/dead_letters.sqlite3"

app = Celery(
    "shop", include=[f"example_project.{name}" for name in ("orders", "payments", "night")]
)
app.conf.update(
    broker_url=EMBEDDED_BROKER,
    broker_connection_retry_on_startup=True,
    result_backend=EMBEDDED_RESULTS,
    result_chord_retry_interval=0.1,
    task_default_queue="shop",
    worker_hijack_root_logger=False,
    dlq_store_url=EMBEDDED_STORE,
    dlq_spool_dir=str(DIRECTORY / "spool"),
    dlq_release=RELEASE,
    # Short waits for a demo; the defaults suit real services.
    dlq_retry_base=0.05,
    dlq_retry_cap=0.5,
)


def embed_broker() -> None:
    """Make kombu's SQLAlchemy transport fast, and safe in a worker that forks."""
    from kombu.transport.sqlalchemy import Transport

    app.conf.broker_transport_options = {
        # The engine survives a fork, but an SQLite connection must not be used after one.
        "poolclass": NullPool,
        "connect_args": {"timeout": 30},
    }
    # One second by default. It cannot be an option, because all options are passed to create_engine().
    Transport.polling_interval = 0.05


if app.conf.broker_url == EMBEDDED_BROKER:
    embed_broker()
