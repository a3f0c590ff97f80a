"""Every class of the libraries that have one class for each code: built as the library builds it."""

import inspect

import pytest
from support.errors.verdicts import judge, raised

from celery_dlq.classify import decide

# PostgreSQL documentation, appendix A; written out here so that the table does not test itself.
PASSING = {
    "08000", "08001", "08003", "08004", "08006", "08007", "25P03", "25P04", "40000", "40001",
    "40002", "40003", "40P01", "53000", "53100", "53200", "53300", "53400", "55006", "55P03",
    "57P01", "57P02", "57P03", "57P05", "58000", "58030",
}  # fmt: skip


def expected(sqlstate):
    return "transient" if sqlstate in PASSING else "terminal"


def classes(module, base):
    found = {kind for _, kind in inspect.getmembers(module, inspect.isclass)}
    return sorted(
        (kind for kind in found if issubclass(kind, base)), key=lambda kind: kind.__name__
    )


def test_every_sqlstate_of_psycopg():
    errors = pytest.importorskip("psycopg.errors")
    known = [kind for kind in classes(errors, errors.Error) if kind.sqlstate]
    assert len(known) > 200
    wrong = {
        kind.__name__: kind.sqlstate
        for kind in known
        if judge(kind("x")) != (expected(kind.sqlstate), "pg.sqlstate")
    }
    assert wrong == {}


def test_every_sqlstate_of_asyncpg():
    exceptions = pytest.importorskip("asyncpg.exceptions")
    known = [kind for kind in classes(exceptions, exceptions.PostgresError) if kind.sqlstate]
    assert len(known) > 200
    wrong = {}
    for kind in known:
        # As asyncpg makes them from the fields of the server's message.
        exc = exceptions.PostgresError.new({"C": kind.sqlstate, "M": "x", "S": "ERROR"})
        if judge(exc) != (expected(kind.sqlstate), "pg.sqlstate"):
            wrong[kind.__name__] = kind.sqlstate
    assert wrong == {}


def test_every_rollback_of_psycopg2_without_its_code():
    extensions = pytest.importorskip("psycopg2.extensions")
    errors = pytest.importorskip("psycopg2.errors")
    known = classes(errors, extensions.TransactionRollbackError)
    assert len(known) >= 4
    assert {judge(kind("x")) for kind in known} == {("transient", "pg.sqlstate")}


def test_every_class_of_psycopg2_without_its_code():
    errors = pytest.importorskip("psycopg2.errors")
    lookup = errors.lookup
    passing = {code for code in PASSING if not code.startswith("40")}
    assert {judge(lookup(code)("x"))[0] for code in passing} == {"transient"}
    lasting = ("23505", "23503", "42P01", "25006", "28P01", "28000", "3D000", "22P02", "57014")
    assert {judge(lookup(code)("x"))[0] for code in lasting} == {"terminal"}
    timeout = "canceling statement due to statement timeout"
    assert judge(errors.QueryCanceled(timeout)) == ("transient", "pg.sqlstate")


MYSQL_PASSING = {
    "CON_COUNT_ERROR", "LOCK_WAIT_TIMEOUT", "LOCK_DEADLOCK", "XA_RBDEADLOCK", "XA_RBTIMEOUT",
    "CHECKREAD", "TOO_MANY_USER_CONNECTIONS", "USER_LIMIT_REACHED", "SERVER_SHUTDOWN",
    "SHUTDOWN_COMPLETE", "ABORTING_CONNECTION", "NEW_ABORTING_CONNECTION",
    "NET_READ_ERROR_FROM_PIPE", "NET_READ_ERROR", "NET_READ_INTERRUPTED", "NET_ERROR_ON_WRITE",
    "NET_WRITE_INTERRUPTED", "OUTOFMEMORY", "OUT_OF_RESOURCES", "CANT_CREATE_THREAD",
    "GET_TEMPORARY_ERRMSG", "TABLE_DEF_CHANGED", "NEED_REPREPARE", "LOCK_ABORTED",
    "TOO_MANY_CONCURRENT_TRXS", "BAD_HOST_ERROR", "CONNECTION_KILLED",
    "STATEMENT_TIMEOUT", "QUERY_TIMEOUT",
}  # fmt: skip


