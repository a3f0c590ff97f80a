"""The doctor about the step in which a message passes from Redis to a worker."""

import pytest
from support.servers.own_redis import own_redis


@pytest.fixture
def found(run):
    """Gives the level and text of each of the check's lines."""

    def found():
        lines = [line.split(maxsplit=2) for line in run("doctor").stdout.splitlines()[1:]]
        return [(level, text) for name, level, text in lines if name == "taking"]

    return found


def test_other_brokers_get_no_line(app, found):
    assert found() == []


def test_messages_are_taken_in_one_step(app, found, redis_url):
    app.conf.broker_url = f"{redis_url}/9"
    assert found() == [("ok", "workers take messages from Redis, and note them, in one step")]


def test_a_user_who_may_not(app, found, redis_url, tmp_path):
    with own_redis(tmp_path) as url:
        import redis

        with redis.Redis.from_url(url) as client:
            client.acl_setuser("shop", enabled=True, nopass=True, keys=["*"], channels=["*"],
                               categories=["+@all"], commands=["-eval"])  # fmt: skip
        app.conf.broker_url = url.replace("redis://", "redis://shop:x@")
        [(level, text)] = found()
    assert level == "warning"
    assert "a user who may call BLMOVE, LINDEX, RPOP, SET, EVAL and EVALSHA" in text


def test_a_broker_without_acknowledgements(app, found, redis_url):
    app.conf.broker_url = f"{redis_url}/9"
    app.conf.broker_transport_options = {"ack_emulation": False}
    [(level, text)] = found()
    assert (level, "ack_emulation is off" in text) == ("warning", True)


def test_a_broker_that_is_away_is_reported_by_its_own_check(app, found):
    app.conf.broker_url = "redis://127.0.0.1:1/0"
    assert found() == []
