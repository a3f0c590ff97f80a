"""Apache Pulsar."""

from __future__ import annotations

from celery_dlq.classify.table import Row, terminal, transient, within

ROWS: tuple[Row, ...] = (
    # pulsar/exceptions.py; the classes are made in C.
    transient(
        "pulsar.network",
        *within(
            "_pulsar",
            "Timeout ConnectError ReadError NotConnected AlreadyClosed LookupError ServiceUnitNotReady "
            "TooManyLookupRequestException BrokerMetadataError BrokerPersistenceError Interrupted "
            "ChecksumError",
        ),
    ),
    transient(
        "pulsar.busy",
        *within(
            "_pulsar",
            "ProducerBusy ConsumerBusy ProducerQueueIsFull MemoryBufferIsFull TransactionConflict "
            "ProducerBlockedQuotaExceededError ProducerBlockedQuotaExceededException "
            "TransactionCoordinatorNotFoundError",
        ),
    ),
    terminal("pulsar.error", "_pulsar.PulsarException"),
)
