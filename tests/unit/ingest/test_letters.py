from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.factories import T0, envelope

from celery_dlq.base.redact import Redactor
from celery_dlq.ingest.letters import RULE, LetterMaker, Origin, origin_of, recall_times
from celery_dlq.ingest.source import BrokerMessage, body_alone
from celery_dlq.model.route import Route
from celery_dlq.model.states import Reason, Verdict
from celery_dlq.worker.grouping import Grouping

DIED = datetime(2026, 11, 21, 11, 0, tzinfo=timezone.utc)
DEATH = {
    "queue": "orders", "exchange": "shop", "routing-keys": ["order.eu"],
    "reason": "rejected", "count": 2, "time": DIED,
}  # fmt: skip


WIRING = SimpleNamespace(
    redactor=Redactor(),
    settings=SimpleNamespace(release="1.4.2", own_namespace="", routes=()),
    grouping=Grouping(Redactor()),
)


def maker(**changes):
    values = {"queue": "dead", "to": "", "wiring": WIRING}
    return LetterMaker(**{**values, **changes})


def taken(headers=None, tag="", **changes):
    values = {"queue": "", "routing_key": "", **changes}
    if headers is not None:
        values["headers"] = headers
    return BrokerMessage(envelope=envelope(**values), tag=tag, handle=None)


def task_headers(**more):
    return {"id": "0d3f", "task": "shop.charge", "retries": 0, **more}


def test_a_message_with_x_death_is_the_letter_of_its_queue():
    made = maker().make(taken(task_headers(**{"x-death": [DEATH]})), T0)
    letter = made.letter
    assert (made.dated, made.placed) == (True, True)
    assert (letter.task_id, letter.task, letter.reason) == ("0d3f", "shop.charge", Reason.INGESTED)
    place = letter.envelope
    assert (place.queue, place.exchange, place.routing_key) == ("orders", "shop", "order.eu")
    assert (letter.args, letter.kwargs) == ([17], {"currency": "EUX"})
    assert letter.message == "rejected in queue 'orders'"
    assert letter.explanation.verdict is Verdict.TERMINAL
    assert letter.explanation.evidence == (
        "reason=rejected, count=2 in queue orders, taken from queue dead"
    )
    assert (letter.first_failed_at, letter.last_failed_at) == (DIED, DIED)
    assert letter.release == "1.4.2"


@pytest.mark.parametrize(
    ("to", "sent_to", "place"),
    [
        ("", "orders", ("orders", "shop", "order.eu")),
        ("", "dead", ("", "", "")),
        ("", "", ("", "", "")),
        ("retry", "", ("retry", "", "retry")),
        ("retry", "orders", ("retry", "", "retry")),
    ],
)
def test_without_x_death_the_option_says_where_or_else_its_publisher(to, sent_to, place):
    message = taken(
        queue=sent_to, exchange="shop" if sent_to == "orders" else "",
        routing_key="order.eu" if sent_to == "orders" else sent_to,
    )  # fmt: skip
    made = maker(to=to).make(message, T0)
    found = made.letter.envelope
    assert (found.queue, found.exchange, found.routing_key) == place
    assert made.placed is bool(place[0])
    assert (made.dated, made.letter.last_failed_at) == (False, T0)


def test_x_death_says_more_than_the_option():
    made = maker(to="retry").make(taken(task_headers(**{"x-death": [DEATH]})), T0)
    assert made.letter.queue == "orders"


def test_attempts_and_redrives_in_the_message_are_counted():
    letter = maker().make(taken(task_headers(retries=2, **{"x-dlq-redrive": 3})), T0).letter
    assert [(a.number, a.redrive) for a in letter.attempts] == [(3, 3)]


def test_the_old_protocol_is_read_too():
    body = json.dumps(
        {"task": "shop.mail", "id": "77e1", "args": [1], "kwargs": {"to": "x"}, "chord": {"a": 1}}
    ).encode()
    letter = maker().make(taken({}, body=body), T0).letter
    assert (letter.task_id, letter.task, letter.args) == ("77e1", "shop.mail", [1])
    assert letter.canvas == "chord"


def test_a_pickled_body_is_not_opened():
    body = b"cos\nsystem\n(S'false'\ntR."
    letter = (
        maker().make(taken(body=body, content_type="application/x-python-serialize"), T0).letter
    )
    assert (letter.args, letter.kwargs, letter.envelope.body) == (None, None, body)


class TestMessagesWithoutId:
    def test_the_broker_s_tag_is_their_identity(self):
        one, again, other = (
            maker().make(taken({}, tag=tag), T0).letter.task_id for tag in ("a", "a", "b")
        )
        assert one == again != other

    def test_else_what_they_hold(self):
        ids = [
            maker().make(taken(headers, body=body), T0).letter.task_id
            for headers, body in (
                ({}, b"x"), ({}, b"x"), ({"a": 1}, b"x"), ({}, b"y"), ({"x-death": [DEATH]}, b"x"),
                ({"x-delivery-count": 3}, b"x"),
            )
        ]  # fmt: skip
        assert ids[0] == ids[1] == ids[5], "how often it was delivered is no difference"
        assert len({*ids[:5]}) == 4


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
names = st.sampled_from(["id", "task", "retries", "group", "x-death", "x-dlq-redrive", "a"])


@given(
    st.dictionaries(names, anything), st.binary() | anything.map(lambda x: json.dumps(x).encode())
)
def test_whatever_it_holds_it_becomes_a_letter_that_can_be_stored(headers, body):
    letter = maker().make(taken(headers, body=body), T0).letter
    assert letter.envelope.body == body
    assert letter.envelope.headers == headers
    assert letter.task_id
    assert letter.from_dict(json.loads(json.dumps(letter.to_dict(), default=str))).task_id