def test_every_number_of_pymysql():
    err = pytest.importorskip("pymysql.err")
    constants = pytest.importorskip("pymysql.constants")
    wrong = []
    for table in (constants.ER, constants.CR):
        for name, code in vars(table).items():
            if not name.isupper() or type(code) is not int or code < 1_000:
                continue
            kind = err.error_map.get(code, err.OperationalError)
            verdict, rule = judge(kind(code, "x"))
            assert rule == "mysql.errno"
            if table is constants.ER and (verdict == "transient") is not (name in MYSQL_PASSING):
                wrong.append((name, code, verdict))
    assert wrong == []


def test_every_class_of_kafka_python_says_so_itself():
    errors = pytest.importorskip("kafka.errors")
    known = [kind for kind in classes(errors, errors.KafkaError) if kind.__init__ is not None]
    assert len(known) > 100
    for kind in known:
        try:
            exc = kind()
        except TypeError:
            continue
        assert judge(exc)[0] == ("transient" if kind.retriable else "terminal"), kind


#: Classes of aiokafka that stand for a broker, or a lock, that will be there again.
AIOKAFKA_TRANSIENT = {
    "KafkaConnectionError", "KafkaTimeoutError", "KafkaUnavailableError", "NoBrokersAvailable",
}  # fmt: skip


def test_every_class_of_aiokafka():
    errors = pytest.importorskip("aiokafka.errors")
    known = classes(errors, errors.KafkaError)
    assert len(known) > 80
    for kind in known:
        try:
            exc = kind()
        except TypeError:
            continue
        passes = kind.retriable or kind.__name__ in AIOKAFKA_TRANSIENT
        assert judge(exc)[0] == ("transient" if passes else "terminal"), kind


LIBRDKAFKA = {
    "_TRANSPORT": "transient",
    "_TIMED_OUT": "transient",
    "_ALL_BROKERS_DOWN": "transient",
    "_MSG_TIMED_OUT": "transient",
    "_RESOLVE": "transient",
    "_QUEUE_FULL": "transient",
    "LEADER_NOT_AVAILABLE": "transient",
    "NOT_LEADER_FOR_PARTITION": "transient",
    "REQUEST_TIMED_OUT": "transient",
    "NOT_ENOUGH_REPLICAS": "transient",
    "COORDINATOR_LOAD_IN_PROGRESS": "transient",
    "_AUTHENTICATION": "terminal",
    "_FATAL": "terminal",
    "_INVALID_ARG": "terminal",
    "_BAD_MSG": "terminal",
    "_SSL": "terminal",
    "MSG_SIZE_TOO_LARGE": "terminal",
    "TOPIC_AUTHORIZATION_FAILED": "terminal",
    "SASL_AUTHENTICATION_FAILED": "terminal",
    "GROUP_AUTHORIZATION_FAILED": "terminal",
    "POLICY_VIOLATION": "terminal",
    "INVALID_CONFIG": "terminal",
}


@pytest.mark.parametrize(("name", "verdict"), LIBRDKAFKA.items())
def test_codes_of_confluent_kafka(name, verdict):
    library = pytest.importorskip("confluent_kafka")
    error = library.KafkaError(getattr(library.KafkaError, name))
    assert judge(library.KafkaException(error)) == (verdict, "kafka.code")
    assert judge(library.error.ProduceError(error))[0] == verdict
    assert judge(library.error.KeySerializationError(exception=ValueError("x")))[0] == "terminal"


