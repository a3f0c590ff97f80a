"""Errors of real database servers, through SQLAlchemy and through the drivers themselves."""

import asyncio
from contextlib import closing

import pytest
import sqlalchemy
from sqlalchemy import exc as sa_exc
from sqlalchemy import text
from sqlalchemy.engine import make_url
from support.errors.verdicts import judge, raised

from celery_dlq.classify import decide

POSTGRES_DRIVERS = ("psycopg", "psycopg2", "asyncpg")
MYSQL_DRIVERS = ("pymysql", "mysqlconnector")
_MODULES = {"mysqlconnector": "mysql.connector"}


def with_driver(url, driver, **changes):
    pytest.importorskip(_MODULES.get(driver, driver))
    parsed = make_url(url)
    return parsed.set(drivername=f"{parsed.get_backend_name()}+{driver}", **changes)


def run(url, scenario):
    """``scenario`` with two connections of the driver that ``url`` names."""
    if url.get_driver_name() == "asyncpg":
        asyncio.run(_run_async(url, scenario))
        return
    engine = sqlalchemy.create_engine(url)
    try:
        with engine.connect() as one, engine.connect() as two:
            scenario(one, two)
    finally:
        engine.dispose()


async def _run_async(url, scenario):
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(url)
    try:
        async with engine.connect() as one, engine.connect() as two:
            await one.run_sync(lambda sync: scenario(sync, two.sync_connection))
    finally:
        await engine.dispose()


def do(connection, *statements):
    for statement in statements:
        connection.execute(text(statement))


def connect_only(one, two):
    raise AssertionError("connecting should have failed")


# -- PostgreSQL -----------------------------------------------------------------------------------


def pg_serialization_failure(one, two):
    do(one, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT * FROM dlq_orders")
    do(two, "UPDATE dlq_orders SET paid = true", "COMMIT")
    do(one, "UPDATE dlq_orders SET paid = false")


def pg_unique_violation(one, two):
    do(one, "INSERT INTO dlq_orders VALUES (1)")


def pg_row_locked(one, two):
    do(one, "SELECT * FROM dlq_orders FOR UPDATE")
    do(two, "SELECT * FROM dlq_orders FOR UPDATE NOWAIT")


def pg_statement_timeout(one, two):
    do(one, "SET statement_timeout = 20", "SELECT pg_sleep(5)")


def pg_syntax_error(one, two):
    do(one, "SELEKT 503")


def pg_missing_table(one, two):
    do(one, "SELECT * FROM dlq_no_such_table")


def pg_read_only(one, two):
    do(one, "SET TRANSACTION READ ONLY", "UPDATE dlq_orders SET paid = true")


def pg_bad_value(one, two):
    do(one, "SELECT CAST('503' || 'x' AS integer)")


def pg_killed_backend(one, two):
    pid = two.execute(text("SELECT pg_backend_pid()")).scalar()
    one.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
    do(two, "SELECT pg_sleep(5)")


@pytest.fixture
def orders(own_postgres_url):
    engine = sqlalchemy.create_engine(own_postgres_url)
    with engine.begin() as connection:
        do(
            connection,
            "DROP TABLE IF EXISTS dlq_orders",
            "CREATE TABLE dlq_orders (id integer PRIMARY KEY, paid boolean)",
            "INSERT INTO dlq_orders VALUES (1)",
        )
    yield own_postgres_url
    engine.dispose()


@pytest.mark.service
@pytest.mark.parametrize("driver", POSTGRES_DRIVERS)
@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        (pg_serialization_failure, "transient"),
        (pg_row_locked, "transient"),
        (pg_statement_timeout, "transient"),
        (pg_unique_violation, "terminal"),
        (pg_syntax_error, "terminal"),
        (pg_missing_table, "terminal"),
        (pg_read_only, "terminal"),
        (pg_bad_value, "terminal"),
    ],
)
def test_postgres_through_sqlalchemy(orders, driver, scenario, expected):
    decision = decide(raised(run, with_driver(orders, driver), scenario))
    assert (decision.verdict.value, decision.rule) == (expected, "pg.sqlstate")
    assert decision.path.startswith("sqlalchemy.exc.")


@pytest.mark.service
@pytest.mark.parametrize("driver", POSTGRES_DRIVERS)
def test_a_postgres_connection_that_is_killed(orders, driver):
    verdict, rule = judge(raised(run, with_driver(orders, driver), pg_killed_backend))
    assert verdict == "transient"
    assert rule in ("sqlalchemy.disconnect", "pg.sqlstate")


