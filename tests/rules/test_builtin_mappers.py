"""Errors through Django, peewee and Tortoise, over real databases."""

import asyncio
import gettext
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url
from support.errors.verdicts import judge, raised

from celery_dlq.classify import decide

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def table(django):
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY)")
        cursor.execute("INSERT OR IGNORE INTO orders VALUES (1)")
    yield connection
    connection.close()


def execute(connection, statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)


def test_a_locked_database_through_django(table):
    other = sqlite3.connect(table.settings_dict["NAME"], isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    decision = decide(raised(execute, table, "INSERT INTO orders VALUES (2)"))
    other.close()
    assert (decision.verdict.value, decision.rule) == ("transient", "sqlite.code")
    assert decision.path == "django.db.utils.OperationalError <- sqlite3.OperationalError"


@pytest.mark.parametrize(
    ("statement", "rule"),
    [
        ("SELECT * FROM nothing", "sqlite.code"),
        ("SELEKT", "sqlite.code"),
        ("INSERT INTO orders VALUES (1)", "sqlite.error"),
    ],
)
def test_mistakes_through_django(table, statement, rule):
    assert judge(raised(execute, table, statement)) == ("terminal", rule)


def test_a_broken_transaction_of_django(table):
    from django.db import transaction

    def run():
        with transaction.atomic():
            transaction.set_rollback(True)
            execute(table, "SELECT 1")

    assert judge(raised(run)) == ("terminal", "django.transaction")


def test_a_postgres_statement_that_takes_too_long_through_django(django, postgres_url):
    from django.db.backends.postgresql.base import DatabaseWrapper

    url = make_url(postgres_url)
    connection = DatabaseWrapper(
        {
            "NAME": url.database, "HOST": url.host, "PORT": url.port, "USER": url.username,
            "PASSWORD": url.password or "", "OPTIONS": {}, "TIME_ZONE": None, "CONN_MAX_AGE": 0,
            "AUTOCOMMIT": True, "CONN_HEALTH_CHECKS": False, "ATOMIC_REQUESTS": False,
        },
        "orders",
    )  # fmt: skip
    try:
        execute(connection, "SET statement_timeout = 20")
        exc = raised(execute, connection, "SELECT pg_sleep(5)")
        assert judge(exc) == ("transient", "pg.sqlstate")
        assert judge(raised(execute, connection, "SELEKT")) == ("terminal", "pg.sqlstate")
        own = "SELECT pg_terminate_backend(pg_backend_pid())"
        assert judge(raised(execute, connection, own)) == ("transient", "pg.sqlstate")
    finally:
        connection.close()


def test_peewee(tmp_path):
    peewee = pytest.importorskip("peewee")
    one, two = (peewee.SqliteDatabase(tmp_path / "shop.sqlite3", timeout=0) for _ in range(2))

    class Order(peewee.Model):
        class Meta:
            database = one

    one.create_tables([Order])
    Order.create(id=1)
    again = raised(Order.create, id=1)
    missing = raised(Order.get_by_id, 99)
    nothing = raised(one.execute_sql, "SELECT * FROM nothing")
    one.execute_sql("BEGIN EXCLUSIVE")
    locked = raised(two.execute_sql, 'INSERT INTO "order" VALUES (2)')
    one.close()
    two.close()
    assert judge(again) == ("terminal", "peewee.usage")
    assert judge(missing) == ("terminal", "peewee.usage")
    assert judge(nothing) == ("terminal", "sqlite.code")
    assert judge(locked) == ("transient", "sqlite.code")


def tortoise(url, statement="SELECT 1"):
    library = pytest.importorskip("tortoise")

    async def run():
        await library.Tortoise.init(db_url=url, modules={"models": [__name__]})
        try:
            await library.connections.get("default").execute_query(statement)
        finally:
            await library.connections.close_all()

    return raised(asyncio.run, run())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
class TestTortoise:
    def test_no_mysql_server(self, closed_port):
        exc = tortoise(f"mysql://a:b@127.0.0.1:{closed_port}/d")
        assert judge(exc) == ("transient", "mysql.errno")

    def test_a_missing_database(self, postgres_url, mysql_url):
        for backend, url in (("asyncpg", postgres_url), ("mysql", mysql_url)):
            parsed = make_url(url).set(drivername=backend, database="dlq_no_such")
            exc = tortoise(parsed.render_as_string(hide_password=False))
            assert type(exc).__name__ == "DBConnectionError"
            assert judge(exc)[0] == "terminal"

    def test_a_syntax_error(self):
        assert judge(tortoise("sqlite://:memory:", "SELEKT")) == ("terminal", "sqlite.code")


@pytest.mark.service
def test_pg8000(postgres_url):
    pg8000 = pytest.importorskip("pg8000.dbapi")
    url = make_url(postgres_url)
    connection = pg8000.connect(
        url.username, host=url.host, port=url.port, database=url.database, password=url.password
    )
    cursor = connection.cursor()
    assert judge(raised(cursor.execute, "SELEKT")) == ("terminal", "pg.sqlstate")
    connection.rollback()
    cursor.execute("SET statement_timeout = 20")
    assert judge(raised(cursor.execute, "SELECT pg_sleep(5)")) == ("transient", "pg.sqlstate")
    connection.close()


#: Messages of PostgreSQL's server and client that have no SQLSTATE, by the name of the catalog.
PASSING_TEXTS = {
    "postgres": [
        "sorry, too many clients already",
        "the database system is starting up",
        "the database system is shutting down",
        "the database system is in recovery mode",
        "the database system is not accepting connections",
        "terminating connection due to administrator command",
    ],
    "libpq5": ["SSL connection has been closed unexpectedly", "no connection to the server"],
}


@pytest.mark.parametrize("language", ["de", "es", "fr", "it", "ja", "ko", "ru", "zh_CN"])
def test_postgres_in_other_languages(language):
    psycopg = pytest.importorskip("psycopg")
    folder = Path("/usr/share/locale") / language / "LC_MESSAGES"
    catalogs = {name: sorted(folder.glob(f"{name}-*.mo")) for name in PASSING_TEXTS}
    if not all(catalogs.values()):
        pytest.skip("the translations of PostgreSQL are not installed")
    for name, texts in PASSING_TEXTS.items():
        with catalogs[name][0].open("rb") as file:
            translations = gettext.GNUTranslations(file)
        for text in texts:
            # Whether a message of libpq ends its own line changed from version to version.
            said = (text, f"{text}\n")
            translated = next(t for s in said if (t := translations.gettext(s)) not in said)
            assert judge(psycopg.OperationalError(f"connection failed: {translated}\n")) == (
                "transient",
                "pg.message",
            )


@pytest.mark.service
def test_a_mysql_server_without_tls_is_terminal(mysql_url):
    pymysql = pytest.importorskip("pymysql")
    url = make_url(mysql_url)
    connect = {
        "host": url.host,
        "port": url.port,
        "user": url.username,
        "ssl": {"check_hostname": True},
    }
    assert judge(raised(pymysql.connect, **connect))[0] == "terminal"