def test_flags_of_confluent_kafka():
    library = pytest.importorskip("confluent_kafka")
    code = library.KafkaError.INVALID_TXN_STATE
    passing = library.KafkaException(library.KafkaError(code, "x", False, True))
    lasting = library.KafkaException(library.KafkaError(library.KafkaError._TRANSPORT, "x", True))
    assert decide(passing).evidence == f"code={code}, retriable"
    assert judge(lasting) == ("terminal", "kafka.code")


NEO4J = {
    "Neo.TransientError.Transaction.DeadlockDetected": "transient",
    "Neo.TransientError.General.MemoryPoolOutOfMemoryError": "transient",
    "Neo.TransientError.General.DatabaseUnavailable": "transient",
    "Neo.ClientError.Cluster.NotALeader": "transient",
    "Neo.ClientError.General.ForbiddenOnReadOnlyDatabase": "transient",
    "Neo.TransientError.Transaction.Terminated": "terminal",
    "Neo.ClientError.Security.Unauthorized": "terminal",
    "Neo.ClientError.Security.Forbidden": "terminal",
    "Neo.ClientError.Statement.SyntaxError": "terminal",
    "Neo.ClientError.Schema.ConstraintValidationFailed": "terminal",
    "Neo.DatabaseError.General.UnknownError": "terminal",
}


@pytest.mark.parametrize(("code", "verdict"), NEO4J.items())
def test_codes_of_neo4j(code, verdict):
    exceptions = pytest.importorskip("neo4j.exceptions")
    # As the driver makes them from a FAILURE message.
    exc = exceptions.Neo4jError._hydrate_neo4j(code=code, message="x")
    assert judge(exc)[0] == verdict


def test_an_error_that_neo4j_calls_retryable():
    exceptions = pytest.importorskip("neo4j.exceptions")
    exc = exceptions.Neo4jError._hydrate_neo4j(
        code="Neo.ClientError.Security.TokenExpired", message="x"
    )
    # As the pool does after the token was renewed.
    exc._retryable = True
    assert judge(exc) == ("transient", "neo4j.retryable")


def test_classes_of_neo4j():
    exceptions = pytest.importorskip("neo4j.exceptions")
    for kind in (
        exceptions.SessionExpired,
        exceptions.ReadServiceUnavailable,
        exceptions.RoutingServiceUnavailable,
    ):
        assert judge(kind("x"))[0] == "transient", kind
    for kind in (
        exceptions.IncompleteCommit,
        exceptions.ResultConsumedError,
        exceptions.ConfigurationError,
    ):
        assert judge(kind("x"))[0] == "terminal", kind


def test_classes_of_cassandra():
    import_ = pytest.importorskip
    cassandra, cluster = import_("cassandra"), import_("cassandra.cluster")
    connection, pool = import_("cassandra.connection"), import_("cassandra.pool")
    lost = connection.ConnectionShutdown("x")
    for exc, verdict in (
        (cassandra.OperationTimedOut(), "transient"),
        (cassandra.Unavailable("x"), "transient"),
        (cassandra.ReadTimeout("x"), "transient"),
        (cassandra.WriteTimeout("x", write_type=0), "transient"),
        (lost, "transient"),
        (pool.NoConnectionsAvailable("x"), "transient"),
        (cluster.NoHostAvailable("x", {"a": lost}), "transient"),
        (
            cluster.NoHostAvailable("x", {"a": lost, "b": cassandra.AuthenticationFailed("x")}),
            "terminal",
        ),
        (cassandra.InvalidRequest("x"), "terminal"),
        (cassandra.Unauthorized("x"), "terminal"),
        (cassandra.AlreadyExists("k", "t"), "terminal"),
        (cassandra.AuthenticationFailed("x"), "terminal"),
        (connection.ProtocolVersionUnsupported("h", 4), "terminal"),
    ):
        assert judge(exc)[0] == verdict, exc


MONGO = {112: "transient", 50: "transient", 43: "transient", 91: "transient", 189: "transient",
         10107: "transient", 13435: "transient", 11600: "transient", 262: "transient", 64: "transient",
         11000: "terminal", 13: "terminal", 18: "terminal", 121: "terminal", 9: "terminal",
         59: "terminal", 2: "terminal", 26: "terminal"}  # fmt: skip