@pytest.mark.service
@pytest.mark.parametrize("driver", POSTGRES_DRIVERS)
@pytest.mark.parametrize("changes", [{"database": "dlq_no_such"}, {"username": "dlq_nobody"}])
def test_a_postgres_login_that_is_refused(orders, driver, changes):
    verdict, rule = judge(raised(run, with_driver(orders, driver, **changes), connect_only))
    assert verdict == "terminal"
    assert rule in ("pg.message", "pg.sqlstate")


@pytest.mark.parametrize("driver", POSTGRES_DRIVERS)
def test_no_postgres_server(driver, closed_port):
    url = with_driver(f"postgresql+psycopg://root@127.0.0.1:{closed_port}/x", driver)
    assert judge(raised(run, url, connect_only))[0] == "transient"


@pytest.mark.service
@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_postgres_drivers_themselves(orders, driver):
    library = pytest.importorskip(driver)
    dsn = make_url(orders).set(drivername="postgresql").render_as_string(hide_password=False)
    with closing(library.connect(dsn)) as connection:
        cursor = connection.cursor()
        assert judge(raised(cursor.execute, "INSERT INTO dlq_orders VALUES (1)"))[0] == "terminal"
        connection.rollback()
        cursor.execute("SET statement_timeout = 20")
        exc = raised(cursor.execute, "SELECT pg_sleep(5)")
        assert judge(exc) == ("transient", "pg.sqlstate")
        connection.rollback()
        assert judge(raised(cursor.fetchone)) == ("terminal", "default")
    assert judge(raised(connection.cursor)) == ("transient", "pg.message")


@pytest.mark.service
def test_a_transaction_that_waits_for_itself_in_asyncpg(orders):
    """A deadlock in asyncpg is a bare DBAPIError for SQLAlchemy: the class says nothing."""
    failure = raised(run, with_driver(orders, "asyncpg"), pg_row_locked)
    assert type(failure) is sa_exc.DBAPIError
    assert decide(failure).evidence == "sqlstate=55P03 from sqlstate"


@pytest.mark.service
def test_a_psycopg_pool_that_is_used_up(orders):
    pool_library = pytest.importorskip("psycopg_pool")
    dsn = make_url(orders).set(drivername="postgresql").render_as_string(hide_password=False)
    with pool_library.ConnectionPool(dsn, min_size=1, max_size=1, open=True) as pool:
        pool.wait()
        with pool.connection():
            exc = raised(pool.getconn, timeout=0.01)
    assert judge(exc) == ("transient", "pg.pool")


# -- MySQL and MariaDB ------------------------------------------------------------------------------


def my_duplicate_key(one, two):
    do(one, "INSERT INTO dlq_orders VALUES (1)")


def my_lock_wait(one, two):
    do(one, "SELECT * FROM dlq_orders FOR UPDATE")
    do(two, "SET innodb_lock_wait_timeout = 1", "SELECT * FROM dlq_orders FOR UPDATE")


def my_syntax_error(one, two):
    do(one, "SELEKT 1205")


def my_missing_table(one, two):
    do(one, "SELECT * FROM dlq_no_such_table")


def my_killed(one, two):
    identifier = two.execute(text("SELECT connection_id()")).scalar()
    do(one, f"KILL {identifier}")
    do(two, "SELECT 1")


@pytest.fixture
def my_orders(own_mysql_url):
    engine = sqlalchemy.create_engine(own_mysql_url)
    with engine.begin() as connection:
        do(
            connection,
            "DROP TABLE IF EXISTS dlq_orders",
            "CREATE TABLE dlq_orders (id integer PRIMARY KEY) ENGINE=InnoDB",
            "INSERT INTO dlq_orders VALUES (1)",
        )
    yield own_mysql_url
    engine.dispose()


@pytest.mark.service
@pytest.mark.parametrize("driver", MYSQL_DRIVERS)
@pytest.mark.parametrize(
    ("scenario", "number", "expected"),
    [
        (my_lock_wait, 1205, "transient"),
        (my_duplicate_key, 1062, "terminal"),
        (my_syntax_error, 1064, "terminal"),
        (my_missing_table, 1146, "terminal"),
    ],
)
def test_mysql_through_sqlalchemy(my_orders, driver, scenario, number, expected):
    decision = decide(raised(run, with_driver(my_orders, driver), scenario))
    assert (decision.verdict.value, decision.rule) == (expected, "mysql.errno")
    assert decision.evidence.startswith(f"errno={number} ")


