"""Messages that are taken off a Redis list, and noted, in one step: kombu's own channels on a real Redis."""

import base64
import contextlib
import json
import time
import uuid
from queue import Empty

import pytest
import redis
from kombu import Connection, Consumer, Producer, Queue
from support.servers.own_redis import own_redis

from celery_dlq.recorder.tags import Tags, noted_in
from celery_dlq.worker.celery_quirks import redis_take
from celery_dlq.worker.celery_quirks.brokers import catch_unreadable
from celery_dlq.worker.celery_quirks.redis_take import Taker, why_not
from celery_dlq.worker.celery_quirks.unacked import Whereabouts
from celery_dlq.worker.celery_quirks.unacked_redis import OnRedis

SEP = "\x06\x16"
PATIENCE_S = 30


@pytest.fixture(scope="module")
def url(tmp_path_factory, redis_url):
    with own_redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture
def client(url):
    with redis.Redis.from_url(url, decode_responses=True) as client:
        client.flushall()
        client.config_set("maxmemory", "0")
        yield client


class Broker:
    """A connection of kombu's, and what was received on it.

    :param notes: a directory for the notes about the messages that are with it.
    """

    def __init__(
        self, url, queues=("q",), is_atomic=True, is_acked=True, notes=None, before=None, **options
    ):
        self.connection = Connection(url, transport_options=options)
        self.channel = self.connection.channel()
        self.broker, self.notes, tags = OnRedis.broker_of(self.channel), notes, None
        if notes is not None:
            tags = Tags(notes, self.broker)
            OnRedis(self.channel, tags)
        if is_atomic:
            self.taker = Taker(self.channel, tags, before)
            catch_unreadable(self.channel, self.taker.noted)
        self.got = []
        self._is_acked = is_acked
        self._producer = Producer(self.connection.channel())
        self._consumer = Consumer(
            self.channel, [Queue(name) for name in queues], on_message=self._receive,
            accept=["json", "application/data"],
        )  # fmt: skip

    def _receive(self, message):
        self.got.append(message)
        if self._is_acked:
            message.ack()

    @property
    def bodies(self):
        return [message.decode() for message in self.got]

    def send(self, body, queue="q", **options):
        self._producer.publish(body, exchange="", routing_key=queue, serializer="json", **options)

    def consume(self):
        self._consumer.consume()

    def receive(self, count):
        """Wait until ``count`` messages more have come."""
        wanted = len(self.got) + count
        while len(self.got) < wanted:
            self.connection.drain_events(timeout=PATIENCE_S)
        return self.got[-count:]

    def die(self):
        """End as a killed process does: nothing is given back."""
        self.channel.qos._on_collect.cancel()
        self.channel.qos._delivered.clear()
        self.channel._in_poll = None
        self.connection.close()

    def give_back(self, of):
        """Give back what the broker ``of``, which is gone, had received; returns how it went."""
        noted = noted_in(of.notes, of.broker)
        return [*OnRedis.give_back(self.channel, noted, of.notes.name).values()]

    def ask(self):
        """Ask for a message, and leave the answer unread, as a worker that is killed now."""
        self.consume()
        self.connection.transport.cycle.on_poll_start()
        assert self.channel._in_poll, "it has asked"


@pytest.fixture
def open_broker(url, client):
    with contextlib.ExitStack() as stack:

        def make(*args, **options):
            broker = Broker(url, *args, **options)
            stack.callback(broker.connection.close)
            broker.consume()
            return broker

        yield make


@pytest.fixture
def broker(open_broker):
    return open_broker()


@pytest.fixture
def patient(monkeypatch):
    """Waits that do not end by themselves, however busy the machine is."""
    monkeypatch.setattr(redis_take, "WAIT_S", PATIENCE_S)


def wait_until(is_true):
    deadline = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def raw_item(body="[[], {}, {}]", **properties):
    return {
        "body": base64.b64encode(body.encode()).decode(), "content-type": "application/json",
        "content-encoding": "utf-8", "headers": {},
        "properties": {"delivery_tag": "tag", "body_encoding": "base64",
                       "delivery_info": {"exchange": "", "routing_key": "q"}, **properties},
    }  # fmt: skip