def test_a_body_alone_is_a_letter_too():
    made = maker().make(BrokerMessage(envelope=body_alone(b"\xff"), tag="", handle=None), T0)
    assert (made.placed, made.letter.envelope.body) == (False, b"\xff")


class TestRecalledTimes:
    @pytest.fixture
    def store(self, own_store):
        return own_store

    def ingest(self, store, message, at):
        (letter,) = recall_times(store, [maker(to="orders").make(message, at)])
        return letter, store.letters.save([letter])

    def test_a_delivery_that_comes_again_is_known(self, store):
        first, _ = self.ingest(store, taken(tag="t1"), T0)
        again, saved = self.ingest(store, taken(tag="t1"), T0 + timedelta(hours=1))
        assert again == first
        assert (saved.arrived, saved.known) == (0, 1)

    def test_so_it_is_when_its_letter_was_closed_meanwhile(self, store):
        self.ingest(store, taken(tag="t1"), T0)
        store.closing.discard(all_letters(), who="tester", why="", now=T0 + timedelta(minutes=1))
        _, saved = self.ingest(store, taken(tag="t1"), T0 + timedelta(hours=1))
        assert saved.known == 1
        assert store.counts.letters(all_letters()) == 0

    def test_another_delivery_of_a_closed_letter_opens_it(self, store):
        self.ingest(store, taken(tag="t1"), T0)
        store.closing.discard(all_letters(), who="tester", why="", now=T0 + timedelta(minutes=1))
        _, saved = self.ingest(store, taken(tag="t2"), T0 + timedelta(hours=1))
        assert saved.arrived == 1
        assert store.counts.letters(all_letters()) == 1

    def test_a_date_from_the_broker_is_kept(self, store):
        message = taken(task_headers(**{"x-death": [DEATH]}))
        for at in (T0, T0 + timedelta(hours=1)):
            letter, saved = self.ingest(store, message, at)
            assert letter.last_failed_at == DIED
        assert saved.known == 1
        assert [a.rule for a in store.letters.get("0d3f").attempts] == [RULE]


def all_letters():
    from celery_dlq.store.base import Filter

    return Filter()


def test_an_ingested_letter_is_on_its_route():
    routes = [
        Route("mail", task="shop.mail"),
        Route("from-the-broker", reason="ingested", exception="broker.rejected", tags=("late",)),
    ]
    settings = SimpleNamespace(release="", own_namespace="", routes=routes)
    wiring = SimpleNamespace(redactor=Redactor(), settings=settings, grouping=Grouping(Redactor()))
    made = maker(wiring=wiring).make(taken(task_headers(**{"x-death": [DEATH]})), T0).letter
    assert (made.route, made.tags) == ("from-the-broker", ("late",))


AT = datetime(2026, 11, 21, 12, 0, 5)  # noqa: DTZ001 - as py-amqp hands it over


def death(**changes):
    values = {
        "count": 1, "reason": "expired", "queue": "orders", "time": AT,
        "exchange": "shop", "routing-keys": ["order.eu", "cc"],
    }  # fmt: skip
    return {**values, **changes}


def test_the_first_entry_is_the_latest_death():
    headers = {"x-death": [death(reason="rejected", count=3), death(queue="older")]}
    assert origin_of(headers) == Origin(
        queue="orders", exchange="shop", routing_key="order.eu", reason="rejected", count=3,
        died_at=AT.replace(tzinfo=timezone.utc),
    )  # fmt: skip


def test_the_hops_of_a_delayed_task_are_not_deaths():
    hop = death(queue="celery_delayed_3")
    assert origin_of({"x-death": [hop, death()]}).queue == "orders"
    assert origin_of({"x-death": [hop], "x-first-death-queue": "celery_delayed_3"}) is None


def test_a_time_that_names_its_zone_is_kept():
    at = AT.replace(tzinfo=timezone(timedelta(hours=1)))
    assert origin_of({"x-death": [death(time=at)]}).died_at == at


def test_without_the_table_the_short_marks_tell():
    headers = {
        "x-first-death-queue": "first", "x-first-death-reason": "maxlen",
        "x-first-death-exchange": "",
    }  # fmt: skip
    assert origin_of(headers) == Origin(
        queue="first", exchange="", routing_key="first", reason="maxlen"
    )
    last = {"x-last-death-queue": "last", "x-last-death-reason": "rejected"}
    assert origin_of({**headers, **last}).queue == "last"


@pytest.mark.parametrize(
    "deaths",
    ["old", None, 7, [], ["text"], [{}], [death(queue="")], [death(queue=7)], {"queue": 1}],
)
def test_headers_that_no_broker_wrote_are_ignored(deaths):
    assert origin_of({"x-death": deaths}) is None


def test_missing_parts_are_unknown():
    assert origin_of({"x-death": [{"queue": "orders"}]}) == Origin(
        queue="orders", exchange="", routing_key="orders", reason="dead_letter"
    )


any_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.datetimes(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
fields = ("queue", "exchange", "routing-keys", "reason", "count", "time")


@given(st.lists(st.dictionaries(st.sampled_from(fields), any_value)) | any_value)
def test_no_header_breaks_it(deaths):
    found = origin_of({"x-death": deaths, "x-first-death-queue": deaths})
    assert found is None or (isinstance(found.queue, str) and found.queue)
