"""Messages in the transactions of SQLAlchemy's sessions."""

import asyncio
import contextlib
import gc
import threading
import warnings

import pytest
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, registry, scoped_session, sessionmaker
from support.stores.shops import ORDERS, Shop

from celery_dlq import DeadLetterQueue
from celery_dlq.errors import CeleryDLQError, SettingsError
from celery_dlq.outbox import commit
from celery_dlq.outbox.sender import Outbox
from celery_dlq.store.database.sealing import sealing_of
from celery_dlq.store.database.tables import key, parked

pytestmark = pytest.mark.on_servers


class Order:
    def __init__(self, id):
        self.id = id


registry().map_imperatively(Order, ORDERS)


@pytest.fixture
def engine(shop):
    engine = sa.create_engine(shop.url)
    if engine.dialect.name == "sqlite":
        # As SQLAlchemy's documentation says, so that savepoints work.
        event.listen(engine, "connect", lambda one, _: setattr(one, "isolation_level", None))
        event.listen(engine, "begin", lambda one: one.exec_driver_sql("BEGIN"))
    yield engine
    engine.dispose()


@pytest.fixture
def sessions(shop, engine):
    sessions = sessionmaker(engine)
    shop.dlq.outbox(sessions)
    return sessions


def place(shop, session, order):
    session.add(Order(order))
    shop.charge.delay(order)


def test_a_message_is_sent_after_the_commit(shop, sessions):
    with sessions.begin() as session:
        place(shop, session, 1)
        assert shop.sent() == shop.rows() == []

    assert shop.orders() == shop.sent() == [1]
    assert shop.rows() == [(1, "released", 1)]


def test_a_message_is_gone_with_its_transaction(shop, sessions):
    with contextlib.suppress(ZeroDivisionError), sessions.begin() as session:
        place(shop, session, 1)
        1 / 0  # noqa: B018

    session = sessions()
    place(shop, session, 2)
    session.close()

    assert shop.orders() == shop.sent() == shop.rows() == []


def test_a_message_is_gone_with_its_savepoint(shop, sessions):
    with sessions.begin() as session:
        place(shop, session, 1)
        with session.begin_nested() as outer:
            place(shop, session, 2)
            with session.begin_nested():
                place(shop, session, 3)
            outer.rollback()
        with session.begin_nested(), session.begin_nested():
            place(shop, session, 4)
        session.flush()
        session.begin_nested().close()
        session.begin_nested()
        place(shop, session, 5)
        session.flush()
        session.get_nested_transaction().close()
        place(shop, session, 6)

    assert shop.orders() == shop.sent() == [1, 4, 6]
    assert shop.rows() == [(one, "released", 1) for one in (1, 4, 6)]


def test_a_message_of_a_flush_belongs_to_its_savepoint(shop, sessions):
    def send(_session, _context):
        for order in _session.new:
            shop.charge.delay(order.id)

    event.listen(sessions, "after_flush", send)
    with sessions.begin() as session:
        session.add(Order(1))
        nested = session.begin_nested()
        session.add(Order(2))
        session.flush()
        nested.rollback()
        with session.begin_nested():
            session.add(Order(3))

    assert shop.orders() == shop.sent() == [1, 3]


def test_after_a_failed_flush_a_message_is_sent_at_once(shop, sessions):
    with sessions.begin() as session:
        session.add(Order(1))
    session = sessions()
    session.add(Order(1))
    with pytest.raises(sa.exc.IntegrityError):
        session.flush()
    shop.charge.delay(7)
    session.rollback()

    assert shop.sent() == [7]


def test_a_listener_of_the_commit_sends_at_once(shop, sessions):
    event.listen(sessions, "after_commit", lambda _session: shop.charge.delay(2))
    with sessions.begin() as session:
        place(shop, session, 1)

    assert shop.sent() == [1, 2]
    assert shop.rows() == [(1, "released", 1)]


def test_a_worker_sends_it_if_the_process_dies_after_the_commit(shop, sessions, monkeypatch):
    monkeypatch.setattr(Outbox, "send_committed", lambda *_args: None)
    with sessions.begin() as session:
        place(shop, session, 1)

    assert shop.rows() == [(1, "parked", 1)]
    due_in_s = shop.store.parked.next_due(shop.dlq.hold.place)
    assert 0 < due_in_s <= 60