@pytest.mark.parametrize(("code", "verdict"), MONGO.items())
def test_codes_of_mongodb(code, verdict):
    errors = pytest.importorskip("pymongo.errors")
    shared = pytest.importorskip("pymongo.helpers_shared")
    answer = {"ok": 0, "code": code, "errmsg": "x"}
    exc = raised(shared._check_command_response, answer, 17)
    assert issubclass(type(exc), errors.PyMongoError)
    assert judge(exc)[0] == verdict


def test_labels_and_batches_of_mongodb():
    errors = pytest.importorskip("pymongo.errors")
    labelled = {"errorLabels": ["TransientTransactionError"]}
    assert judge(errors.OperationFailure("x", 251, labelled))[0] == "transient"
    late = {"writeErrors": [], "writeConcernErrors": [{"code": 64, "errmsg": "waiting"}]}
    assert judge(errors.BulkWriteError(late)) == ("transient", "mongo.bulk")
    double = {"writeErrors": [{"code": 11000}], "writeConcernErrors": []}
    assert judge(errors.BulkWriteError(double)) == ("terminal", "mongo.bulk")
    assert judge(errors.DuplicateKeyError("x", 11000)) == ("terminal", "mongo.duplicate")
    for name in ("NetworkTimeout", "NotPrimaryError", "AutoReconnect", "WaitQueueTimeoutError"):
        assert judge(getattr(errors, name)("x"))[0] == "transient", name
    for name in ("InvalidOperation", "InvalidURI", "InvalidName", "CollectionInvalid"):
        assert judge(getattr(errors, name)("x"))[0] == "terminal", name


def test_errors_of_drf(django):
    exceptions = pytest.importorskip("rest_framework.exceptions")

    decision = decide(exceptions.Throttled(wait=12.3))
    assert (decision.verdict.value, decision.rule) == ("transient", "drf.throttled")
    assert decision.retry_after == 13
    assert decision.throttled
    assert decide(exceptions.Throttled()).retry_after is None
    for kind in (exceptions.ValidationError, exceptions.NotFound, exceptions.PermissionDenied,
                 exceptions.NotAuthenticated, exceptions.APIException):  # fmt: skip
        assert judge(kind()) == ("terminal", "http.status"), kind


def test_errors_of_django():
    core = pytest.importorskip("django.core.exceptions")
    utils = pytest.importorskip("django.db.utils")
    for kind in (core.ObjectDoesNotExist, core.ValidationError, core.ImproperlyConfigured,
                 core.SuspiciousOperation, core.PermissionDenied):  # fmt: skip
        assert judge(kind("x")) == ("terminal", "django.usage"), kind
    # The driver's exception is gone, as after pickling.
    assert judge(utils.OperationalError("database is locked")) == ("transient", "sqlite.code")
    assert judge(utils.OperationalError(1213, "Deadlock found")) == ("transient", "mysql.errno")
    assert judge(utils.IntegrityError("UNIQUE constraint failed: t.id")) == ("terminal", "default")


ORACLE = {"ORA-00060": "transient", "ORA-00054": "transient", "ORA-08177": "transient",
          "ORA-03113": "transient", "ORA-12541": "transient", "ORA-01033": "transient",
          "ORA-00001": "terminal", "ORA-00942": "terminal", "ORA-01017": "terminal",
          "ORA-01400": "terminal"}  # fmt: skip


@pytest.mark.parametrize(("code", "verdict"), ORACLE.items())
def test_numbers_of_oracle(code, verdict):
    errors = pytest.importorskip("oracledb.errors")
    # As the thin driver makes them from the server's error message.
    error = errors._Error(f"{code}: says the server", code=int(code[4:]))
    assert judge(error.exc_type(error)) == (verdict, "oracle.code")
