"""Probes of MongoDB: PyMongo, and Motor, which raises the same."""

from __future__ import annotations

from celery_dlq.classify.builtin.behind import lasting_text
from celery_dlq.classify.evidence import mapping_item, message, number, read
from celery_dlq.classify.table import Finding, transient_if
from celery_dlq.model.states import Verdict

# pymongo/helpers_shared.py: not primary, recovering, shutting down; the retryable-writes
# specification. Then src/mongo/base/error_codes.yml: a lock or write conflict, time limits, a lost
# cursor, a stale view of the shards, a refused rate; 16500 is the limit of Azure Cosmos DB.
TRANSIENT_CODES = frozenset(
    {
        6, 7, 89, 91, 134, 189, 262, 9001, 10058, 10107, 11600, 11602, 13435, 13436,
        24, 43, 46, 50, 64, 112, 133, 150, 202, 234, 251, 462, 13388, 16500,
    }
)  # fmt: skip

#: The server's own advice: specifications "Transactions" and "Retryable Writes".
_TRANSIENT_LABELS = frozenset(
    {"RetryableWriteError", "TransientTransactionError", "RetryableError", "SystemOverloadedError"}
)

_BATCH_LIMIT = 10_000


def labelled(exc: BaseException) -> Finding | None:
    """``errorLabels`` of the server's answer."""
    labels = mapping_item(read(exc, "details"), "errorLabels")
    found = [item for item in labels if type(item) is str] if type(labels) is list else []
    known = _TRANSIENT_LABELS.intersection(found)
    if not known:
        return None
    return Finding(Verdict.TRANSIENT, "mongo.label", f"label={min(known)}")


def operation(exc: BaseException) -> Finding:
    """The labels, else the code, of a failed operation."""
    code = number(read(exc, "code"))
    return labelled(exc) or transient_if(code in TRANSIENT_CODES, "mongo.code", f"code={code}")


def bulk_write(exc: BaseException) -> Finding:
    """Only a bulk write whose every document was written may hang on its write concern alone."""
    details = read(exc, "details")
    if mapping_item(details, "writeErrors"):
        return Finding(Verdict.TERMINAL, "mongo.bulk", "some documents were refused")
    errors = mapping_item(details, "writeConcernErrors")
    if type(errors) is not list or not errors:
        return labelled(exc) or Finding(Verdict.TERMINAL, "mongo.bulk", "no write concern error")
    codes = [number(mapping_item(error, "code")) for error in errors[:_BATCH_LIMIT]]
    passes = all(code in TRANSIENT_CODES for code in codes)
    listed = ",".join(sorted({str(code) for code in codes}))
    return transient_if(passes, "mongo.bulk", f"code={listed} from writeConcernErrors")


def client_bulk_write(exc: BaseException) -> Finding | None:
    """Undecided if an exception in ``error`` ended it; otherwise single documents were refused."""
    if issubclass(type(read(exc, "error")), BaseException):
        return None
    return Finding(Verdict.TERMINAL, "mongo.bulk", "some documents were refused")


def unreachable(exc: BaseException) -> Finding | None:
    """The message collects the error of each host; a certificate is mentioned nowhere else."""
    return lasting_text(message(exc))


def resolution(exc: BaseException) -> Finding:
    """A DNS server that did not answer in time is reported as a wrong configuration."""
    late = "resolution lifetime expired" in message(exc)
    return transient_if(late, "mongo.configuration", "DNS timed out" if late else "configuration")