# -- the window ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_atomic", [True, False])
def test_a_message_is_noted_before_the_worker_has_read_it(open_broker, client, is_atomic):
    broker = open_broker(is_atomic=is_atomic)
    broker.send("hello")
    broker.ask()
    wait_until(lambda: not client.llen("q"))
    assert client.hlen("unacked") == client.zcard("unacked_index") == int(is_atomic)


def test_the_note_is_the_one_that_kombu_makes(open_broker, client):
    broker, plain = open_broker(is_acked=False), open_broker(is_atomic=False)
    broker.send("hello", headers={"name": "Zoë", "big": 2**70, "ratio": 0.1})
    [message] = broker.receive(1)
    first = client.hgetall("unacked")
    [(tag, noted)] = client.zrange("unacked_index", 0, -1, withscores=True)
    assert (tag, noted) == (message.delivery_tag, pytest.approx(time.time(), abs=60))
    plain.channel.qos.append(message, message.delivery_tag)
    second = client.hgetall("unacked")
    assert first.keys() == second.keys() == {message.delivery_tag}
    ours, kombus = (json.loads(one[message.delivery_tag]) for one in (first, second))
    assert ours == kombus
    message.ack()
    plain.channel.qos._delivered.clear()
    assert {*client.keys("*")} <= {"_kombu.binding.q", *client.keys("celery_dlq.taken.*")}


@pytest.mark.parametrize(("is_atomic", "trips"), [(False, 3), (True, 2)])
def test_a_message_takes_two_round_trips_in_the_place_of_three(
    open_broker, client, is_atomic, trips
):
    broker = open_broker(is_atomic=is_atomic)
    broker.send("first")
    broker.receive(1)
    for number in range(20):
        broker.send(number)
    client.config_resetstat()
    broker.receive(20)
    found = client.info("commandstats")
    names = "brpop", "eval", "evalsha", "exec"
    assert sum(found.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in names) == 20 * trips


# -- the end of a worker ---------------------------------------------------------------------------


def test_a_message_that_a_killed_worker_had_not_read_comes_back(open_broker, client, tmp_path):
    dead, other = open_broker(notes=tmp_path, is_acked=False), open_broker()
    for body in ("first", "second"):
        dead.send(body)
    dead.receive(1)
    dead.ask()
    wait_until(lambda: client.hlen("unacked") == 2)
    dead.die()
    assert other.give_back(dead) == [Whereabouts.GIVEN_BACK] * 2
    other.receive(2)
    assert other.bodies == ["first", "second"]
    assert other.got[1].headers["redelivered"] is True
    assert not client.hlen("unacked")
    assert client.ttl(f"celery_dlq.taken.{tmp_path.name}") > 0


def test_a_worker_that_waits_has_nothing_to_give_back(open_broker, tmp_path, patient):
    dead, other = open_broker(notes=tmp_path), open_broker()
    dead.send("hello")
    dead.receive(1)
    dead.ask()
    assert len(noted_in(tmp_path, dead.broker)) == 1, "it asks"
    dead.die()
    assert other.give_back(dead) == []


def test_what_it_had_returned_before_stays_with_the_worker_that_has_it(
    open_broker, client, tmp_path, patient
):
    dead, other = open_broker(notes=tmp_path, is_acked=False), open_broker(is_acked=False)
    dead.send("hello")
    [message] = dead.receive(1)
    message.requeue()
    other.receive(1)
    dead.ask()
    dead.die()
    assert other.give_back(dead) == []
    assert client.hkeys("unacked") == [message.delivery_tag]


def test_no_note_is_left_by_a_worker_that_ends(open_broker, tmp_path):
    broker = open_broker(notes=tmp_path)
    broker.send("hello")
    broker.receive(1)
    broker.ask()
    broker._consumer.cancel()
    broker.channel.close()
    assert noted_in(tmp_path, broker.broker) == []


def test_kombu_gives_it_back(open_broker, client):
    broker = open_broker()
    broker.send("hello", priority=3)
    broker.ask()
    wait_until(lambda: client.hlen("unacked"))
    [tag] = client.hkeys("unacked")
    plain = open_broker(is_atomic=False)
    plain.channel.qos.restore_by_tag(tag)
    [message] = plain.receive(1)
    assert message.decode() == "hello"
    assert message.headers["redelivered"] is True
    assert not client.hlen("unacked")


# -- the order -------------------------------------------------------------------------------------


def test_messages_come_in_their_order(broker):
    for number in range(20):
        broker.send(number)
    broker.receive(20)
    assert broker.bodies == list(range(20))


