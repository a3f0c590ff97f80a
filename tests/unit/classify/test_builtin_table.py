"""Each row of the built-in table: it decides as it says."""

import socket
import ssl

import pytest
from support.errors import databases as errors_of_databases
from support.errors import mail as errors_of_mail
from support.errors import services as errors_of_services
from support.errors.synthetic import answer, pretend
from support.errors.verdicts import judge

from celery_dlq.classify import decide
from celery_dlq.classify.builtin.databases import MYSQL_NUMBERS
from celery_dlq.classify.builtin.http import TRANSIENT_STATUSES
from celery_dlq.classify.builtin.known import ROOT_CAUSES, TABLE
from celery_dlq.classify.evidence import dotted_name
from celery_dlq.classify.table import Row, Table
from celery_dlq.model.states import Verdict

NAMES = [(name, row) for row in TABLE.rows for name in row.names]

CONSTANT = [(name, row) for name, row in NAMES if row.verdict is not None]
NETWORK = [(name, row) for name, row in NAMES if row.network]
PROBED = [(name, row) for name, row in NAMES if row.probe is not None]
WRAPPERS = [
    (name, row) for name, row in NAMES if not (row.verdict or row.network or row.probe or row.group)
]


def test_constant_rows():
    wrong = {}
    for name, row in CONSTANT:
        decision = decide(pretend(name))
        found = (decision.verdict, decision.rule, decision.evidence)
        if found != (row.verdict, row.rule, f"type={name.removeprefix('builtins.')}"):
            wrong[name] = found
    assert wrong == {}


def test_network_rows():
    certificate, unknown = ssl.SSLCertVerificationError(1, "x"), socket.gaierror(-2, "x")
    busy = socket.gaierror(socket.EAI_AGAIN, "x")
    wrong = {}
    for name, row in NETWORK:
        found = (
            judge(pretend(name, "it broke")),
            judge(pretend(name, "x", reason=certificate)),
            judge(pretend(name, "x", reason=unknown)),
            judge(pretend(name, "x", reason=busy))[0],
        )
        if found != (
            ("transient", row.rule),
            ("terminal", "tls.certificate"),
            ("terminal", "dns.lookup"),
            "transient",
        ):
            wrong[name] = found
    assert wrong == {}


def test_wrapper_rows():
    wrong = {}
    for name, _ in WRAPPERS:
        found = (
            decide(pretend(name, reason=TimeoutError())).rule,
            decide(pretend(name, reason=KeyError())).rule,
            decide(pretend(name, status_code=503, sqlstate="40001")).rule,
        )
        if found != ("os.network", "python.error", "default"):
            wrong[name] = found
    assert wrong == {}


