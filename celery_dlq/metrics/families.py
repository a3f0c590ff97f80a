"""Every metric: its name, its labels and its meaning. This module does not import ``prometheus_client``, so
that documentation and alert rules can be checked against it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from celery_dlq.errors import MissingExtra

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"


@dataclass(frozen=True)
class Family:
    """Samples of one name."""

    #: The exposed name; that of a counter ends with ``_total``.
    name: str
    kind: str
    text: str
    labels: tuple[str, ...] = ()


UP = Family(
    "celery_dlq_up", GAUGE, "1 if the store answered the last question in time, 0 if it did not."
)
SNAPSHOT_AT = Family(
    "celery_dlq_snapshot_timestamp_seconds",
    GAUGE,
    "When the store gave these numbers, in seconds since 1970.",
)
SNAPSHOT_TOOK = Family(
    "celery_dlq_snapshot_seconds", GAUGE, "How long the store took to give them."
)
DEPTH = Family("celery_dlq_depth", GAUGE, "Open dead letters.", ("task", "queue", "reason"))
LETTERS = Family(
    "celery_dlq_letters", GAUGE, "Open dead letters by state: dead, claimed, redriven.", ("state",)
)
OLDEST = Family(
    "celery_dlq_oldest_age_seconds",
    GAUGE,
    "Age of the oldest open dead letter, by its last failure; 0 if none is open.",
)
ARRIVALS = Family(
    "celery_dlq_arrivals_total",
    COUNTER,
    "Failures that made a dead letter; a letter counts each time that it dies, for the first time or again.",
    ("task", "exception", "reason"),
)
REDRIVES = Family(
    "celery_dlq_redrives_total",
    COUNTER,
    "Redriven letters whose outcome a worker has reported: succeeded, or failed again.",
    ("task", "outcome"),
)
OPERATIONS = Family("celery_dlq_operations", GAUGE, "Redrive operations by state.", ("state",))
ABORTED_AT = Family(
    "celery_dlq_operation_aborted_timestamp_seconds",
    GAUGE,
    "When an operation was last ended by its guard or by an error, in seconds since 1970; "
    "missing if none was.",
)
PARKED = Family("celery_dlq_parked", GAUGE, "Retries and messages that wait in the store.")
OVERDUE = Family(
    "celery_dlq_parked_overdue",
    GAUGE,
    "Parked retries that were due five minutes ago and that no worker has released.",
)
POISON = Family(
    "celery_dlq_poison_deliveries",
    GAUGE,
    "Runs that ended their worker process, of messages that may be delivered again.",
)
CIRCUITS = Family(
    "celery_dlq_circuits",
    GAUGE,
    "Circuits that are not closed: open, or half_open while a probe runs.",
    ("task", "state"),
)
HANDLINGS = Family(
    "celery_dlq_handlings",
    GAUGE,
    "Dead letters with a repair handler: queued, running, or failed if the handler could not decide.",
    ("handler", "state"),
)
TICKETS = Family(
    "celery_dlq_tickets",
    GAUGE,
    "Groups with open letters that a repair handler gave a ticket or an escalation.",
    ("kind",),
)
AUTO_REDRIVES = Family(
    "celery_dlq_auto_redrives",
    GAUGE,
    "1 for the state of each automatic redrive: active, paused by a person, or suspended by itself.",
    ("name", "state"),
)
AUTO_LETTERS = Family(
    "celery_dlq_auto_redrive_letters",
    GAUGE,
    "Letters that automatic redrives sent within the last day, by the state of the sending.",
    ("name", "state"),
)
HELD = Family(
    "celery_dlq_held_letters",
    GAUGE,
    "Open letters that an automatic redrive holds: only a person redrives them.",
    ("name",),
)
ROUTES = Family(
    "celery_dlq_route_letters",
    GAUGE,
    "Open dead letters by the route of their last failure; letters without a route are left out.",
    ("route",),
)
CLOSED = Family(
    "celery_dlq_closed_letters",
    GAUGE,
    "Closed letters that the last round of retention has left, by the time since they were closed: below 1d, "
    "7d, 30d, 90d, 365d, or more.",
    ("age",),
)
CLOSED_BYTES = Family(
    "celery_dlq_closed_bytes", GAUGE, "Bytes of the messages and texts of these letters.", ("age",)
)
EXPIRING = Family(
    "celery_dlq_expiring_letters",
    GAUGE,
    "Closed letters that expire within 1d, and within 7d, of the last round of retention.",
    ("within",),
)
RETENTION_AT = Family(
    "celery_dlq_retention_timestamp_seconds",
    GAUGE,
    "When a round of retention last came to its end, in seconds since 1970; missing if none did.",
)
RETENTION_LAG = Family(
    "celery_dlq_retention_lag_seconds",
    GAUGE,
    "How long ago the first letter expired that is still there; 0 if there is none. Between two rounds, it "
    "may be an hour.",
)
SEGMENTS = Family("celery_dlq_archive_segments", GAUGE, "Segments that this store has archived.")
ARCHIVED = Family(
    "celery_dlq_archive_letters", GAUGE, "Letters that this store has written to these segments."
)
ARCHIVED_BYTES = Family("celery_dlq_archive_bytes", GAUGE, "Bytes of the files of these segments.")
ARCHIVED_AT = Family(
    "celery_dlq_archive_timestamp_seconds",
    GAUGE,
    "When a segment was last complete, in seconds since 1970; missing if none is.",
)
VERIFIED_AT = Family(
    "celery_dlq_archive_verified_timestamp_seconds",
    GAUGE,
    "When the archive was last checked, in seconds since 1970; missing if it was not.",
)
DAMAGED = Family(
    "celery_dlq_archive_damaged",
    GAUGE,
    "Problems that the last check found and because of which archived letters cannot be read; missing if the "
    "archive was not checked.",
)
LEFT = Family(
    "celery_dlq_unrecovered",
    GAUGE,
    "Messages of killed workers that are not recovered, as workers report: stuck (they cannot be recovered) "
    "or waiting (the broker may deliver them again). A machine on which no worker runs reports nothing.",
    ("state",),
)
LEFT_AGE = Family(
    "celery_dlq_unrecovered_age_seconds",
    GAUGE,
    "Age of the oldest of them; 0 if there are none. If their file cannot be read, or a newer release wrote "
    "it, there is an age and no number.",
    ("state",),
)
UNCOVERED = Family(
    "celery_dlq_uncovered_workers",
    GAUGE,
    "Workers that report that they run messages without a copy: if one is killed, these are lost.",
)
SPOOL = Family(
    "celery_dlq_spool_bytes",
    GAUGE,
    "Bytes in dlq_spool_dir of the machine where this is measured; missing if it cannot be read.",
)
REPLICA_UP = Family(
    "celery_dlq_read_replica_up",
    GAUGE,
    "1 if screens can read from dlq_store_read_url, 0 if they read from the primary because it fails; "
    "missing without a read replica.",
)
REPLICA_LAG = Family(
    "celery_dlq_read_replica_lag_seconds",
    GAUGE,
    "How far the read replica is behind the primary; missing if it does not say.",
)

#: The metrics of the store.
STORE_FAMILIES = (
    UP, SNAPSHOT_AT, SNAPSHOT_TOOK, DEPTH, LETTERS, OLDEST, ARRIVALS, REDRIVES, OPERATIONS, ABORTED_AT,
    PARKED, OVERDUE, POISON, CIRCUITS, HANDLINGS, TICKETS, AUTO_REDRIVES, AUTO_LETTERS, HELD, ROUTES,
    CLOSED, CLOSED_BYTES, EXPIRING, RETENTION_AT, RETENTION_LAG, SEGMENTS, ARCHIVED, ARCHIVED_BYTES,
    ARCHIVED_AT, VERIFIED_AT, DAMAGED, LEFT, LEFT_AGE, UNCOVERED, SPOOL,
    REPLICA_UP, REPLICA_LAG,
)  # fmt: skip

DEAD_LETTERS = Family(
    "celery_dlq_worker_dead_letters_total",
    COUNTER,
    "Failures that this worker has made dead letters of; a letter counts each time that it dies. Tasks that "
    "a cold shutdown cuts off are not counted.",
    ("task", "exception", "reason"),
)
RETRIES = Family(
    "celery_dlq_worker_retries_total",
    COUNTER,
    "Automatic retries that this worker's tasks asked for, by the rule that decided; "
    "task.retry is an explicit retry() of the task.",
    ("task", "rule"),
)
CAPTURE = Family(
    "celery_dlq_worker_capture_seconds",
    HISTOGRAM,
    "Time from a failure's report to the worker until its letter is in the store or spool.",
)
STORE = Family(
    "celery_dlq_worker_store_seconds",
    HISTOGRAM,
    "How long a write to the store takes, including failed ones: save (letters), park (retries) or "
    "record_outcomes (of redrives).",
    ("call",),
)
WORKER_SPOOL = Family(
    "celery_dlq_worker_spool_bytes",
    GAUGE,
    "Bytes in dlq_spool_dir of the worker's machine; missing if it cannot be read, "
    "and with PROMETHEUS_MULTIPROC_DIR.",
)

RECORDED = Family(
    "celery_dlq_worker_recorded_total",
    COUNTER,
    "Messages that the flight recorder has kept a copy of while their task ran; missing with "
    "PROMETHEUS_MULTIPROC_DIR, as are the next three.",
)
UNRECORDED = Family(
    "celery_dlq_worker_unrecorded_total",
    COUNTER,
    "Messages of which it could not keep a copy: if the worker is killed, they are lost.",
)
RECOVERED = Family(
    "celery_dlq_worker_recovered_total",
    COUNTER,
    "Messages of killed workers that this worker has recovered: letter (now a dead letter, reason lost), or "
    "ended (it had ended after all).",
    ("outcome",),
)
UNRECOVERED = Family(
    "celery_dlq_worker_unrecovered",
    GAUGE,
    "Messages of killed workers that wait for recovery on the worker's machine.",
)
UNRECOVERED_AGE = Family(
    "celery_dlq_worker_unrecovered_age_seconds",
    GAUGE,
    "Age of the oldest files with such messages that the broker has forgotten, by their last change; 0 if "
    "there are none. The broker may deliver the others again, and until then they wait.",
)

STALLED = Family(
    "celery_dlq_worker_stalled",
    GAUGE,
    "1 if the worker has received nothing for dlq_stall_after, although messages wait and it has free slots, "
    "until it receives a message; otherwise 0. Missing with PROMETHEUS_MULTIPROC_DIR.",
)

SENT_AGAIN = Family(
    "celery_dlq_worker_sent_again_total",
    COUNTER,
    "Messages of redrives that had vanished from the broker, and that the worker has sent again.",
)

#: The metrics of a worker.
WORKER_FAMILIES = (
    DEAD_LETTERS, RETRIES, CAPTURE, STORE, WORKER_SPOOL, RECOVERED, RECORDED, UNRECORDED, UNRECOVERED,
    UNRECOVERED_AGE, STALLED, SENT_AGAIN,
)  # fmt: skip


def need_prometheus() -> None:
    """Check that metrics can be made here.

    :raises MissingExtra: ``prometheus_client`` is not installed.
    """
    if find_spec("prometheus_client") is None:
        raise MissingExtra(
            "Metrics need the package prometheus-client; run: pip install 'celery-dlq[prometheus]'"
        )