def test_those_that_come_during_a_wait_do_too(broker, patient):
    broker.ask()
    for number in range(5):
        broker.send(number)
    broker.receive(5)
    assert broker.bodies == list(range(5))


def test_higher_priorities_come_first(broker):
    for priority in (9, 0, 6, 3, 0):  # on Redis, 0 is the highest
        broker.send(priority, priority=priority)
    broker.receive(5)
    assert broker.bodies == [0, 0, 3, 6, 9]


@pytest.mark.parametrize("priority", [0, 3, 6, 9])
def test_a_waiting_worker_gets_each_priority(broker, priority):
    broker.ask()
    broker.send("hello", priority=priority)
    broker.receive(1)
    assert broker.bodies == ["hello"]


@pytest.mark.parametrize("strategy", ["round_robin", "sorted", "priority"])
def test_a_waiting_worker_gets_each_queue(open_broker, strategy):
    broker = open_broker(("a", "b", "c"), queue_order_strategy=strategy)
    for queue in ("c", "a", "b", "c"):
        broker.ask()
        broker.send(queue, queue)
        [message] = broker.receive(1)
        assert message.delivery_info["routing_key"] == queue == message.decode()


def test_queues_take_turns(open_broker):
    broker = open_broker(("a", "b"))
    for queue in "aaabbb":
        broker.send(queue, queue)
    broker.receive(6)
    assert sorted(broker.bodies[:2]) == sorted(broker.bodies[2:4]) == ["a", "b"]


def test_one_message_wakes_one_worker(open_broker, client, patient):
    brokers = [open_broker() for _ in range(3)]
    for broker in brokers:
        broker.ask()
    wait_until(lambda: len(_blocked(client)) == 3)
    for number in range(3):
        brokers[0].send(number)
        wait_until(lambda: client.hlen("unacked") == number + 1)  # noqa: B023
        assert len(_blocked(client)) == 2 - number
    assert client.hlen("unacked") == 3
    assert not client.exists("q", f"q{SEP}3")


def test_one_step_of_priorities(open_broker, client, patient):
    broker = open_broker(priority_steps=[0])
    broker.ask()
    for number in range(3):
        broker.send(number)
    broker.receive(3)
    assert broker.bodies == [0, 1, 2]
    assert not client.exists("q", "unacked", "unacked_index")


def test_a_message_left_by_a_wait_is_read_by_any_worker(open_broker, client):
    """Redis fails between the two commands of a wait: the message is in the next priority's list."""
    client.lpush("q", json.dumps(raw_item('"hello"')))
    client.blmove("q", f"q{SEP}3", 1, "RIGHT", "RIGHT")
    plain = open_broker(is_atomic=False)
    plain.receive(1)
    assert plain.bodies == ["hello"]


# -- connections -----------------------------------------------------------------------------------


def test_keys_may_have_a_prefix(open_broker, client):
    broker = open_broker(global_keyprefix="shop-", is_acked=False)
    assert why_not(broker.channel, "q") == ""
    broker.ask()
    broker.send("hello")
    [message] = broker.receive(1)
    assert {"shop-unacked", "shop-unacked_index"} <= set(client.keys("*"))
    assert not client.exists("unacked")
    message.ack()
    assert not client.hlen("shop-unacked")


def test_a_channel_that_is_closed_gives_back_what_it_has_asked_for(open_broker, client):
    broker = open_broker()
    broker.send("hello")
    broker.ask()
    wait_until(lambda: client.hlen("unacked"))
    broker._consumer.cancel()
    broker.channel.close()
    assert (client.llen("q"), client.hlen("unacked")) == (1, 0)


def test_a_connection_that_breaks_in_a_wait_loses_nothing(open_broker, client, patient):
    broker = open_broker()
    broker.ask()
    wait_until(lambda: _blocked(client))
    client.client_kill_filter(_id=_blocked(client)[0])
    broker.send("hello")
    with pytest.raises(broker.connection.connection_errors):
        broker.connection.drain_events(timeout=PATIENCE_S)
    broker.receive(1)
    assert broker.bodies == ["hello"]


def test_a_connection_that_breaks_after_the_answer_loses_nothing(open_broker, client):
    """The channel's next one gives the message back."""
    broker = open_broker()
    broker.send("hello")
    broker.ask()
    wait_until(lambda: client.hlen("unacked"))
    broker.channel.client.connection.disconnect()
    broker.receive(1)
    assert broker.bodies == ["hello"]
    assert not client.hlen("unacked")