def cases():
    """(name, instance, verdict, rule) for each probed type: at least one of either verdict."""
    t, x = "transient", "terminal"
    name = "kombu.exceptions.HttpError"
    yield name, pretend(name, code=502), t, "http.status"
    yield name, pretend(name, code=400), x, "http.status"
    name = "builtins.OSError"
    yield name, OSError(110, "timed out"), t, "os.network"
    yield name, OSError(22, "invalid"), x, "os.errno"
    yield name, OSError(28, "no space"), t, "os.errno"
    for name in ("builtins.ConnectionError", "builtins.TimeoutError"):
        unknown_host = socket.gaierror(socket.EAI_NONAME, "x")
        yield name, pretend(name, "x"), t, "os.network"
        yield name, pretend(name, "x", reason=unknown_host), x, "dns.lookup"
    name = "builtins.BufferError"
    yield name, BufferError("Local: Queue full"), t, "kafka.queue"
    yield name, BufferError("Existing exports of data"), x, "python.error"
    name = "socket.gaierror"
    yield name, socket.gaierror(socket.EAI_AGAIN, "later"), t, "dns.lookup"
    yield name, socket.gaierror(socket.EAI_NONAME, "never"), x, "dns.lookup"
    yield name, socket.gaierror("text only"), x, "default"
    name = "socket.herror"
    yield name, socket.herror(2, "try again"), t, "dns.lookup"
    yield name, socket.herror(1, "host not found"), x, "dns.lookup"
    yield name, socket.herror("text only"), x, "default"
    name = "subprocess.CalledProcessError"
    yield name, pretend(name, returncode=75), t, "subprocess.exit_code"
    yield name, pretend(name, returncode=1), x, "subprocess.exit_code"
    yield name, pretend(name, returncode=-9), x, "subprocess.exit_code"
    name = "sqlite3.OperationalError"
    for code, verdict in ((5, t), (6, t), (261, t), (517, t), (262, t), (1, x), (13, x), (10, x)):
        yield name, pretend(name, sqlite_errorcode=code), verdict, "sqlite.code"
    yield name, pretend(name, "database is locked"), t, "sqlite.code"
    yield name, pretend(name, "database table is locked: orders"), t, "sqlite.code"
    yield name, pretend(name, "no such table: database is locked"), x, "sqlite.code"
    name = "sqlalchemy.exc.DBAPIError"
    yield name, pretend(name, connection_invalidated=True), t, "sqlalchemy.disconnect"
    yield name, pretend(name, connection_invalidated=1), x, "default"
    yield name, pretend(name, orig=pretend("psycopg.Error", sqlstate="40P01")), t, "pg.sqlstate"
    yield name, pretend(name, orig=pretend("pymysql.err.MySQLError", 1062)), x, "mysql.errno"
    for name in ("psycopg.Error", "psycopg2.Error", "asyncpg.exceptions._base.PostgresError",
                 "asyncpg.exceptions._base.InterfaceError",
                 "asyncpg.exceptions._base.InternalClientError"):  # fmt: skip
        yield name, pretend(name, pgcode="40001"), t, "pg.sqlstate"
        yield name, pretend(name, sqlstate="23505"), x, "pg.sqlstate"
        yield name, pretend(name, "connection is closed"), t, "pg.message"
        yield name, pretend(name, "no idea"), x, "default"
    for name in ("pymysql.err.MySQLError", "MySQLdb._exceptions.MySQLError"):
        yield name, pretend(name, 1213, "Deadlock found"), t, "mysql.errno"
        yield name, pretend(name, 1064, "syntax"), x, "mysql.errno"
        yield name, pretend(name, 0, ""), t, "mysql.message"
        yield name, pretend(name, 0, "what"), x, "default"
        yield name, pretend(name, "what"), x, "default"
    name = "mysql.connector.errors.Error"
    yield name, pretend(name, "x", errno=2055, sqlstate="08S01"), t, "mysql.errno"
    yield name, pretend(name, "x", errno=1153, sqlstate="08S01"), x, "mysql.errno"
    yield (
        name,
        pretend(name, "Failed getting connection; pool exhausted", errno=-1),
        t,
        "mysql.message",
    )
    yield name, pretend(name, "MySQL Connection not available", errno=-1), t, "mysql.message"
    yield (
        name,
        pretend(name, "Pool name is too long", errno=-1, sqlstate="40001"),
        x,
        "default",
    )
    name = "redis.exceptions.ResponseError"
    yield name, pretend(name, "BUSY Redis is busy running a script"), t, "redis.reply"
    yield (
        name,
        pretend(name, "Not enough good replicas", status_code="NOREPLICAS"),
        t,
        "redis.reply",
    )
    yield name, pretend(name, "OOM command not allowed"), t, "redis.reply"
    yield name, pretend(name, "MISCONF Errors writing to the AOF file"), t, "redis.reply"
    yield name, pretend(name, "BUSYGROUP Consumer Group name exists"), x, "redis.reply"
    yield name, pretend(name, "WRONGTYPE Operation against a key"), x, "redis.reply"
    name = "redis.exceptions.LockError"
    yield name, pretend(name, "Unable to acquire lock within the time specified"), t, "redis.lock"
    yield name, pretend(name, "Cannot release an unlocked lock"), x, "redis.lock"


CASES = [
    *cases(),
    *errors_of_services.cases(),
    *errors_of_databases.cases(),
    *errors_of_mail.cases(),
]


def test_probed_rows():
    wrong = [
        f"{name}: {exc!r} is {judge(exc)}, not {(verdict, rule)}"
        for name, exc, verdict, rule in CASES
        if judge(exc) != (verdict, rule)
    ]
    assert wrong == []


def test_no_probed_row_is_left_out():
    tried = {name for name, *_ in CASES}
    # A nested class, which cannot be pretended; test_builtin_databases raises the real one.
    tried.add("sqlalchemy.dialects.postgresql.asyncpg.AsyncAdapt_asyncpg_dbapi.Error")
    probed = {name for name, _ in PROBED}
    assert probed == tried, f"add or remove a case in tests/support/errors/*.py: {probed ^ tried}"


def test_every_status():
    name = "requests.exceptions.HTTPError"
    passing = {
        status
        for status in range(300, 600)
        if decide(pretend(name, response=answer(status))).verdict is Verdict.TRANSIENT
    }
    assert passing == TRANSIENT_STATUSES
    assert {408, 425, 429, 502, 503, 504, 529} <= passing
    assert not passing & {301, 400, 401, 403, 404, 409, 410, 413, 422, 500, 501, 505, 507, 511, 526}


PASSING_SQLSTATES = (
    "40001 40P01 40002 40003 55P03 57P01 57P02 57P03 57P05 08000 08006 53200 53300 53100 58030 "
    "55006 25P03 25P04"
)
LASTING_SQLSTATES = (
    "22001 23505 23503 25006 25P02 26000 28P01 28000 2F000 3D000 3F000 42601 42P01 54000 55000 "
    "57014 57P04 08P01 0A000 P0001 XX000 58P01"
)


