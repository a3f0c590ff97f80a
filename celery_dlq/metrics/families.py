"""Every metric: its name, its labels and its meaning, and the limits on labels. This module does not import
``prometheus_client``, so that documentation and alert rules can be checked against it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec

from celery_dlq.base.redact import safe_text
from celery_dlq.errors import MissingExtra

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"


@dataclass(frozen=True)
class Family:
    """Samples of one name."""

    #: The exposed name; that of a counter ends with ``_total``.
    name: str
    kind: str
    labels: tuple[str, ...]
    text: str


# fmt: off
UP = Family(
    "celery_dlq_up", GAUGE, (),
    "1 if the store answered the last question in time, 0 if it did not.",
)
SNAPSHOT_AT = Family(
    "celery_dlq_snapshot_timestamp_seconds", GAUGE, (),
    "When the store gave these numbers, in seconds since 1970.",
)
SNAPSHOT_TOOK = Family(
    "celery_dlq_snapshot_seconds", GAUGE, (),
    "How long the store took to give them.",
)
DEPTH = Family("celery_dlq_depth", GAUGE, ("task", "queue", "reason"), "Open dead letters.")
LETTERS = Family(
    "celery_dlq_letters", GAUGE, ("state",),
    "Open dead letters by state: dead, claimed, redriven.",
)
OLDEST = Family(
    "celery_dlq_oldest_age_seconds", GAUGE, (),
    "Age of the oldest open dead letter, by its last failure; 0 if none is open.",
)
ARRIVALS = Family(
    "celery_dlq_arrivals_total", COUNTER, ("task", "exception", "reason"),
    "Failures that made a dead letter; a letter counts each time that it dies, for the first time or "
    "again.",
)
REDRIVES = Family(
    "celery_dlq_redrives_total", COUNTER, ("task", "outcome"),
    "Redriven letters whose outcome a worker has reported: succeeded, or failed again.",
)
OPERATIONS = Family("celery_dlq_operations", GAUGE, ("state",), "Redrive operations by state.")
ABORTED_AT = Family(
    "celery_dlq_operation_aborted_timestamp_seconds", GAUGE, (),
    "When an operation was last ended by its guard or by an error, in seconds since 1970; missing if none "
    "was.",
)
PARKED = Family("celery_dlq_parked", GAUGE, (), "Retries and messages that wait in the store.")
OVERDUE = Family(
    "celery_dlq_parked_overdue", GAUGE, (),
    "Parked retries that were due five minutes ago and that no worker has released.",
)
UNSENT = Family(
    "celery_dlq_unsent_messages", GAUGE, (),
    "Messages that the broker did not take from their sender, and that wait in the store.",
)
OLDEST_UNSENT = Family(
    "celery_dlq_oldest_unsent_seconds", GAUGE, (),
    "How long ago the oldest of them could not be sent; 0 if none waits.",
)
UNSENT_TOTAL = Family(
    "celery_dlq_unsent_total", COUNTER, ("task", "exception"),
    "Messages that were kept in the store because the broker did not take them.",
)
POISON = Family(
    "celery_dlq_poison_deliveries", GAUGE, (),
    "Runs that ended their worker process, of messages that may be delivered again.",
)
CIRCUITS = Family(
    "celery_dlq_circuits", GAUGE, ("task", "state"),
    "Circuits that are not closed: open, or half_open while a probe runs.",
)
HANDLINGS = Family(
    "celery_dlq_handlings", GAUGE, ("handler", "state"),
    "Dead letters with a repair handler: queued, running, or failed if the handler could not decide.",
)
TICKETS = Family(
    "celery_dlq_tickets", GAUGE, ("kind",),
    "Groups with open letters that a repair handler gave a ticket or an escalation.",
)
AUTO_REDRIVES = Family(
    "celery_dlq_auto_redrives", GAUGE, ("name", "state"),
    "1 for the state of each automatic redrive, and of each handler that a person has paused or resumed: "
    "active, paused by a person, or suspended by itself.",
)
AUTO_LETTERS = Family(
    "celery_dlq_auto_redrive_letters", GAUGE, ("name", "state"),
    "Letters that automatic redrives sent within the last day, by the state of the sending.",
)
HELD = Family(
    "celery_dlq_held_letters", GAUGE, ("name",),
    "Open letters that an automatic redrive holds: only a person redrives them.",
)
ROUTES = Family(
    "celery_dlq_route_letters", GAUGE, ("route",),
    "Open dead letters by the route of their last failure; letters without a route are left out.",
)
CLOSED = Family(
    "celery_dlq_closed_letters", GAUGE, ("age",),
    "Closed letters that the last round of retention has left, by the time since they were closed: below "
    "1d, 7d, 30d, 90d, 365d, or more.",
)
CLOSED_BYTES = Family(
    "celery_dlq_closed_bytes", GAUGE, ("age",),
    "Bytes of the messages and texts of these letters.",
)
EXPIRING = Family(
    "celery_dlq_expiring_letters", GAUGE, ("within",),
    "Closed letters that expire within 1d, and within 7d, of the last round of retention.",
)
RETENTION_AT = Family(
    "celery_dlq_retention_timestamp_seconds", GAUGE, (),
    "When a round of retention last came to its end, in seconds since 1970; missing if none did.",
)
RETENTION_LAG = Family(
    "celery_dlq_retention_lag_seconds", GAUGE, (),
    "How long ago the first letter expired that is still there; 0 if there is none. Between two rounds, it "
    "may be an hour.",
)
SEGMENTS = Family(
    "celery_dlq_archive_segments", GAUGE, (),
    "Segments that this store has archived.",
)
ARCHIVED = Family(
    "celery_dlq_archive_letters", GAUGE, (),
    "Letters that this store has written to these segments.",
)
ARCHIVED_BYTES = Family(
    "celery_dlq_archive_bytes", GAUGE, (),
    "Bytes of the files of these segments.",
)
ARCHIVED_AT = Family(
    "celery_dlq_archive_timestamp_seconds", GAUGE, (),
    "When a segment was last complete, in seconds since 1970; missing if none is.",
)
VERIFIED_AT = Family(
    "celery_dlq_archive_verified_timestamp_seconds", GAUGE, (),
    "When the archive was last checked, in seconds since 1970; missing if it was not.",
)
DAMAGED = Family(
    "celery_dlq_archive_damaged", GAUGE, (),
    "Problems that the last check found and that make archived letters unreadable; missing if the archive "
    "was not checked.",
)
LEFT = Family(
    "celery_dlq_unrecovered", GAUGE, ("state",),
    "Messages of killed workers that are not recovered, as workers report: stuck (they cannot be "
    "recovered) or waiting (the broker may deliver them again). A machine on which no worker runs reports "
    "nothing.",
)
LEFT_AGE = Family(
    "celery_dlq_unrecovered_age_seconds", GAUGE, ("state",),
    "Age of the oldest of them; 0 if there are none. If their file cannot be read, there is an age and "
    "no number.",
)
UNCOVERED = Family(
    "celery_dlq_uncovered_workers", GAUGE, (),
    "Workers that report that they run messages without a copy: if one is killed, these are lost.",
)
SPOOL = Family(
    "celery_dlq_spool_bytes", GAUGE, (),
    "Bytes in dlq_spool_dir of the machine where this is measured; missing if it cannot be read.",
)

#: The metrics of the store.
STORE_FAMILIES = (
    UP, SNAPSHOT_AT, SNAPSHOT_TOOK, DEPTH, LETTERS, OLDEST, ARRIVALS, REDRIVES, OPERATIONS, ABORTED_AT,
    PARKED, OVERDUE, UNSENT, OLDEST_UNSENT, UNSENT_TOTAL, POISON, CIRCUITS, HANDLINGS, TICKETS,
    AUTO_REDRIVES, AUTO_LETTERS, HELD, ROUTES,
    CLOSED, CLOSED_BYTES, EXPIRING, RETENTION_AT, RETENTION_LAG, SEGMENTS, ARCHIVED, ARCHIVED_BYTES,
    ARCHIVED_AT, VERIFIED_AT, DAMAGED, LEFT, LEFT_AGE, UNCOVERED, SPOOL,
)

DEAD_LETTERS = Family(
    "celery_dlq_worker_dead_letters_total", COUNTER, ("task", "exception", "reason"),
    "Failures that this worker has made dead letters of; a letter counts each time that it dies. Tasks "
    "that a cold shutdown cuts off are not counted.",
)
RETRIES = Family(
    "celery_dlq_worker_retries_total", COUNTER, ("task", "rule"),
    "Automatic retries that this worker's tasks asked for, by the rule that decided; task.retry is an "
    "explicit retry() of the task.",
)
UNKNOWN = Family(
    "celery_dlq_worker_unknown_exceptions_total", COUNTER, ("exception", "rule"),
    "Those of these failures about which no rule decided: default, or class.name if the name of the class "
    "did.",
)
CAPTURE = Family(
    "celery_dlq_worker_capture_seconds", HISTOGRAM, (),
    "Time from a failure's report to the worker until its letter is in the store or spool.",
)
STORE = Family(
    "celery_dlq_worker_store_seconds", HISTOGRAM, ("call",),
    "How long a write to the store takes, including failed ones: save (letters), park (retries) or "
    "record_outcomes (of redrives).",
)
WORKER_SPOOL = Family(
    "celery_dlq_worker_spool_bytes", GAUGE, (),
    "Bytes in dlq_spool_dir of the worker's machine; missing if it cannot be read, and with "
    "PROMETHEUS_MULTIPROC_DIR.",
)

RECORDED = Family(
    "celery_dlq_worker_recorded_total", COUNTER, (),
    "Messages that the flight recorder has kept a copy of while their task ran; missing with "
    "PROMETHEUS_MULTIPROC_DIR, as are the next three.",
)
UNRECORDED = Family(
    "celery_dlq_worker_unrecorded_total", COUNTER, (),
    "Messages of which it could not keep a copy: if the worker is killed, they are lost.",
)
RECOVERED = Family(
    "celery_dlq_worker_recovered_total", COUNTER, ("outcome",),
    "Messages of killed workers that this worker has recovered: letter (now a dead letter, reason lost), "
    "or ended (it had ended after all).",
)
UNRECOVERED = Family(
    "celery_dlq_worker_unrecovered", GAUGE, (),
    "Messages of killed workers that wait for recovery on the worker's machine.",
)
UNRECOVERED_AGE = Family(
    "celery_dlq_worker_unrecovered_age_seconds", GAUGE, (),
    "Age of the oldest files with such messages that the broker has forgotten, by their last change; 0 if "
    "there are none. The broker may deliver the others again, and until then they wait.",
)

STALLED = Family(
    "celery_dlq_worker_stalled", GAUGE, (),
    "1 if the worker has received nothing for dlq_stall_after, although messages wait and it has free "
    "slots, until it receives a message; also while it keeps a message that could have run for 15 minutes "
    "and dlq_stall_after; otherwise 0. Missing with PROMETHEUS_MULTIPROC_DIR.",
)

SENT_AGAIN = Family(
    "celery_dlq_worker_sent_again_total", COUNTER, (),
    "Messages of redrives that had vanished from the broker, and that the worker has sent again.",
)

#: The metrics of a worker.
WORKER_FAMILIES = (
    DEAD_LETTERS, UNKNOWN, RETRIES, CAPTURE, STORE, WORKER_SPOOL, RECOVERED, RECORDED, UNRECORDED,
    UNRECOVERED, UNRECOVERED_AGE, STALLED, SENT_AGAIN,
)
# fmt: on


def need_prometheus() -> None:
    """Check that metrics can be made here.

    :raises MissingExtra: ``prometheus_client`` is not installed.
    """
    if find_spec("prometheus_client") is None:
        raise MissingExtra(
            "Metrics need the package prometheus-client; run: pip install 'celery-dlq[prometheus]'"
        )


# -- Limits on labels -------------------------------------------------------------------------------

# A monitor keeps each set of labels for ever, and a failing deployment may create many.

#: The most sets of labels that one metric may have; all others are added up.
MOST_SETS = 500

#: The value of each label of that sum.
OTHER = "other"

#: The value of an unknown label, because Prometheus treats an empty value as a missing label.
NONE = "none"

Labels = tuple[str, ...]


@dataclass(frozen=True)
class Sample:
    """A value, and when its labels were first seen."""

    labels: Labels
    value: float
    first_seen_at: datetime


def by_size(samples: Iterable[Sample], most: int = MOST_SETS) -> dict[Labels, float]:
    """The sum of each set of labels; beyond ``most`` sets, only the largest keep their labels. For
    gauges."""
    return _bounded(samples, most, lambda one: (-one.value, one.labels))


def by_age(samples: Iterable[Sample], most: int = MOST_SETS) -> dict[Labels, float]:
    """The sum of each set of labels; beyond ``most`` sets, only the oldest keep their labels. For
    counters: no set loses its labels to a newer one, so neither its value nor the sum of the others ever
    falls."""
    return _bounded(samples, most, lambda one: (one.first_seen_at, one.labels))


def _bounded(
    samples: Iterable[Sample], most: int, rank: Callable[[Sample], object]
) -> dict[Labels, float]:
    sums = _summed(samples)
    if len(sums) <= most:
        return {one.labels: one.value for one in sums.values()}
    ranked: list[Sample] = sorted(sums.values(), key=rank)  # type: ignore[arg-type]
    kept = {one.labels: one.value for one in ranked[:most]}
    rest = (OTHER,) * len(ranked[0].labels)
    kept[rest] = kept.get(rest, 0) + sum(one.value for one in ranked[most:])
    return kept


def _summed(samples: Iterable[Sample]) -> Mapping[Labels, Sample]:
    sums: dict[Labels, Sample] = {}
    for one in samples:
        labels = tuple(safe_text(label) or NONE for label in one.labels)
        known = sums.get(labels)
        value, first = one.value, one.first_seen_at
        if known is not None:
            value, first = known.value + value, min(known.first_seen_at, first)
        sums[labels] = Sample(labels, value, first)
    return sums
