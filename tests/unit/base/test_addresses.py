"""A broker with several addresses is the same broker, whichever of them a connection has."""

import socket
from types import SimpleNamespace

import pytest
from kombu import Connection
from kombu.exceptions import OperationalError
from support.servers.ports import free_port

from celery_dlq.base.addresses import broker_of, reach

CLUSTER = "amqp://ann:s3cret@a:1/v;amqp://ann:s3cret@b:2/v"
SENTINELS = "sentinel://:s3cret@a:1/0;sentinel://:s3cret@b:2/0"


def connection(urls, **options):
    return Connection(urls, transport_options=options, connect_timeout=1)


@pytest.mark.parametrize(
    ("urls", "options", "name"),
    [
        ("amqp://ann:s3cret@a:1/v", {}, "amqp://ann:**@a:1/v"),
        (CLUSTER, {}, "amqp://ann:**@a:1/v;amqp://ann:**@b:2/v"),
        (
            SENTINELS,
            {"master_name": "m"},
            "sentinel://:**@a:1/0;sentinel://:**@b:2/0 (m)",
        ),
    ],
)
def test_a_broker_is_named_by_all_of_its_addresses(urls, options, name):
    assert broker_of(connection(urls, **options)) == name


@pytest.mark.parametrize("urls", [CLUSTER, SENTINELS])
def test_a_failover_and_another_order_change_nothing(urls):
    one, other = connection(urls), connection(urls.split(";")[::-1])
    before = broker_of(one)
    one.maybe_switch_next()
    assert one.hostname == "b"
    assert broker_of(one) == broker_of(other) == before


def test_the_masters_of_the_same_sentinels_are_different_brokers():
    assert broker_of(connection(SENTINELS, master_name="m")) != broker_of(
        connection(SENTINELS, master_name="n")
    )


class Node:
    """An address; it may accept connections and never answer, as a machine does that hangs."""

    def __init__(self, listens):
        self.socket = socket.create_server(("127.0.0.1", 0)) if listens else None
        self.port = self.socket.getsockname()[1] if listens else free_port()

    def close(self):
        if self.socket is not None:
            self.socket.close()


@pytest.mark.parametrize("listens", [False, True])
def test_every_address_is_tried_even_if_the_first_ones_hang(rabbitmq_url, listens):
    dead = [Node(listens), Node(listens)]
    urls = [*(f"amqp://127.0.0.1:{node.port}//" for node in dead), rabbitmq_url]
    with connection(urls) as found:
        assert reach(found, within_s=30).connected
    for node in dead:
        node.close()


def test_each_address_has_its_time():
    asked = {}
    several = SimpleNamespace(alt=["a", "b", "c"], ensure_connection=asked.update)
    reach(several, within_s=2.0)
    assert (asked["timeout"], asked["max_retries"]) == (6.0, 3)


def test_no_address_answers(no_pauses):
    with (
        connection([f"amqp://127.0.0.1:{free_port()}//" for _ in range(2)]) as found,
        pytest.raises(OperationalError),
    ):
        reach(found, within_s=1)
