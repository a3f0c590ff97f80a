"""What the probed types of databases, stores and messaging carry, and what is made of it."""

import socket
from types import SimpleNamespace

from support.errors.synthetic import pretend

T, X = "transient", "terminal"


def cases():
    """(name, instance, verdict, rule) for each probed type: at least one of either verdict."""
    yield from _databases()
    yield from _warehouses()
    yield from _mappers()
    yield from _stores()
    yield from _elastic()
    yield from _messaging()


def _databases():
    name = "psycopg2.extensions.TransactionRollbackError"
    yield name, pretend(name, "lost its code"), T, "pg.sqlstate"
    yield name, pretend(name, pgcode="40P01"), T, "pg.sqlstate"
    for short in ("ConnectionException", "SqlclientUnableToEstablishSqlconnection",
                  "ConnectionDoesNotExist", "SqlserverRejectedEstablishmentOfSqlconnection",
                  "ConnectionFailure", "TransactionResolutionUnknown",
                  "IdleInTransactionSessionTimeout", "InsufficientResources", "DiskFull",
                  "OutOfMemory", "TooManyConnections", "ConfigurationLimitExceeded", "ObjectInUse",
                  "LockNotAvailable", "AdminShutdown", "CrashShutdown", "CannotConnectNow",
                  "IdleSessionTimeout", "TransactionTimeout", "SystemError", "IoError"):  # fmt: skip
        name = f"psycopg2.errors.{short}"
        yield name, pretend(name, "made without a server"), T, "pg.sqlstate"
        yield name, pretend(name, pgcode="42P01"), X, "pg.sqlstate"
    name = "psycopg2.extensions.QueryCanceledError"
    yield name, pretend(name, "canceling statement due to statement timeout"), T, "pg.sqlstate"
    yield name, pretend(name, "canceling statement due to user request"), X, "pg.sqlstate"
    name = "pg8000.exceptions.Error"
    yield name, pretend(name, {"C": "40001", "M": "could not serialize"}), T, "pg.sqlstate"
    yield name, pretend(name, {"C": "57014", "M": "due to statement timeout"}), T, "pg.sqlstate"
    yield name, pretend(name, {"C": "42P01", "M": "no table"}), X, "pg.sqlstate"
    yield name, pretend(name, "Can't create a connection to host db"), T, "pg.message"
    yield name, pretend(name, "network error"), T, "pg.message"
    yield name, pretend(name, "what"), X, "default"
    for name in ("asyncmy.errors.MySQLError", "_mysql_exceptions.MySQLError", "mariadb.Error"):
        yield name, pretend(name, 1213, "Deadlock found"), T, "mysql.errno"
        yield name, pretend(name, 1146, "no table"), X, "mysql.errno"
        yield name, pretend(name, 1047, "WSREP has not yet prepared node for"), T, "mysql.errno"
        yield name, pretend(name, 1047, "Unknown command"), X, "mysql.errno"
    for name in ("oracledb.exceptions.Error", "cx_Oracle.Error"):
        for code, verdict in ((60, T), (54, T), (3113, T), (12541, T), (1, X), (942, X), (1017, X)):
            yield name, pretend(name, SimpleNamespace(code=code)), verdict, "oracle.code"
        for code, verdict in (("DPY-4011", T), ("DPY-6005", T), ("DPI-1080", T), ("DPY-4009", X)):
            yield name, pretend(name, SimpleNamespace(full_code=code)), verdict, "oracle.code"
            said = SimpleNamespace(message=f"{code}: says the driver", code=0)
            yield name, pretend(name, said), verdict, "oracle.code"
        yield name, pretend(name, SimpleNamespace(isrecoverable=True, code=9)), T, "oracle.code"
        yield name, pretend(name, "what"), X, "default"
    for name in ("pymssql.exceptions.Error", "pymssql._pymssql.Error",
                 "pymssql._mssql.MSSQLException", "_mssql.MSSQLException"):  # fmt: skip
        yield name, pretend(name, 1205, b"deadlocked"), T, "mssql.number"
        yield name, pretend(name, (20009, b"unable to connect")), T, "mssql.number"
        yield name, pretend(name, number=40613), T, "mssql.number"
        yield name, pretend(name, (18456, b"login failed")), X, "mssql.number"
        yield name, pretend(name, 2627, b"duplicate"), X, "mssql.number"
        yield name, pretend(name, "Connection is closed"), T, "mssql.number"
        yield name, pretend(name, "what"), X, "default"
    name, server = "pyodbc.Error", "[Microsoft][ODBC Driver 18 for SQL Server]"
    for sqlstate, text, verdict in (
        ("40001", f"{server}[SQL Server]was deadlocked (1205) (SQLExecDirectW)", T),
        ("42000", f"{server}[SQL Server]Database is not available (40613) (SQLDriverConnect)", T),
        ("HYT00", f"{server}Login timeout expired (0) (SQLDriverConnect)", T),
        ("08S01", f"{server}Communication link failure (10054) (SQLExecDirectW)", T),
        ("08001", f"{server}SSL Provider: [error:0A000086::certificate verify failed]", X),
        ("28000", f"{server}[SQL Server]Login failed for user 'sa'. (18456) (SQLDriverConnect)", X),
        ("42S02", f"{server}[SQL Server]Invalid object name 't'. (208) (SQLExecDirectW)", X),
        ("23000", f"{server}[SQL Server]Violation of UNIQUE KEY. (2627) (SQLExecDirectW)", X),
        ("IM002", "[unixODBC][Driver Manager]Data source name not found", X),
    ):
        rule = "tls.certificate" if "certificate" in text else "mssql.number"
        yield name, pretend(name, sqlstate, text), verdict, rule
    yield name, pretend(name, "no cursor"), X, "default"


