"""Errors of this package. A subclass's docstring is its default message."""

from __future__ import annotations

import inspect


class CeleryDLQError(Exception):
    """Something in celery_dlq went wrong."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or inspect.cleandoc(self.__doc__ or type(self).__name__))


class SettingsError(CeleryDLQError):
    """A dlq_* setting is not valid; see docs/reference/settings.md."""


class MissingExtra(CeleryDLQError):
    """A package that this needs is not installed; see the extras in README.md."""


class StoreError(CeleryDLQError):
    """The dead-letter store failed; run: celery -A <app> dlq doctor."""


class StoreUnavailable(StoreError):
    """The dead-letter store does not answer; check dlq_store_url and that the database is up."""


class SchemaError(StoreError):
    """The store's schema does not fit this release; run: celery -A <app> dlq db upgrade."""


class RecordRefused(StoreError):
    """The dead-letter store does not take this letter, though it takes others."""


class UnknownLetter(CeleryDLQError):
    """No dead letter has this id; list them with: celery -A <app> dlq list."""


class AmbiguousId(CeleryDLQError):
    """More than one dead letter begins like this; give more characters of the id."""


class UnknownGroup(CeleryDLQError):
    """No group has this fingerprint; list them with: celery -A <app> dlq groups."""


class TriageError(CeleryDLQError):
    """The group cannot be treated like this; see: celery -A <app> dlq groups --help."""


class FilterError(CeleryDLQError):
    """The filters contradict each other; see: celery -A <app> dlq list --help."""


class RedriveError(CeleryDLQError):
    """The redrive could not be carried out; run: celery -A <app> dlq doctor."""


class SandboxError(RedriveError):
    """Letters cannot be tried for --validate: no other process can import the app."""


class RepairError(CeleryDLQError):
    """The message cannot be changed like this; see docs/howto/repair-letters.md."""


class PayloadError(RepairError):
    """The body of the message cannot be read; see docs/howto/foreign-messages.md."""


class OperationError(CeleryDLQError):
    """The operation cannot do that in its state; see: celery -A <app> dlq operations show."""


class UnknownOperation(CeleryDLQError):
    """No operation has this id; list them with: celery -A <app> dlq operations list."""


class OrdersError(CeleryDLQError):
    """A redrive cannot be made like this; see: celery -A <app> dlq redrive --help."""


class AsyncTaskError(CeleryDLQError):
    """Celery does not run coroutine functions; write the task as def, and call asyncio.run() in it."""


class TaskAborted(CeleryDLQError):
    """The task ended by an exception that would have taken its worker along."""


class TaskCancelled(CeleryDLQError):
    """The worker was shut down while the task ran, and its message had been acknowledged."""


class CircuitOpen(CeleryDLQError):
    """The circuit of the message is open: it waits, and is not run."""


class PoisonMessage(CeleryDLQError):
    """The message was started as often as dlq_max_deliveries allows, and its worker died each time."""


class HookError(CeleryDLQError):
    """A hook could not pass on what it was told; see docs/howto/hooks.md."""


class IngestError(CeleryDLQError):
    """The broker's queue could not be ingested; run: celery -A <app> dlq doctor."""


class ExporterError(CeleryDLQError):
    """The exporter cannot listen there; choose another --address or --port."""
