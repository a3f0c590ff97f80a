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
    app.conf.dlq_redis_atomic_take = True
    assert found() == []


def test_without_the_setting_messages_can_be_lost(app, found, redis_url):
    app.conf.broker_url = f"{redis_url}/9"
    [(level, text)] = found()
    assert level == "warning"
    assert text.endswith("set dlq_redis_atomic_take to True")


def test_with_it_they_are_not(app, found, redis_url):
    app.conf.update(broker_url=f"{redis_url}/9", dlq_redis_atomic_take=True)
    assert found() == [("ok", "workers take messages from Redis, and note them, in one step")]


def test_a_user_who_may_not(app, found, redis_url, tmp_path):
    with own_redis(tmp_path) as url:
        import redis

        with redis.Redis.from_url(url) as client:
            client.acl_setuser("shop", enabled=True, nopass=True, keys=["*"], channels=["*"],
                               categories=["+@all"], commands=["-eval"])  # fmt: skip
        app.conf.update(
            broker_url=url.replace("redis://", "redis://shop:x@"), dlq_redis_atomic_take=True
        )
        [(level, text)] = found()
    assert level == "error"
    assert "a user who may call BLMOVE, LINDEX, RPOP and EVAL" in text


def test_a_broker_that_is_away_is_reported_by_its_own_check(app, found):
    app.conf.update(broker_url="redis://127.0.0.1:1/0", dlq_redis_atomic_take=True)
    assert found() == []