def _warehouses():
    name = "snowflake.connector.errors.Error"
    for code in (250002, 250003, 251011, 252010, 253003, 625, 630):
        yield name, pretend(name, "x", errno=code), T, "snowflake.errno"
    for code in (250001, 390100, 2003, 1003, 604, 254007):
        refused = pretend(name, "x", errno=code, sqlstate="08001")
        yield name, refused, X, "snowflake.errno"
    yield name, pretend(name, "x", errno=-1, sqlstate="n/a"), X, "default"
    lost = pretend(name, "x", errno=250003, reason=socket.gaierror(-2, "x"))
    yield name, lost, X, "dns.lookup"
    name = "trino.exceptions.HttpError"
    yield name, pretend(name, "error 429: b'slow down'"), T, "http.status"
    yield name, pretend(name, "error 404"), X, "http.status"
    yield name, pretend(name, "an error 503"), X, "default"
    name = "trino.exceptions.TrinoQueryError"
    for word in ("CLUSTER_OUT_OF_MEMORY", "QUERY_QUEUE_FULL", "SERVER_STARTING_UP"):
        yield name, pretend(name, error_name=word), T, "trino.name"
    for word in ("SYNTAX_ERROR", "EXCEEDED_LOCAL_MEMORY_LIMIT", "GENERIC_INTERNAL_ERROR", None):
        yield name, pretend(name, error_name=word), X, "trino.name"


def _mappers():
    for name in ("django.db.utils.Error", "peewee.PeeweeException"):
        yield name, pretend(name, 1213, "Deadlock found"), T, "mysql.errno"
        yield name, pretend(name, 1054, "Unknown column"), X, "mysql.errno"
        yield name, pretend(name, "database is locked"), T, "sqlite.code"
        yield name, pretend(name, "server closed the connection unexpectedly"), T, "pg.message"
        yield name, pretend(name, 'database "x" does not exist'), X, "pg.message"
        yield name, pretend(name, "what"), X, "default"
        yield name, pretend(name, pretend("psycopg.Error", sqlstate="40001")), T, "pg.sqlstate"
    name = "tortoise.exceptions.DBConnectionError"
    yield name, pretend(name, "Can't connect"), T, "tortoise.connection"
    yield name, pretend(name, pretend("asyncpg.x.Y", sqlstate="3D000")), X, "pg.sqlstate"
    name = "rest_framework.exceptions.APIException"
    yield name, pretend(name, status_code=503), T, "http.status"
    yield name, pretend(name, status_code=500), X, "http.status"
    yield name, pretend(name, status_code=400), X, "http.status"
    name = "rest_framework.exceptions.Throttled"
    yield name, pretend(name, wait=30), T, "drf.throttled"
    yield name, pretend(name, wait=None), T, "drf.throttled"


