"""The app of ``proj`` with a shop that sends a message in each transaction. As a program, it places orders
with numbers from one to another: ``python -m proj_outbox session 1 100``. Each third transaction is rolled
back, and so is a savepoint in each.
"""

import contextlib
import os
import sys
from functools import partial

import proj_parking  # with quick leases
import sqlalchemy as sa
from proj import app, say

from celery_dlq import DeadLetterQueue, DLQTask
from celery_dlq.store.rows import rows

app.conf.dlq_unsent = "commit"
rows.DOUBT_S = 3.0

ORDERS = sa.Table(
    "shop_order", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True, autoincrement=False)
)


class Undo(Exception):
    """The transaction, or the savepoint, is not wanted."""


@app.task(base=DLQTask, name="proj.deliver")
def deliver(order):
    say("delivered", order)


def with_sessions(url):
    """A function that runs a unit of work, and one that adds an order to it."""
    from sqlalchemy.orm import sessionmaker

    sessions = sessionmaker(sa.create_engine(url))
    DeadLetterQueue.of(app).outbox(sessions)

    def run(work):
        with sessions.begin() as session:
            work(
                lambda order: session.execute(sa.insert(ORDERS), {"id": order}),
                session.begin_nested,
            )

    return run


def with_django(url):
    import django
    import pymysql
    from django.conf import settings
    from django.db import connection, transaction

    url = sa.make_url(url)
    pymysql.install_as_MySQLdb()
    engine = url.get_backend_name().replace("sqlite", "sqlite3")
    database = {
        "ENGINE": f"django.db.backends.{engine}", "NAME": url.database, "HOST": url.host or "",
        "PORT": str(url.port or ""), "USER": url.username or "",
    }  # fmt: skip
    settings.configure(DATABASES={"default": database})
    django.setup()

    def add(order):
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO shop_order VALUES (%s)", [order])

    def run(work):
        with transaction.atomic():
            work(add, transaction.atomic)

    return run


def place(number, add, savepoint):
    add(number)
    deliver.delay(number)
    with contextlib.suppress(Undo), savepoint():
        deliver.delay(-number)
        raise Undo
    if number % 3 == 0:
        raise Undo


def main(kind, first, last):
    run = {"session": with_sessions, "django": with_django}[kind](os.environ["PROJ_STORE"])
    for number in range(int(first), int(last)):
        with contextlib.suppress(Undo):
            run(partial(place, number))
        print(number, flush=True)


if __name__ == "__main__":
    assert proj_parking
    main(*sys.argv[1:])