def test_the_next_channel_gives_back_what_the_last_one_had_not_read(open_broker, client):
    broker = open_broker()
    broker.send("hello")
    broker.ask()
    wait_until(lambda: client.hlen("unacked"))
    broker.channel.client.connection.disconnect()
    following = open_broker(before=broker.taker)
    following.receive(1)
    assert following.bodies == ["hello"]
    assert not client.hlen("unacked")


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_an_answer_that_is_read_late(open_broker, client, is_elsewhere):
    """Meanwhile, the visibility timeout may have given the message to another worker."""
    broker, other = open_broker(visibility_timeout=0.001), open_broker(is_acked=False)
    broker.send("hello")
    broker.ask()
    wait_until(lambda: client.hlen("unacked"))
    [tag] = client.hkeys("unacked")
    client.persist(f"celery_dlq.taken.{broker.taker._process}")
    if is_elsewhere:
        other.channel.qos.restore_by_tag(tag)
        other.receive(1)
        with pytest.raises(Empty):
            broker.channel._brpop_read()
        assert client.hkeys("unacked") == [tag]
    else:
        broker.receive(1)
    assert len(broker.got) == int(not is_elsewhere)


def _blocked(client):
    return [one["id"] for one in client.client_list() if one["cmd"] == "blmove"]


def test_scripts_may_be_forgotten(broker, client):
    client.script_flush()
    broker.send("hello")
    broker.receive(1)
    assert broker.bodies == ["hello"]


def test_a_consumer_without_acknowledgement(open_broker, client):
    """Celery acknowledges its messages, too."""
    broker = open_broker()
    broker._consumer.cancel()
    with Consumer(broker.channel, [Queue("q")], on_message=broker._receive, no_ack=True):
        broker.send("hello")
        broker.receive(1)
    assert not client.hlen("unacked")


# -- items that are not messages -------------------------------------------------------------------

#: Python can read none of them, or kombu cannot make a message of it.
UNREADABLE = {
    "text": b"hello",
    "binary": b"\xff\x00",
    "a number": b"7",
    "a table": b'{"task": "t"}',
    "no tag": json.dumps(raw_item(delivery_tag=None)).encode(),
    "no address": json.dumps(raw_item(delivery_info={})).encode(),
    "not UTF-8": json.dumps(raw_item(note="NOTE")).encode().replace(b"NOTE", b"Zo\xeb"),
    "half a character": json.dumps(raw_item(note="NOTE")).encode().replace(b"NOTE", b"\xc3a\xa9"),
    "half of a pair": json.dumps(raw_item(note="NOTE")).encode().replace(b"NOTE", b"\xed\xa0\x80"),
    "too long for its character": json.dumps(raw_item(n="N")).encode().replace(b'"N"', b'"\xc0\x80"'),
}  # fmt: skip

#: Lua reads them and Python does not, or kombu does not.
NOTED_BUT_UNREADABLE = {
    "numbers as only Lua writes them": json.dumps(raw_item(n="N")).replace('"N"', "0x1F").encode(),
    "an unknown type": json.dumps(raw_item(n={"__type__": "x", "__value__": 1})).encode(),
    "headers are a list": json.dumps({**raw_item(), "headers": ["a"]}).encode(),
    "a body that is not base64": json.dumps({**raw_item(), "body": "abcde"}).encode(),
}


@pytest.mark.parametrize("what", [*UNREADABLE, *NOTED_BUT_UNREADABLE])
def test_items_that_are_not_messages_are_delivered(broker, client, what):
    raw = (UNREADABLE | NOTED_BUT_UNREADABLE)[what]
    client.lpush("q", raw)
    broker.ask()
    wait_until(lambda: not client.llen("q"))
    assert client.hlen("unacked") == int(what in NOTED_BUT_UNREADABLE)
    broker._is_acked = False
    [message] = broker.receive(1)
    assert message.body in (raw, b"[[], {}, {}]")
    for note in client.hvals("unacked"):
        json.loads(note)
    assert (
        client.hkeys("unacked") == client.zrange("unacked_index", 0, -1) == [message.delivery_tag]
    )
    message.ack()
    assert not client.hlen("unacked")


