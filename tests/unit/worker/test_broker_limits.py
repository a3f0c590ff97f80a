import pytest
from celery import Celery

from celery_dlq.worker.broker_limits import hold_of, not_covered


def hold(broker, **conf):
    app = Celery("unit", broker=broker, set_as_current=False)
    app.conf.update(conf)
    found = hold_of(app, 60.0)
    app.close()
    return found


@pytest.mark.parametrize(
    ("broker", "options", "park_after", "seconds"),
    [
        ("redis://127.0.0.1:1/0", {}, 60.0, 60.0),
        ("redis://127.0.0.1:1/0", {}, 7200.0, 1800.0),
        ("redis://127.0.0.1:1/0", {"visibility_timeout": 8}, 60.0, 4.0),
        ("redis://127.0.0.1:1/0", {"visibility_timeout": None}, 7200.0, 1800.0),
        ("amqp://127.0.0.1:1//", {}, 60.0, 60.0),
        ("amqp://127.0.0.1:1//", {}, 7200.0, 900.0),
        ("sqs://", {}, 7200.0, 900.0),
        ("memory://", {}, 7200.0, 7200.0),
    ],
)
def test_the_broker_holds_at_most_half_of_what_it_may(broker, options, park_after, seconds):
    app = Celery("unit", broker=broker, set_as_current=False)
    app.conf.broker_transport_options = options
    assert hold_of(app, park_after).at_most_s == seconds
    app.close()


@pytest.mark.parametrize(
    ("broker", "options", "given_back", "vanished"),
    [
        ("redis://127.0.0.1:1/0", {}, 7200.0, 7200.0),
        ("redis://127.0.0.1:1/0", {"visibility_timeout": 8}, 16.0, 16.0),
        ("amqp://127.0.0.1:1//", {}, 60.0, 1800.0),
    ],
)
def test_after_that_time_a_message_is_given_back_or_has_vanished(
    broker, options, given_back, vanished
):
    found = hold(broker, broker_transport_options=options)
    assert (found.given_back_after_s, found.vanished_after_s) == (given_back, vanished)


def test_a_place_is_the_broker_and_no_secret():
    here = hold("redis://:s3cret@127.0.0.1:1/0").place
    assert here == hold("redis://:other@127.0.0.1:1/0").place
    assert here != hold("redis://127.0.0.1:1/1").place
    assert here != hold("redis://127.0.0.2:1/0").place
    prefixed = hold("redis://127.0.0.1:1/0", broker_transport_options={"global_keyprefix": "a:"})
    assert here != prefixed.place
    in_ireland = hold("sqs://", broker_transport_options={"region": "eu-west-1"})
    assert in_ireland.place != hold("sqs://").place
    assert len(here) <= 16


@pytest.mark.parametrize(
    ("broker", "said"),
    [
        ("redis://", ""),
        ("sentinel://", ""),
        ("amqp://", ""),
        ("memory://", ""),
        (
            "filesystem://",
            "on the transport filesystem, not everything is covered: the broker forgets",
        ),
        (
            "custom",
            "on the transport kombu.transport.base:Transport, not everything is covered: celery_dlq has not",
        ),
    ],
)
def test_a_transport_on_which_a_promise_does_not_hold_has_words_for_it(broker, said):
    app = Celery("unit", broker=broker, set_as_current=False)
    if broker == "custom":
        app.conf.update(broker_url="", broker_transport="kombu.transport.base:Transport")
    found = not_covered(app)
    app.close()
    assert found.startswith(said)
    assert bool(found) == bool(said)


SENTINELS = "sentinel://:s3cret@127.0.0.1:1/0;sentinel://:s3cret@127.0.0.2:1/0"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("amqp://ann:pw@127.0.0.1:1//;amqp://ann:pw@127.0.0.2:1//",) * 2,
        (SENTINELS, ";".join(SENTINELS.split(";")[::-1])),
        (SENTINELS, SENTINELS.replace("s3cret", "other")),
        ("amqp://ann:pw@a:1//;amqp://ann:pw@b:1//", "amqp://bob:pw@b:1//;amqp://bob:pw@a:1//"),
    ],
)
def test_a_place_is_the_same_in_whatever_order_its_addresses_are(one, other):
    assert hold(one).place == hold(other).place


def test_each_master_of_the_same_sentinels_is_a_place_of_its_own():
    places = {hold(SENTINELS, broker_transport_options={"master_name": one}).place for one in "mn"}
    assert len(places) == 2
    assert hold(SENTINELS.replace("/0", "/1")).place != hold(SENTINELS).place
