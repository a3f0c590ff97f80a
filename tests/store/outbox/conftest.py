from __future__ import annotations

import pytest
from support.stores.shops import ORDERS, Shop


@pytest.fixture
def shop(database_url, store):
    store.database.write(lambda one: ORDERS.create(one, checkfirst=True))
    shop = Shop(database_url, store)
    yield shop
    shop.close()
    store.database.write(lambda one: ORDERS.drop(one))