def _stores():
    for name in ("valkey.exceptions.ResponseError", "coredis.exceptions.ResponseError"):
        yield (
            name,
            pretend(name, "LOADING Redis is loading the dataset in memory"),
            T,
            "redis.reply",
        )
        yield name, pretend(name, "NOSCRIPT No matching script"), X, "redis.reply"
        annotated = "Command # 2 (SET a 1) of pipeline caused error: {} says the server"
        yield name, pretend(name, annotated.format("OOM")), T, "redis.reply"
        yield name, pretend(name, annotated.format("WRONGTYPE")), X, "redis.reply"
    name = "valkey.exceptions.LockError"
    yield name, pretend(name, "Unable to acquire lock within the time specified"), T, "redis.lock"
    yield name, pretend(name, "Cannot extend a lock with no timeout"), X, "redis.lock"
    name = "redis.http.http_client.HttpError"
    yield name, pretend(name, status=503), T, "http.status"
    yield name, pretend(name, status=404), X, "http.status"
    for name, brand in (("redis.exceptions.RedisClusterException", "Redis"),
                        ("valkey.exceptions.ValkeyClusterException", "Valkey")):  # fmt: skip
        yield (
            name,
            pretend(name, f"{brand} Cluster cannot be connected. Please"),
            T,
            "redis.cluster",
        )
        yield name, pretend(name, "TTL exhausted."), T, "redis.cluster"
        yield (
            name,
            pretend(name, "RENAME - all keys must map to the same key slot"),
            X,
            "redis.cluster",
        )
    name = "pymongo.errors.OperationFailure"
    for code, verdict in ((112, T), (91, T), (16500, T), (11000, X), (13, X), (18, X), (121, X)):
        yield name, pretend(name, "x", code=code), verdict, "mongo.code"
    labels = {"errorLabels": ["TransientTransactionError"]}
    yield name, pretend(name, code=251, details=labels), T, "mongo.label"
    name = "pymongo.errors.ConnectionFailure"
    yield name, pretend(name, "h:1: [Errno 111] Connection refused"), T, "mongo.network"
    yield name, pretend(name, "h:1: certificate verify failed: self-signed"), X, "tls.certificate"
    yield name, pretend(name, "h:1: [Errno -2] Name or service not known"), X, "dns.lookup"
    name = "pymongo.errors.BulkWriteError"
    yield name, pretend(name, details={"writeConcernErrors": [{"code": 64}]}), T, "mongo.bulk"
    refused = {"writeErrors": [{"code": 11000}], "writeConcernErrors": [{"code": 64}]}
    yield name, pretend(name, details=refused), X, "mongo.bulk"
    yield name, pretend(name, details={"writeConcernErrors": [{"code": 100}]}), X, "mongo.bulk"
    yield name, pretend(name, details={}), X, "mongo.bulk"
    name = "pymongo.errors.ClientBulkWriteException"
    lost = TimeoutError("inner")
    yield name, pretend(name, lost, error=lost), T, "os.network"
    yield name, pretend(name, error=None), X, "mongo.bulk"
    name = "pymongo.errors.ConfigurationError"
    yield (
        name,
        pretend(name, "The resolution lifetime expired after 21 s"),
        T,
        "mongo.configuration",
    )
    yield name, pretend(name, "Unknown option"), X, "mongo.configuration"
    name = "cassandra.cluster.NoHostAvailable"
    yield name, pretend(name, errors={"h": OSError(111, "refused")}), T, "cassandra.host"
    refusal = pretend("cassandra.AuthenticationFailed", "bad password")
    yield name, pretend(name, errors={"h": refusal}), X, "cassandra.host"
    name = "neo4j.exceptions.Neo4jError"
    yield name, pretend(name, code="Neo.TransientError.General.OutOfMemoryError"), T, "neo4j.code"
    yield name, pretend(name, code="Neo.DatabaseError.General.UnknownError"), X, "neo4j.code"
    renewed = pretend(name, code="Neo.ClientError.Security.TokenExpired", is_retryable=lambda: True)
    yield name, renewed, T, "neo4j.retryable"
    name = "neo4j.exceptions.DriverError"
    yield name, pretend(name, is_retryable=lambda: True), T, "neo4j.retryable"
    yield name, pretend(name, is_retryable=lambda: False), X, "default"
    yield name, pretend(name, cause=ConnectionResetError()), T, "os.network"
    for name in ("clickhouse_driver.errors.Error", "clickhouse_driver.dbapi.errors.Error",
                 "clickhouse_connect.driver.exceptions.ClickHouseError"):  # fmt: skip
        for code, verdict in ((202, T), (210, T), (252, T), (60, X), (62, X), (516, X)):
            yield name, pretend(name, code=code), verdict, "clickhouse.code"
            yield name, pretend(name, f"Code: {code}. DB::Exception"), verdict, "clickhouse.code"
        yield name, pretend(name, "returned response code 503)"), T, "http.status"
        yield name, pretend(name, "returned response code 401)"), X, "http.status"
        yield name, pretend(name, "what"), X, "default"
    name = "pymemcache.exceptions.MemcacheError"
    yield name, pretend(name, "All servers seem to be down right now"), T, "memcached.error"
    yield name, pretend(name, "b'out of memory storing object'"), T, "memcached.error"
    yield name, pretend(name, "b'object too large for cache'"), X, "memcached.error"
    name = "pylibmc.Error"
    yield (
        name,
        pretend(name, "error 31 from memcached_get: A TIMEOUT OCCURRED"),
        T,
        "memcached.error",
    )
    yield name, pretend(name, "error 2 from memcached_set: A BAD KEY"), X, "memcached.error"
    for module in ("_duckdb", "duckdb"):
        name = f"{module}.IOException"
        yield name, pretend(name, 'IO Error: Could not set lock on file "x"'), T, "duckdb.io"
        yield name, pretend(name, "IO Error: Cannot open file"), X, "duckdb.io"
        name = f"{module}.HTTPException"
        yield name, pretend(name, status_code=503), T, "http.status"
        yield name, pretend(name, status_code=404), X, "http.status"