def test_outside_a_transaction_it_is_sent_at_once(shop, sessions):
    shop.charge.delay(1)
    with sessions() as session:
        session.commit()
        shop.charge.delay(2)

    assert shop.sent() == [1, 2]
    assert shop.rows() == []


def test_a_retry_is_sent_at_once(shop, sessions):
    with contextlib.suppress(ZeroDivisionError), sessions.begin() as session:
        session.add(Order(1))
        shop.charge.apply_async((1,), retries=1)
        1 / 0  # noqa: B018

    assert shop.sent() == [1]


def test_of_two_sessions_the_last_one_has_the_message(shop, sessions):
    first = sessions()
    first.connection()
    with sessions.begin() as session:
        session.connection()
        shop.charge.delay(1)
    first.rollback()
    first.add(Order(3))
    shop.charge.delay(2)
    first.rollback()

    assert shop.sent() == [1]


def test_another_thread_has_no_transaction(shop, sessions):
    with sessions.begin() as session:
        place(shop, session, 1)
        thread = threading.Thread(target=shop.charge.delay, args=(2,))
        thread.start()
        thread.join()
        assert shop.sent() == [2]

    assert shop.sent() == [1]


def test_a_session_moves_to_the_thread_that_uses_it(shop, sessions):
    """As with dependencies of web frameworks, which begin it in one thread and use it in another."""

    def use():
        session.connection()
        shop.charge.delay(1)

    with sessions.begin() as session:
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        assert shop.sent() == []

    assert shop.sent() == [1]


def test_a_connection_whose_transaction_continues(shop, engine, sessions):
    with engine.connect() as connection, connection.begin() as outer:
        with sessions(bind=connection) as session:
            place(shop, session, 1)
            session.commit()
        outer.rollback()
    assert shop.orders() == shop.sent() == shop.rows() == []

    with engine.begin() as connection, sessions(bind=connection) as session:
        place(shop, session, 2)
        session.commit()
    assert shop.sent() == []
    assert shop.rows() == [(2, "parked", 1)]  # a worker sends it


def test_an_error_of_the_database_is_that_of_a_statement(shop, sessions):
    session = sessions()
    shop.dlq.store  # noqa: B018 - its schema is checked
    shop.store.database.write(lambda one: parked.drop(one))
    try:
        with pytest.raises((sa.exc.ProgrammingError, sa.exc.OperationalError)):
            place(shop, session, 1)
        session.rollback()
        with session.begin():
            session.add(Order(2))
    finally:
        shop.store.database.write(lambda one: parked.create(one))

    assert shop.orders() == [2]
    assert shop.sent() == []


def test_scoped_sessions_and_classes(shop, engine):
    class Own(Session):
        pass

    scoped = scoped_session(sessionmaker(engine, class_=Own))
    shop.dlq.outbox(Own)
    scoped.add(Order(1))
    shop.charge.delay(1)
    assert shop.sent() == []
    scoped.commit()
    scoped.remove()
    assert shop.sent() == [1]

    other = scoped_session(sessionmaker(engine))
    shop.dlq.outbox(other)
    other.add(Order(2))
    shop.charge.delay(2)
    assert shop.sent() == []
    other.commit()
    other.remove()
    assert shop.sent() == [2]


