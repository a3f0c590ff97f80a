"""A shop whose messages are written in the transactions of its own database, which is the store's."""

import json
import uuid

import sqlalchemy as sa
from celery import Celery

from celery_dlq import DeadLetterQueue, DLQTask
from celery_dlq.store.database.tables import parked

ORDERS = sa.Table("shop_order", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True))


def charge(_order):
    pass


def subject(args, _kwargs):
    """The person that a message is about."""
    return f"customer {args[0]}"


class Shop:
    """An app with a task, its orders, and what has become of the messages."""

    def __init__(self, url, store):
        self.url, self.store = url, store
        self.app = Celery("shop", broker=f"memory://{uuid.uuid4().hex}", set_as_current=False)
        self.app.conf.update(dlq_store_url=url, dlq_unsent="commit", dlq_recorder=False)
        self.dlq = DeadLetterQueue.of(self.app)
        self.charge = self.app.task(base=DLQTask, name="shop.charge", shared=False)(charge)

    def sent(self):
        """The orders in the messages that were sent."""
        with self.app.connection() as connection:
            queue = connection.SimpleQueue("celery")
            found = []
            while queue.qsize():
                message = queue.get_nowait()
                found.append(json.loads(message.body)[0][0])
                message.ack()
        return sorted(found)

    def rows(self):
        """The rows of messages: order, state and copies."""
        if "keeper" in vars(self.dlq.sending):
            self.dlq.sending.keeper.writer.flush()
        columns = sa.select(parked.c.args, parked.c.state, parked.c.copies)
        found = self.store.transactions.read(lambda one: one.execute(columns).all())
        return sorted((*(json.loads(args) or [0]), state, copies) for args, state, copies in found)

    def orders(self):
        return self.store.transactions.read(
            lambda one: sorted(one.scalars(sa.select(ORDERS.c.id)).all())
        )

    def close(self):
        if "keeper" in vars(self.dlq.sending):
            self.dlq.sending.keeper.writer.stop()
        if "store" in vars(self.dlq):
            self.dlq.store.close()
        self.app.close()