@pytest.mark.service
@pytest.mark.parametrize("driver", MYSQL_DRIVERS)
def test_a_mysql_connection_that_is_killed(my_orders, driver):
    assert judge(raised(run, with_driver(my_orders, driver), my_killed))[0] == "transient"


@pytest.mark.service
@pytest.mark.parametrize("driver", MYSQL_DRIVERS)
@pytest.mark.parametrize("changes", [{"database": "dlq_no_such"}, {"username": "dlq_nobody"}])
def test_a_mysql_login_that_is_refused(my_orders, driver, changes):
    exc = raised(run, with_driver(my_orders, driver, **changes), connect_only)
    assert judge(exc) == ("terminal", "mysql.errno")


@pytest.mark.parametrize("driver", MYSQL_DRIVERS)
def test_no_mysql_server(driver, closed_port):
    url = with_driver(f"mysql+pymysql://root@127.0.0.1:{closed_port}/x", driver)
    assert judge(raised(run, url, connect_only))[0] == "transient"


@pytest.mark.service
def test_pymysql_itself(my_orders):
    pymysql = pytest.importorskip("pymysql")
    url = make_url(my_orders)
    connection = pymysql.connect(
        host=url.host, port=url.port, user=url.username, database=url.database
    )
    cursor = connection.cursor()
    exc = raised(cursor.execute, "INSERT INTO dlq_orders VALUES (1)")
    assert judge(exc) == ("terminal", "mysql.errno")
    connection.close()
    assert judge(raised(connection.ping, reconnect=False)) == ("transient", "mysql.message")
    assert judge(raised(cursor.execute, "SELECT 1")) == ("transient", "mysql.message")


# -- SQLAlchemy itself, over SQLite -------------------------------------------------------------------


@pytest.fixture
def sqlite(tmp_path):
    engine = sqlalchemy.create_engine(
        f"sqlite:///{tmp_path}/shop.sqlite3",
        connect_args={"timeout": 0},
        poolclass=sqlalchemy.QueuePool,
        pool_size=2,
        max_overflow=0,
        pool_timeout=0.01,
    )
    with engine.begin() as connection:
        do(
            connection,
            "CREATE TABLE orders (id INTEGER PRIMARY KEY)",
            "INSERT INTO orders VALUES (1)",
        )
    yield engine
    engine.dispose()


def test_a_locked_sqlite_database_through_sqlalchemy(sqlite):
    with sqlite.connect() as one, sqlite.connect() as two:
        do(one, "INSERT INTO orders VALUES (2)")
        decision = decide(raised(do, two, "INSERT INTO orders VALUES (3)"))
    assert (decision.verdict.value, decision.rule) == ("transient", "sqlite.code")
    assert decision.path == "sqlalchemy.exc.OperationalError <- sqlite3.OperationalError"


def test_an_exhausted_pool(sqlite):
    with sqlite.connect(), sqlite.connect():
        assert judge(raised(sqlite.connect)) == ("transient", "sqlalchemy.pool")


@pytest.mark.parametrize(
    ("statement", "rule"),
    [
        ("INSERT INTO orders VALUES (1)", "sqlite.error"),
        ("SELECT * FROM nothing", "sqlite.code"),
        ("SELECT :missing", "sqlalchemy.usage"),
    ],
)
def test_mistakes(sqlite, statement, rule):
    with sqlite.connect() as connection:
        assert judge(raised(do, connection, statement)) == ("terminal", rule)


def test_rows_that_are_not_there(sqlite):
    with sqlite.connect() as connection:
        empty = connection.execute(text("SELECT 1 WHERE 0"))
        assert judge(raised(empty.one)) == ("terminal", "sqlalchemy.usage")


def test_a_driver_that_is_not_installed():
    exc = raised(sqlalchemy.create_engine, "nonsense://x")
    assert judge(exc) == ("terminal", "sqlalchemy.usage")


def test_a_stale_object(sqlite):
    from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

    class Base(DeclarativeBase):
        pass

    class Order(Base):
        __tablename__ = "versioned"
        id: Mapped[int] = mapped_column(primary_key=True)
        version: Mapped[int] = mapped_column()
        __mapper_args__ = {"version_id_col": version}

    Base.metadata.create_all(sqlite)
    with Session(sqlite) as session:
        session.add(Order(id=1))
        session.commit()
        order = session.get(Order, 1)
        do(session, "UPDATE versioned SET version = 7")
        session.delete(order)
        exc = raised(session.flush)
    assert judge(exc) == ("transient", "sqlalchemy.stale")