#: Each letter is sealed with the key of a person.
SEALED = {
    "dlq_encryption_keys": {"one": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="},
    "dlq_subject": "support.stores.shops.subject",
}


def test_the_row_has_the_namespace_and_is_sealed(shop, sessions):
    shop.app.conf.update(SEALED, dlq_namespace="billing")
    with sessions.begin() as session:
        place(shop, session, 4711)
        place(shop, session, 4712)

    row = sa.select(parked.c.namespace, parked.c.args, parked.c.record)
    found = shop.store.transactions.read(lambda one: one.execute(row).all())
    assert [one.namespace for one in found] == ["billing"] * 2
    assert not any("4711" in one.args or b"4711" in one.record for one in found)
    assert shop.sent() == [4711, 4712]
    # Other namespaces have other persons.
    person, keys = shop.dlq.store.transactions.read(
        lambda one: (
            sealing_of(one).person_id("customer 4711"),
            [*one.scalars(sa.select(key.c.id))],
        )
    )
    assert person in keys


def test_sessions_that_have_ended_are_forgotten(shop, sessions):
    with sessions.begin() as session:
        place(shop, session, 1)
    place(shop, sessions(), 2)  # which is collected as garbage
    gc.collect()

    assert len(commit._begun[threading.current_thread()]) == 0
    assert shop.sent() == [1]


def other_ways(url):
    url = sa.make_url(url)
    if url.get_backend_name() == "sqlite":
        return [url.set(drivername="sqlite+pysqlite", database=f"{url.database}/../dlq.sqlite3")]
    names = {
        "postgresql": ("postgresql+psycopg2", "postgresql"),
        "mysql": ("mariadb+pymysql",),
    }[url.get_backend_name()]
    return [url.set(drivername=name, host="localhost") for name in names]


def test_another_way_to_the_same_database(shop):
    for number, url in enumerate(other_ways(shop.url)):
        engine = sa.create_engine(url)
        sessions = sessionmaker(engine)
        shop.dlq.outbox(sessions)
        with sessions.begin() as session:
            place(shop, session, number)
            assert shop.sent() == []
        assert shop.sent() == [number]
        with sessions() as session:
            place(shop, session, 7)
        assert shop.sent() == []
        engine.dispose()


def test_a_session_of_another_database_is_refused(shop, tmp_path):
    url = sa.make_url(shop.url).set(username="ann", password="secret")
    if url.get_backend_name() == "sqlite":
        url = sa.make_url(f"sqlite:///{tmp_path}/other.sqlite3")
    url = url.set(database=f"{url.database}_other")
    engine = sa.create_engine(url)

    with pytest.raises(SettingsError, match="so set dlq_store_url to the same") as raised:
        shop.dlq.outbox(sessionmaker(engine))
    assert "_other" in str(raised.value)
    assert "secret" not in str(raised.value)

    late = sessionmaker()
    shop.dlq.outbox(late)
    with late(bind=engine) as session, pytest.raises(SettingsError, match="_other"):
        place(shop, session, 1)
    assert shop.sent() == []


def test_a_session_that_another_app_has_named_is_not_used(shop, sessions, store):
    other = Shop(shop.url, store)
    with sessions.begin() as session:
        session.add(Order(1))
        other.charge.delay(1)
        assert other.sent() == [1]
    other.close()


def test_what_makes_no_sessions_is_refused(shop):
    for wrong in (object(), AsyncSession, async_sessionmaker()):
        with pytest.raises(SettingsError, match="makes no SQLAlchemy sessions"):
            DeadLetterQueue.of(shop.app).outbox(wrong)


ASYNC = {
    "sqlite": ("sqlite+aiosqlite",),
    "postgresql": ("postgresql+psycopg_async", "postgresql+asyncpg"),
    "mysql": (),  # aiomysql 0.3.2 cannot write bytes with PyMySQL 1.2
}


def async_names():
    return sorted({name for names in ASYNC.values() for name in names})


@pytest.mark.parametrize("name", async_names())
def test_async_sessions(shop, name):
    url = sa.make_url(shop.url)
    if name not in ASYNC[url.get_backend_name()]:
        pytest.skip("another database")
    shop.app.conf.update(SEALED)
    asyncio.run(_in_tasks(shop, url.set(drivername=name)))


async def _in_tasks(shop, url):
    class Inner(Session):
        pass

    engine = create_async_engine(url)
    sessions = async_sessionmaker(engine, sync_session_class=Inner)
    shop.dlq.outbox(Inner)
    try:
        async with sessions.begin() as session:
            await session.run_sync(lambda inner: place(shop, inner, 1))
            await asyncio.create_task(_send(shop, 2))
            assert shop.sent() == [2]
        assert shop.sent() == [1]

        async with sessions() as session:
            await session.run_sync(lambda inner: place(shop, inner, 3))
        assert shop.sent() == []

        async with sessions() as session:
            session.add(Order(4))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # SQLAlchemy leaves a coroutine
                with pytest.raises(CeleryDLQError, match=r"await session\.run_sync"):
                    shop.charge.delay(4)
                gc.collect()
    finally:
        await engine.dispose()


async def _send(shop, order):
    shop.charge.delay(order)