@pytest.mark.parametrize(
    "text", ["Zoë", "€", "𝄞", "\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff"]
)
def test_messages_may_hold_any_character(broker, client, text):
    client.lpush("q", json.dumps({**raw_item(), "headers": {"n": text}}, ensure_ascii=False))
    broker.ask()
    wait_until(lambda: client.hlen("unacked"))
    [message] = broker.receive(1)
    assert message.headers == {"n": text}


def test_the_address_may_be_empty_or_odd(broker, client):
    info = {"exchange": 'a"\\/é', "routing_key": None}
    client.lpush("q", json.dumps(raw_item(delivery_info=info), ensure_ascii=False))
    broker.ask()
    wait_until(lambda: client.hlen("unacked"))
    [note] = client.hvals("unacked")
    assert json.loads(note)[1:] == [info["exchange"], None]


# -- refusals --------------------------------------------------------------------------------------


def test_a_server_that_allows_it(broker, client):
    client.lpush("q", "first", "second")
    assert why_not(broker.channel, "q") == ""
    assert client.lrange("q", 0, -1) == ["second", "first"]
    assert set(client.keys("*")) <= {"q", "_kombu.binding.q"}


@pytest.mark.parametrize("command", ["blmove", "lindex", "rpop", "set", "eval", "evalsha"])
def test_a_user_who_may_not(url, client, command):
    name = uuid.uuid4().hex
    client.acl_setuser(name, enabled=True, nopass=True, keys=["*"], channels=["*"],
                       categories=["+@all"], commands=[f"-{command}"])  # fmt: skip
    with Connection(url.replace("redis://", f"redis://{name}:x@")) as connection:
        why = why_not(connection.channel(), "q")
    assert command in why.lower()
    assert "Redis 6.2 or newer" in why


def test_a_user_who_may_use_only_the_keys_of_kombu(url, client):
    name = uuid.uuid4().hex
    client.acl_setuser(name, enabled=True, nopass=True, keys=["q*", "unacked*", "_kombu*"],
                       channels=["*"], categories=["+@all"])  # fmt: skip
    with Connection(url.replace("redis://", f"redis://{name}:x@")) as connection:
        assert "use keys that begin with celery_dlq" in why_not(connection.channel(), "q")


def test_without_acknowledgements_there_is_nothing_to_note(open_broker):
    broker = open_broker(ack_emulation=False, is_atomic=False)
    assert "ack_emulation is off" in why_not(broker.channel, "q")


def test_redis_out_of_memory_loses_nothing(broker, client):
    broker.send("hello")
    client.config_set("maxmemory", "1")
    broker.ask()
    with pytest.raises(broker.channel.ResponseError, match="maxmemory"):
        broker.connection.drain_events(timeout=PATIENCE_S)
    assert client.llen("q") + client.llen(f"q{SEP}3") == 1
    client.config_set("maxmemory", "0")
    broker.receive(1)
    assert broker.bodies == ["hello"]


def test_a_refused_wait_does_not_hide_a_message(broker, client):
    client.set(f"q{SEP}3", "not a list")
    client.lpush("q", json.dumps(raw_item('"hello"')))
    broker.ask()
    with pytest.raises(broker.channel.ResponseError, match="WRONGTYPE"):
        broker.connection.drain_events(timeout=PATIENCE_S)
    assert client.llen("q") == 1
    client.delete(f"q{SEP}3")
    broker.receive(1)
    assert broker.bodies == ["hello"]


def test_nothing_is_asked_without_queues(open_broker):
    broker = open_broker(())
    broker.channel._brpop_start()
    assert not broker.channel._in_poll


def test_an_empty_answer_is_as_that_of_brpop(broker):
    broker.ask()
    with pytest.raises(Empty):
        broker.channel.handlers["BRPOP"]()


@pytest.mark.parametrize("bodies", [[], ["early"]])
def test_the_answer_to_a_question_of_kombu(url, client, bodies):
    """A worker's channel has asked for the answers of other workers before it takes messages in one step."""
    broker = Broker(url, is_atomic=False)
    with contextlib.closing(broker.connection):
        broker.ask()
        for body in bodies:
            broker.send(body)
        taker = Taker(broker.channel)
        catch_unreadable(broker.channel, taker.noted)
        broker.send("late", priority=3)
        broker.receive(len(bodies) + 1)
        assert broker.bodies == [*bodies, "late"]
        wait_until(lambda: not client.exists("unacked"))
