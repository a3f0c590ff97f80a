from __future__ import annotations

import pytest
from celery import Celery
from factories import operation

from celery_dlq.redrive.home import home_of, why_not_here
from celery_dlq.store.base import Home

HERE = Home(app="shop", broker="redis://box:6379/0")


def test_a_home_is_the_apps_name_and_its_brokers_address_without_the_password():
    app = Celery("shop", broker="amqp://ann:hunter2@box:5672/v", set_as_current=False)
    home = home_of(app)
    assert home.app == "shop"
    assert "box:5672/v" in home.broker
    assert "hunter2" not in home.broker


@pytest.mark.parametrize("name", [None, "__main__", "default"])
def test_an_app_without_a_name_of_its_own_is_not_known(name):
    assert home_of(Celery(name, broker="memory://", set_as_current=False)).app == ""


@pytest.mark.parametrize(
    ("made_for", "why"),
    [
        (HERE, None),
        (Home(), None),
        (Home(app="shop"), None),
        (Home(app="bank"), "made for app bank, and this is shop"),
        (
            Home(app="shop", broker="redis://other"),
            "made for broker redis://other, and this is redis",
        ),
    ],
)
def test_where_it_may_be_carried_out(made_for, why):
    said = why_not_here(operation(home=made_for), HERE)
    assert (said is None) == (why is None)
    assert why is None or why in said


def test_who_has_no_name_may_carry_out_anything():
    assert why_not_here(operation(home=HERE), Home()) is None
