import socket

import pytest

from celery_dlq.store.database.client import Client, Role


def test_the_name_says_what_it_is_and_where():
    assert Client(Role.WORKER, "celery@bank-1").name == "celery_dlq worker celery@bank-1"
    assert Client().name == f"celery_dlq app {socket.gethostname()}"[:63]


def test_a_name_fits_into_what_a_server_shows():
    name = Client(Role.FLOWER, "bänk" * 40).name
    assert name.startswith("celery_dlq flower b?nk")
    assert len(name.encode()) == 63


@pytest.mark.parametrize("role", Role)
def test_every_role_may_have_a_connection(role):
    assert Client(role).most >= 1