@pytest.mark.parametrize(
    ("sqlstate", "text", "verdict"),
    [
        *[(code, "", "transient") for code in PASSING_SQLSTATES.split()],
        *[(code, "", "terminal") for code in LASTING_SQLSTATES.split()],
        ("57014", "canceling statement due to statement timeout", "transient"),
        ("57014", "canceling statement due to user request", "terminal"),
        ("0A000", "cached plan must not change result type", "transient"),
        ("0A000", "cached statement plan is invalid due to a schema change", "transient"),
        ("23505", "statement timeout", "terminal"),
    ],
)
def test_sqlstates(sqlstate, text, verdict):
    assert decide(pretend("psycopg.Error", text, sqlstate=sqlstate)).verdict.value == verdict


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("connection failed: FATAL:  sorry, too many clients already", "transient"),
        ("FATAL:  remaining connection slots are reserved for roles", "transient"),
        ("FATAL:  the database system is starting up", "transient"),
        ("FATAL:  the database system is shutting down", "transient"),
        ("FATAL:  the database system is in recovery mode", "transient"),
        ('connection to server at "db", port 5432 failed: Connection refused', "transient"),
        ("server closed the connection unexpectedly", "transient"),
        ("SSL connection has been closed unexpectedly", "transient"),
        ("SSL SYSCALL error: EOF detected", "transient"),
        ("connection timeout expired", "transient"),
        ("connection already closed", "transient"),
        ("the connection is lost", "transient"),
        ('FATAL:  password authentication failed for user "shop"', "terminal"),
        ('FATAL:  database "Connection refused" does not exist', "terminal"),
        ("FATAL:  no pg_hba.conf entry for host", "terminal"),
        ('FATAL:  role "shop" is not permitted to log in', "terminal"),
        ('could not translate host name "x" to address: Name or service not known', "terminal"),
        ('could not translate host name "x": Temporary failure in name resolution', "transient"),
        ("FATAL:  etwas ist schiefgegangen", "terminal"),
    ],
)
def test_libpq_messages(text, verdict):
    assert decide(pretend("psycopg2.Error", text)).verdict.value == verdict


@pytest.mark.parametrize(("sqlstate", "verdict"), [("57P01", "transient"), ("42P01", "terminal")])
def test_a_rollback_that_fails_stands_for_what_came_before(sqlstate, verdict):
    rollback = pretend("psycopg.Error", "sending query failed: another command is in progress")
    rollback.__context__ = pretend("psycopg.Error", "terminating connection", sqlstate=sqlstate)
    assert decide(pretend("sqlalchemy.exc.DBAPIError", orig=rollback)).verdict.value == verdict


LASTING_NUMBERS = (
    1044, 1045, 1049, 1054, 1062, 1064, 1114, 1129, 1142, 1146, 1153, 1264, 1290, 1317, 1406, 1451, 1452,
    1792, 1836, 503, 40001,
)  # fmt: skip


def test_mysql_numbers():
    passing = {
        number
        for number in (*MYSQL_NUMBERS, *LASTING_NUMBERS)
        if decide(pretend("pymysql.err.MySQLError", number, "x")).verdict is Verdict.TRANSIENT
    }
    assert passing == MYSQL_NUMBERS


def test_rules_that_hold_below_a_network_error_exist():
    probed = {"http.proxy"}
    assert ROOT_CAUSES - probed <= {row.rule for row in TABLE.rows}


def test_a_name_is_in_the_table_once():
    with pytest.raises(ValueError, match="twice"):
        Table([Row("a", ("x.Y",)), Row("b", ("x.Y",))])


def test_a_package_stands_for_the_types_that_no_row_names():
    table = Table(
        [
            Row("parts", ("shop.*",), verdict=Verdict.TERMINAL),
            Row("busy", ("shop.errors.Busy",), verdict=Verdict.TRANSIENT),
            Row("python", ("builtins.OSError",), verdict=Verdict.TERMINAL),
        ]
    )
    odd, busy = type(pretend("shop.errors.Odd")), type(pretend("shop.errors.Busy"))
    lost = type("Lost", (OSError,), {"__module__": "shop.errors"})
    derived = type("Mine", (odd,), {"__module__": "mine"})
    other = type(pretend("shopping.Odd"))

    def rules(cls):
        return [match.row.rule for match in table.look_up(cls).matches]

    assert [rules(cls) for cls in (odd, derived, busy, lost, other)] == [
        ["parts"], ["parts"], ["busy"], ["python"], [],
    ]  # fmt: skip
    assert not table.look_up(odd).is_open
    assert table.look_up(derived).matches[0].name == "shop.errors.Odd"


def test_the_cause_behind_a_package_decides_nothing():
    exc = pretend("zipfile.BadZipFile", status_code=503)
    exc.__cause__ = TimeoutError()
    assert judge(exc) == ("terminal", "data.format")


def test_the_first_lookup_and_the_next_agree():
    row = Row("a", (dotted_name(LookupError),), verdict=Verdict.TRANSIENT)
    table = Table([row])
    assert table.look_up(KeyError) == table.look_up(KeyError)
    assert [match.row for match in table.look_up(KeyError).matches] == [row]
