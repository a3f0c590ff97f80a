from __future__ import annotations

import pytest
from celery import Celery
from support.factories import operation

from celery_dlq.redrive.operation import app_and_broker_of, why_not_here
from celery_dlq.store.base import AppAndBroker

HERE = AppAndBroker(app="shop", broker="redis://box:6379/0")


def test_it_has_the_apps_name_and_the_brokers_address_without_the_password():
    app = Celery("shop", broker="amqp://ann:hunter2@box:5672/v", set_as_current=False)
    home = app_and_broker_of(app)
    assert home.app == "shop"
    assert "box:5672/v" in home.broker
    assert "hunter2" not in home.broker


def test_the_order_of_a_clusters_addresses_makes_no_other_broker():
    urls = "amqp://a:1//", "amqp://b:1//"
    homes = {
        app_and_broker_of(Celery("shop", broker=";".join(order), set_as_current=False))
        for order in (urls, urls[::-1])
    }
    assert len(homes) == 1


@pytest.mark.parametrize("name", [None, "__main__", "default"])
def test_an_app_with_a_default_name_is_unknown(name):
    assert app_and_broker_of(Celery(name, broker="memory://", set_as_current=False)).app == ""


@pytest.mark.parametrize(
    ("made_for", "why"),
    [
        (HERE, None),
        (AppAndBroker(), None),
        (AppAndBroker(app="shop"), None),
        (AppAndBroker(app="bank"), "made for app bank, and this is shop"),
        (
            AppAndBroker(app="shop", broker="redis://other"),
            "made for broker redis://other, and this is redis",
        ),
    ],
)
def test_an_operation_runs_in_its_own_app_and_on_its_own_broker(made_for, why):
    said = why_not_here(operation(home=made_for), HERE)
    assert (said is None) == (why is None)
    assert why is None or why in said


def test_an_app_without_a_name_may_run_any_operation():
    assert why_not_here(operation(home=HERE), AppAndBroker()) is None
