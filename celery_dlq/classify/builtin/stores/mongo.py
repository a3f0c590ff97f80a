"""MongoDB: PyMongo (and Motor, which raises the same), BSON, GridFS and MongoEngine."""

from __future__ import annotations

from celery_dlq.classify.builtin.behind import lasting_text
from celery_dlq.classify.evidence import mapping_item, message, number, read
from celery_dlq.classify.table import (
    Finding,
    Row,
    network,
    probed,
    terminal,
    transient,
    within,
    wrapper,
)
from celery_dlq.model.states import Verdict

# pymongo/helpers_shared.py: not primary, recovering, shutting down; the retryable-writes
# specification. Then src/mongo/base/error_codes.yml: a lock or write conflict, time limits, a lost
# cursor, a stale view of the shards, a refused rate; 16500 is the limit of Azure Cosmos DB.
TRANSIENT_CODES = frozenset(
    {
        6,
        7,
        89,
        91,
        134,
        189,
        262,
        9001,
        10058,
        10107,
        11600,
        11602,
        13435,
        13436,
        24,
        43,
        46,
        50,
        64,
        112,
        133,
        150,
        202,
        234,
        251,
        462,
        13388,
        16500,
    }
)

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
    return labelled(exc) or _by_code(read(exc, "code"))


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
    verdict = Verdict.TRANSIENT if passes else Verdict.TERMINAL
    return Finding(verdict, "mongo.bulk", f"code={listed} from writeConcernErrors")


def client_bulk_write(exc: BaseException) -> Finding | None:
    """Undecided where an exception in ``error`` ended it; else single documents were refused."""
    if issubclass(type(read(exc, "error")), BaseException):
        return None
    return Finding(Verdict.TERMINAL, "mongo.bulk", "some documents were refused")


def unreachable(exc: BaseException) -> Finding | None:
    """The message gathers what was wrong with each host; that is all there is of a certificate."""
    return lasting_text(message(exc))


def _by_code(value: object) -> Finding:
    code = number(value)
    verdict = Verdict.TRANSIENT if code in TRANSIENT_CODES else Verdict.TERMINAL
    return Finding(verdict, "mongo.code", f"code={code}")


def resolution(exc: BaseException) -> Finding:
    """A DNS server that did not answer in time is reported as a wrong configuration."""
    late = "resolution lifetime expired" in message(exc)
    verdict = Verdict.TRANSIENT if late else Verdict.TERMINAL
    return Finding(verdict, "mongo.configuration", "DNS timed out" if late else "configuration")


_PYMONGO = (
    # pymongo/errors.py.
    network("mongo.network", "pymongo.errors.ConnectionFailure", probe=unreachable),
    transient(
        "mongo.pool", "pymongo.errors.WaitQueueTimeoutError", "pymongo.pool_shared._PoolClosedError"
    ),
    terminal("mongo.duplicate", "pymongo.errors.DuplicateKeyError"),
    transient(
        "mongo.timeout", *within("pymongo.errors", "ExecutionTimeout WTimeoutError CursorNotFound")
    ),
    probed("mongo.bulk", bulk_write, "the codes in details", "pymongo.errors.BulkWriteError"),
    probed(
        "mongo.bulk",
        client_bulk_write,
        "the exception in error",
        "pymongo.errors.ClientBulkWriteException",
    ),
    probed(
        "mongo.code",
        operation,
        "the error labels, else the code",
        "pymongo.errors.OperationFailure",
    ),
    probed(
        "mongo.configuration",
        resolution,
        "whether DNS timed out",
        "pymongo.errors.ConfigurationError",
    ),
    wrapper("mongo.encryption", "the exception in cause", "pymongo.errors.EncryptionError"),
    terminal(
        "mongo.usage",
        *within("pymongo.errors", "InvalidOperation InvalidName CollectionInvalid ProtocolError"),
    ),
    terminal("mongo.usage", "bson.errors.BSONError", "gridfs.errors.GridFSError"),
)

_MONGOENGINE = (
    # mongoengine/errors.py; the base class is raised over PyMongo's exceptions.
    terminal(
        "mongo.model",
        *within(
            "mongoengine.errors",
            "NotUniqueError SaveConditionError DoesNotExist MultipleObjectsReturned NotRegistered "
            "InvalidDocumentError InvalidQueryError FieldDoesNotExist DeprecatedError LookUpError "
            "ValidationError",
        ),
    ),
    wrapper(
        "mongo.model",
        "PyMongo's exception",
        "mongoengine.errors.MongoEngineException",
        "mongoengine.connection.ConnectionFailure",
    ),
)

ROWS: tuple[Row, ...] = (*_PYMONGO, *_MONGOENGINE)
