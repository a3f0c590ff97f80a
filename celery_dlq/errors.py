"""Errors of this package. A subclass's docstring is its default message."""

from __future__ import annotations

import inspect


def page(topic: str) -> str:
    """The name of a documentation page for an error's text. Users of an installed package cannot find
    the files, so the text names the command that shows the page (``celery_dlq/cli/admin/help.py``)."""
    return f"`celery dlq help {topic}`"


class CeleryDLQError(Exception):
    """Something in celery_dlq went wrong."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or inspect.cleandoc(self.__doc__ or type(self).__name__))


class SettingsError(CeleryDLQError):
    """A dlq_* setting is not valid; run: celery dlq help settings."""


class MissingExtra(CeleryDLQError):
    """A package that this needs is not installed; install its extra, such as celery-dlq[postgres]."""


class StoreError(CeleryDLQError):
    """The dead-letter store failed; run: celery -A <app> dlq doctor."""


class StoreUnavailable(StoreError):
    """The dead-letter store does not answer; check dlq_store_url and that the database is up."""


class StoreTooSlow(StoreUnavailable):
    """The dead-letter store took too long; ask for less, or raise dlq_store_timeout."""


class SchemaError(StoreError):
    """The store's schema does not fit this release; run: celery -A <app> dlq db upgrade."""


class LeaseLost(StoreError):
    """Another worker has taken over. What was done before that stays."""


class RecordRefused(StoreError):
    """The dead-letter store does not accept this letter, although it accepts others."""


class UnknownLetter(CeleryDLQError):
    """No dead letter has this id; list them with: celery -A <app> dlq list."""


class LetterDeleted(UnknownLetter):
    """The letter was deleted; see: celery -A <app> dlq audit --act delete."""


class AmbiguousId(CeleryDLQError):
    """More than one dead letter has this prefix; give more characters of the id."""


class UnknownGroup(CeleryDLQError):
    """No group has this fingerprint; list them with: celery -A <app> dlq groups."""


class UnknownTask(CeleryDLQError):
    """This app has no task with that name; list its tasks with: celery -A <app> inspect registered."""


class UnknownRoute(CeleryDLQError):
    """Neither dlq_routes nor a letter has a route with this name; run: celery dlq help routes."""


class TriageError(CeleryDLQError):
    """This cannot be done with the group; see: celery -A <app> dlq groups --help."""


class FilterError(CeleryDLQError):
    """The filters contradict each other; see: celery -A <app> dlq list --help."""


class NamespaceError(FilterError, SettingsError):
    """dlq_namespace names several, and one is needed here; name it with --namespace, or in dlq_namespace."""


class DeletionError(FilterError):
    """These letters cannot be deleted; see: celery -A <app> dlq delete --help."""


class OpenLetters(DeletionError):
    """Open letters are deleted only on request and with a reason, because their messages are lost."""


class RedriveError(CeleryDLQError):
    """The redrive could not be carried out; run: celery -A <app> dlq doctor."""


class RepairError(CeleryDLQError):
    """The message cannot be changed in this way; run: celery dlq help repair-letters."""


class NothingChanged(RepairError):
    """Nothing was changed, so the letter stays as it is"""


class MessageChanged(RepairError):
    """The message has just changed, so nothing was done; look at the letter again."""


class FunctionHangs(RedriveError):
    """Functions that change messages do not end; run: celery dlq help repair-letters."""


class PayloadError(RepairError):
    """The body of the message cannot be read; run: celery dlq help foreign-messages."""


class BodyTooLarge(PayloadError):
    """The body of the message is too large to open; run: celery dlq help foreign-messages."""


class OperationError(CeleryDLQError):
    """The operation cannot do that in its state; see: celery -A <app> dlq operations show."""


class UnknownOperation(CeleryDLQError):
    """No operation has this id; list them with: celery -A <app> dlq operations list."""


class UnknownRequest(CeleryDLQError):
    """No request has this id; list them with: celery -A <app> dlq requests list."""


class RequestRefused(CeleryDLQError):
    """The request cannot be answered like this; see: celery -A <app> dlq requests show."""


class ApprovalNeeded(CeleryDLQError):
    """A second person has to approve this, so nothing was changed; see: celery -A <app> dlq requests list."""

    def __init__(self, message: str | None = None, request: str = "") -> None:
        super().__init__(message)
        #: The id of the request that the act became.
        self.request = request


class UnknownAutomation(CeleryDLQError):
    """No automatic redrive and no handler has this name; list them with: celery -A <app> dlq auto list."""


class OrdersError(CeleryDLQError):
    """These orders are not valid for a redrive; see: celery -A <app> dlq redrive --help."""


class AsyncTaskError(CeleryDLQError):
    """Celery does not run coroutine functions; run: celery dlq help async-tasks."""


class NoMessage(CeleryDLQError):
    """This run has no message, so it has no key; send the task with delay(), or call it with apply()."""


class TaskAborted(CeleryDLQError):
    """The task raised an exception that would have ended its worker."""


class TaskCancelled(CeleryDLQError):
    """The worker was shut down while the task ran, after its message was acknowledged."""


class CircuitOpen(CeleryDLQError):
    """The circuit of the message is open: the message waits and does not run."""


class PoisonMessage(CeleryDLQError):
    """The message was started as often as dlq_max_deliveries allows, and its worker died each time."""


class TaskLost(CeleryDLQError):
    """The worker was killed after it had acknowledged the message, and before the task had ended."""


class PoolFailed(CeleryDLQError):
    """The worker's pool does not accept tasks; restart the worker."""


class BrokerError(CeleryDLQError):
    """The broker does not answer; check broker_url and the broker."""


class HookError(CeleryDLQError):
    """A hook could not deliver its event; run: celery dlq help hooks."""


class HandlerError(CeleryDLQError):
    """A repair handler returned something that cannot be done; run: celery dlq help repair-and-escalate."""


class TicketError(CeleryDLQError):
    """The other system cannot open a ticket now, but may later; see: celery dlq help repair-and-escalate."""


class IngestError(CeleryDLQError):
    """The broker's queue could not be ingested; run: celery -A <app> dlq doctor."""


class ArchiveError(CeleryDLQError):
    """The archive failed; check dlq_archive_url. Letters that are not in it stay in the store."""


class ArchiveFileMissing(ArchiveError):
    """A file of the archive is missing; run: celery -A <app> dlq archive verify."""


class ArchiveDamaged(ArchiveError):
    """A file of the archive is damaged; run: celery -A <app> dlq archive verify."""


class ContentsSealed(CeleryDLQError):
    """The contents are encrypted and cannot be read here; run: celery dlq help encryption."""


class SealBroken(ContentsSealed):
    """An encrypted value was changed, cut, or moved here from another letter; it cannot be read."""


class ExporterError(CeleryDLQError):
    """The exporter cannot listen there; choose another --address or --port."""


class DrillError(CeleryDLQError):
    """The drill cannot take place here; run: celery -A <app> dlq doctor."""