def _elastic():
    name = "elastic_transport.ApiError"
    for status, verdict in ((429, T), (503, T), (404, X), (409, X)):
        yield name, pretend(name, meta=SimpleNamespace(status=status)), verdict, "http.status"
    for name in ("elastic_transport.ConnectionError", "elastic_transport.SniffingError"):
        refused, unknown = OSError(111, "x"), socket.gaierror(socket.EAI_NONAME, "x")
        yield name, pretend(name, message="x", errors=(refused,)), T, "search.network"
        yield name, pretend(name, message="x", errors=(refused, unknown)), X, "dns.lookup"
    for module in ("opensearchpy.exceptions", "elasticsearch.exceptions", "elastic_transport"):
        name = f"{module}.TransportError"
        yield name, pretend(name, status_code=503), T, "http.status"
        yield name, pretend(name, status_code=400), X, "http.status"
        yield name, pretend(name, status_code="N/A"), X, "default"
    for name in ("elasticsearch.helpers.BulkIndexError", "elasticsearch.helpers.errors.BulkIndexError",
                 "opensearchpy.helpers.errors.BulkIndexError"):  # fmt: skip
        busy, wrong = {"index": {"status": 429}}, {"create": {"status": 400}}
        yield name, pretend(name, errors=[busy, busy]), T, "search.bulk"
        yield name, pretend(name, errors=[busy, wrong]), X, "search.bulk"
        yield name, pretend(name, errors=[]), X, "search.bulk"


def _messaging():
    for name in ("kafka.errors.KafkaError", "aiokafka.errors.KafkaError"):
        yield name, pretend(name, retriable=True), T, "kafka.retriable"
        yield name, pretend(name, retriable=False), X, "kafka.retriable"
    for name in ("cimpl.KafkaException", "confluent_kafka.cimpl.KafkaException"):
        yield name, pretend(name, "no error object"), X, "default"
    name = "confluent_kafka.schema_registry.error.SchemaRegistryError"
    yield name, pretend(name, http_status_code=503), T, "http.status"
    yield name, pretend(name, http_status_code=409), X, "http.status"
    for name in ("pika.exceptions.ConnectionClosed", "pika.exceptions.ChannelClosed",
                 "aiormq.exceptions.ChannelClosed", "aiormq.exceptions.ConnectionClosed"):  # fmt: skip
        yield name, pretend(name, 320, "CONNECTION_FORCED"), T, "amqp.reply"
        yield name, pretend(name, 405, "RESOURCE_LOCKED"), T, "amqp.reply"
        yield name, pretend(name, 404, "NOT_FOUND"), X, "amqp.reply"
        yield name, pretend(name, 503, "COMMAND_INVALID"), X, "amqp.reply"
    name = "nats.js.errors.APIError"
    yield name, pretend(name, code=503), T, "http.status"
    yield name, pretend(name, code=404), X, "http.status"
